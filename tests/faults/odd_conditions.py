"""Unusual conditions on real services, and the message that the user reads in each case.

    PYTHONPATH=. python tests/faults/odd_conditions.py [NAME …]

Prints a line for each condition: the action and the message. It needs root, to mount small disks.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.damaged_database import damage_head, damage_table
from tests.faults.archives import build_archive
from tools import service

ROOT = Path(__file__).parents[2]
QUIET = {"PERENNIAL_THREADS": "1", "PERENNIAL_CHORES_S": "1"}
MODEL = {"name": "birds", "scenario": "class", "architecture": "small-cnn"}
TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
PATIENCE_S = 300.0
DAY_S = 86_400
Told = list[tuple[str, str]]
"""Pairs of an action and the resulting message."""


class Unexpected(AssertionError):
    """A condition had an unexpected result."""


def require_true(holds: object, *said: object) -> None:
    """Raise Unexpected unless a condition holds."""
    if not holds:
        raise Unexpected(*said)


@contextmanager
def make_seed_folder() -> Iterator[Path]:
    """Make a data directory of a service that has run, with a model and a waiting batch."""
    with tempfile.TemporaryDirectory(prefix="odd-") as folder:
        seed = Path(folder) / "seed"
        with (
            service.run_temporary_service(seed, QUIET) as found,
            open_client(found.url, found.key) as http,
        ):
            require_true(http.post("/v1/models", json=MODEL).status_code == 201)
        yield seed


def copy_seed_folder(seed: Path, name: str) -> Path:
    """Make a copy of the seed directory to damage."""
    folder = seed.parent / name
    shutil.copytree(seed, folder, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    return folder


@contextmanager
def mount_small_disk(folder: Path, options: str) -> Iterator[Path]:
    """Mount a separate file system in memory."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},mode=0700", "tmpfs", folder], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def open_client(url: str, key: str) -> httpx2.Client:
    """Make a client that sends requests with a key."""
    return httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60.0)


def start_refused_launcher(data_dir: Path, shell: str = "") -> str:
    """Start a launcher that refuses to start, and return its message; `shell` goes before it."""
    environment = {
        **os.environ,
        **QUIET,
        "PERENNIAL_DATA_DIR": str(data_dir),
        "PERENNIAL_PORT": str(service.find_free_port()),
    }
    command = ["bash", "-c", f"{shell} exec {sys.executable} -m worker.launcher"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    said = done.stderr.strip()
    require_true(
        done.returncode == 1 and "Traceback" not in said and len(said.splitlines()) == 1,
        done.returncode,
        said,
    )
    return said


def check_few_descriptors(seed: Path) -> Told:
    """Check that `ulimit -n 64` prevents the start, since 96 are needed."""
    told = [
        ("ulimit -n 64", start_refused_launcher(copy_seed_folder(seed, "few"), "ulimit -n 64;"))
    ]
    require_true("may open 64 files, and needs 96" in told[0][1], told)
    return told


def check_corrupt_database(seed: Path) -> Told:
    """Check a file that is not a database, and one with a damaged page."""
    told: Told = []
    for name, spoil in (
        ("head", damage_head),
        ("table jobs", lambda file: damage_table(file, "jobs")),
    ):
        folder = copy_seed_folder(seed, f"corrupt-{name.replace(' ', '-')}")
        spoil(folder / "perennial.db")
        told.append((f"SQLite, damaged {name}", start_refused_launcher(folder)))
        require_true("is damaged" in told[-1][1] and "perennial restore" in told[-1][1], told)
    return told


def check_corrupt_index(seed: Path) -> Told:
    """Check a damaged page without any first row: the service starts, and /readyz reports it."""
    folder = copy_seed_folder(seed, "corrupt-inside")
    damage_table(folder / "perennial.db", "ix_audit_at_id")
    port = service.find_free_port()
    environment = {
        **os.environ,
        **QUIET,
        "PERENNIAL_DATA_DIR": str(folder),
        "PERENNIAL_PORT": str(port),
    }
    process = subprocess.Popen([sys.executable, "-m", "worker.launcher"], cwd=ROOT, env=environment,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        answer = wait_for_value(lambda: get_json_if_status(f"http://127.0.0.1:{port}/readyz", 503))
    finally:
        process.terminate()
        process.wait()
    require_true(answer["database"] == "corrupt", answer)
    return [("SQLite, damaged index: GET /readyz 503", answer["detail"])]


def get_json_if_status(url: str, status: int) -> Any:
    """Return the JSON of an answer with this status, or None if there is none yet."""
    try:
        answer = httpx2.get(url, timeout=5)
    except httpx2.TransportError:
        return None
    return answer.json() if answer.status_code == status else None


def wait_for_value(look: Callable[[], Any]) -> Any:
    """Return the value of `look`, once it has one."""
    until = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        require_true(time.monotonic() < until, "nothing within", PATIENCE_S)
        time.sleep(0.2)
    return found


def check_read_only_disk(seed: Path) -> Told:
    """Check a data directory on a disk that is mounted read-only."""
    with mount_small_disk(seed.parent / "read-only", "size=64m") as disk:
        shutil.copytree(
            seed, disk, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
        )
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        said = start_refused_launcher(disk)
    require_true("cannot be written: Read-only file system" in said, said)
    return [("a data directory mounted read-only", said)]


def check_full_disk(seed: Path) -> Told:
    """Fill a small disk.

    Requests that create get 507, while delete and cancel work. Then start the service on the full
    disk.
    """
    told: Told = []
    settings = {**QUIET, "PERENNIAL_RESERVE_BYTES": str(8 << 20)}
    with mount_small_disk(seed.parent / "full", "size=300m") as disk:
        shutil.copytree(
            seed, disk, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
        )
        with (
            service.run_temporary_service(disk, settings) as found,
            open_client(found.url, found.key) as http,
        ):
            require_true(
                http.post("/v1/models", json={**MODEL, "name": "other"}).status_code == 201
            )
            sent = http.post("/v1/models/other/tasks", content=build_archive(0, per_class=300))
            require_true(sent.status_code == 202, sent.text)
            require_true((disk / "reserve").exists(), "no reserve")
            filler = disk / "filler"
            fill_disk(filler)
            upload = http.post("/v1/models/birds/tasks", content=build_archive(2))
            told.append((f"full disk, a batch: {upload.status_code}", upload.json()["detail"]))
            require_true(upload.status_code == 507, upload.text)
            cancel = http.post(f"/v1/jobs/{sent.json()['job']['id']}/cancel")
            told.append(("full disk, POST …/cancel", f"{cancel.status_code}"))
            require_true(cancel.status_code in (200, 409), cancel.text)
            gone = http.delete("/v1/models/other")
            told.append(
                (
                    "full disk, DELETE",
                    f"{gone.status_code}, reserve released: {not (disk / 'reserve').exists()}",
                )
            )
            require_true(gone.status_code == 204 and not (disk / "reserve").exists(), gone.text)
            fill_disk(filler)
            later = http.post("/v1/models", json={**MODEL, "name": "later"})
            told.append((f"full disk without a reserve, POST: {later.status_code}",
                         later.json().get("detail", "created: a row fitted")))  # fmt: skip
            require_true(later.status_code in (201, 507), later.text)
            ready = http.get("/readyz")
            told.append(
                (f"full disk, GET /readyz: {ready.status_code}", f"store: {ready.json()['store']}")
            )
            filler.unlink()
            require_true(
                http.post("/v1/models", json={**MODEL, "name": "again"}).status_code == 201
            )
        fill_disk(filler)
        said = start_refused_launcher(disk)
        told.append(("started on a full disk without a reserve", said))
        require_true("is full" in said, said)
    return told


def fill_disk(file: Path) -> None:
    """Use up all space that is left on a disk."""
    with contextlib.suppress(OSError), file.open("ab", buffering=0) as opened:
        while True:
            opened.write(bytes(4096))


def check_link_in_backup(seed: Path) -> Told:
    """Check that the command refuses to restore a backup with a link."""
    saved, again = seed.parent / "saved", seed.parent / "again"
    command = [sys.executable, "-m", "tools.housekeeping"]
    environment = {**os.environ, "PERENNIAL_DATA_DIR": str(seed)}
    subprocess.run(
        [*command, "backup", saved], cwd=ROOT, env=environment, check=True, capture_output=True
    )
    (saved / "store" / "blobs").mkdir(parents=True, exist_ok=True)
    (saved / "store" / "blobs" / "secret").symlink_to("/etc/shadow")
    environment["PERENNIAL_DATA_DIR"] = str(again)
    done = subprocess.run(
        [*command, "restore", saved], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    require_true(done.returncode == 2 and "is a link to '/etc/shadow'" in done.stderr, done)
    require_true(not (again / "perennial.db").exists(), "something was restored")
    return [("restore of a backup with a link", done.stderr.strip())]


def check_clock_jumps(seed: Path) -> Told:
    """Move the machine's clock by +400, then by -800 days while jobs run.

    No job fails, and no job is taken away.
    """
    package = importlib.util.find_spec("libfaketime")
    require_true(
        package is not None and package.submodule_search_locations,
        "pip install -c constraints.txt libfaketime",
    )
    assert package is not None and package.submodule_search_locations is not None
    library = (
        Path(package.submodule_search_locations[0]) / "vendor/libfaketime/src/libfaketime.so.1"
    )
    folder, now = copy_seed_folder(seed, "clock"), seed.parent / "clock-now"
    now.write_text("+0")
    moved = {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(now), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    ends: list[str] = []
    with service.run_temporary_service(
        folder, {**QUIET, **moved, "PERENNIAL_LEASE_S": "6"}
    ) as found:
        with open_client(found.url, found.key) as http:
            for number, offset in enumerate((f"+{400 * DAY_S}", f"-{400 * DAY_S}", "+0")):
                recipe = {"Perennial-Recipe": json.dumps({"epochs": 200})}
                sent = http.post(
                    "/v1/models/birds/tasks", content=build_archive(2 * number), headers=recipe
                )
                require_true(sent.status_code == 202, sent.text)
                job = sent.json()["job"]["id"]
                wait_for_value(
                    lambda job=job: http.get(f"/v1/jobs/{job}").json()["state"] == "running" or None
                )
                now.write_text(offset)
                end = wait_for_value(
                    lambda job=job: get_ended_job(http.get(f"/v1/jobs/{job}").json())
                )
                ends.append(f"{offset} s: {end['state']}, attempt {end['attempt']}")
                require_true((end["state"], end["attempt"]) == ("succeeded", 1), end)
        said = [
            line for line in found.log.read_text().splitlines() if "put forward or back" in line
        ]
    require_true(said, "no warning of the jump")
    return [("clock +400 d, −400 d and back, a job running each time", "; ".join(ends)),
            ("the worker's log", json.loads(said[0])["event"])]  # fmt: skip


def get_ended_job(job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the job once it has ended, else None."""
    return job if job["state"] in ("succeeded", "failed", "rejected", "cancelled") else None


def check_lost_keys(seed: Path) -> Told:
    """Revoke a key, and let one expire, during an upload, an event stream and a download."""
    told: Told = []
    with (
        service.run_temporary_service(copy_seed_folder(seed, "keys"), QUIET) as found,
        open_client(found.url, found.key) as admin,
    ):
        host = found.url.removeprefix("http://")
        for how in ("revoked", "expired"):
            body: dict[str, Any] = {"name": how, "owner": "mine", "scope": "write"}
            if how == "expired":
                ends = time.gmtime(time.time() + 8)
                body["expires_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", ends)
            key = admin.post("/v1/keys", json=body).json()
            with open_client(found.url, key["secret"]) as mine:
                mine.post("/v1/models", json=MODEL)
                upload = mine.post(
                    "/v1/uploads", headers={**TUS, "Upload-Length": str(20 << 20)}
                ).headers["location"]
            stream = Raw(host, key["secret"], "GET", "/v1/events", {"Accept": "text/event-stream"})
            piece = Raw(host, key["secret"], "PATCH", upload,
                        {**TUS, "Upload-Offset": "0", "Content-Length": str(20 << 20)})  # fmt: skip
            stop = threading.Event()
            feeding = threading.Thread(target=piece.feed, args=[stop])
            feeding.start()
            time.sleep(1.0)
            if how == "revoked":
                require_true(admin.delete(f"/v1/keys/{key['id']}").status_code == 204)
            else:
                time.sleep(max(0.0, 8 - 1.0))
            begin = time.monotonic()
            answer, took = piece.answer(), time.monotonic() - begin
            stop.set()
            feeding.join()
            require_true(answer.startswith(b"HTTP/1.1 401"), answer[:300])
            detail = json.loads(answer.rpartition(b"\r\n\r\n")[2])["detail"]
            told.append((f"key {how} in mid-upload: 401 after {took:.1f} s", detail))
            begin = time.monotonic()
            stream.end()
            told.append(
                (
                    f"key {how} in mid-event-stream",
                    f"the stream ended {time.monotonic() - begin:.1f} s later",
                )
            )
            with open_client(found.url, key["secret"]) as mine:
                for method in ("HEAD", "PATCH", "DELETE"):
                    status = mine.request(
                        method, upload, headers={**TUS, "Upload-Offset": "0"}
                    ).status_code
                    require_true(status == 401, method, status)
    return told


class Raw:
    """A request whose body and answer are inspected byte by byte."""

    def __init__(
        self, host: str, key: str, method: str, path: str, headers: dict[str, str]
    ) -> None:
        name, _, port = host.partition(":")
        self._socket = socket.create_connection((name, int(port)), timeout=60)
        lines = {"Host": host, "Authorization": f"Bearer {key}", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())

    def feed(self, stop: threading.Event) -> None:
        """Send a piece of the body ten times a second, until `stop` is set or sending fails."""
        try:
            while not stop.wait(0.1):
                self._socket.sendall(bytes(20_000))
        except OSError:
            return

    def answer(self) -> bytes:
        """Return all received bytes."""
        said = b""
        try:
            while block := self._socket.recv(65536):
                said += block
                head, _, body = said.partition(b"\r\n\r\n")
                if b"content-length: " in head and len(body) >= int(
                    head.partition(b"content-length: ")[2].split()[0]
                ):
                    break
        except OSError:
            pass
        return said

    def end(self) -> None:
        """Wait until the server ends its chunked answer."""
        said = b""
        while not said.endswith(b"\r\n0\r\n\r\n"):
            block = self._socket.recv(65536)
            require_true(block, said[-300:])
            said = said[-300:] + block


CONDITIONS: dict[str, Callable[[Path], Told]] = {
    "keys": check_lost_keys,
    "corrupt": check_corrupt_database,
    "corrupt-inside": check_corrupt_index,
    "descriptors": check_few_descriptors,
    "full-disk": check_full_disk,
    "read-only": check_read_only_disk,
    "clock": check_clock_jumps,
    "links": check_link_in_backup,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the conditions; return 0 if all ended as they must, and 1 otherwise."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(CONDITIONS)}; default: all"
    )
    names = parser.parse_args(arguments).names or list(CONDITIONS)
    unknown = sorted(set(names) - set(CONDITIONS))
    if unknown:
        parser.error(f"there is no condition {', '.join(unknown)}")
    bad = 0
    with make_seed_folder() as seed:
        for name in names:
            try:
                for done, said in CONDITIONS[name](seed):
                    print(f"{done}\n    {said}", flush=True)
            except Unexpected as error:
                bad += 1
                print(f"{name}: {error}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
