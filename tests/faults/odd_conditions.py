"""The service under odd conditions, each on a real one, with the sentence that a person reads.

    PYTHONPATH=. python tests/faults/odd_conditions.py [NAME …]

Prints a line for each condition: what was done, and what was said. Needs root, to mount small
disks.
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
from tests.faults.archives import archive
from tools import service

ROOT = Path(__file__).parents[2]
QUIET = {"PERENNIAL_THREADS": "1", "PERENNIAL_CHORES_S": "1"}
MODEL = {"name": "birds", "scenario": "class", "architecture": "small-cnn"}
TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
PATIENCE_S = 300.0
DAY_S = 86_400
Told = list[tuple[str, str]]
"""Pairs of what was done and what was said."""


class Unexpected(AssertionError):
    """A condition ended in another way than it must."""


def require(holds: object, *said: object) -> None:
    """Raises Unexpected unless something holds."""
    if not holds:
        raise Unexpected(*said)


@contextmanager
def seeded() -> Iterator[Path]:
    """A data directory of a service that has run, with a model and a waiting batch."""
    with tempfile.TemporaryDirectory(prefix="odd-") as folder:
        seed = Path(folder) / "seed"
        with (
            service.run_temporary_service(seed, QUIET) as found,
            client(found.url, found.key) as http,
        ):
            require(http.post("/v1/models", json=MODEL).status_code == 201)
        yield seed


def copied(seed: Path, name: str) -> Path:
    """A copy of it to spoil."""
    folder = seed.parent / name
    shutil.copytree(seed, folder, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    return folder


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own in memory."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},mode=0700", "tmpfs", folder], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def client(url: str, key: str) -> httpx2.Client:
    """Requests with a key."""
    return httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60.0)


def refused_start(data_dir: Path, shell: str = "") -> str:
    """Return what a launcher says that does not start; `shell` goes before it."""
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
    require(
        done.returncode == 1 and "Traceback" not in said and len(said.splitlines()) == 1,
        done.returncode,
        said,
    )
    return said


def few_descriptors(seed: Path) -> Told:
    """`ulimit -n 64`: not started; 96: served."""
    told = [("ulimit -n 64", refused_start(copied(seed, "few"), "ulimit -n 64;"))]
    require("may open 64 files, and needs 96" in told[0][1], told)
    return told


def corrupt(seed: Path) -> Told:
    """A file that is no database, and one with a damaged page."""
    told: Told = []
    for name, spoil in (
        ("head", damage_head),
        ("table jobs", lambda file: damage_table(file, "jobs")),
    ):
        folder = copied(seed, f"corrupt-{name.replace(' ', '-')}")
        spoil(folder / "perennial.db")
        told.append((f"SQLite, damaged {name}", refused_start(folder)))
        require("is damaged" in told[-1][1] and "perennial restore" in told[-1][1], told)
    return told


def corrupt_inside(seed: Path) -> Told:
    """A page that no first row lies on: started, and told by /readyz."""
    folder = copied(seed, "corrupt-inside")
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
        answer = waited(lambda: asked(f"http://127.0.0.1:{port}/readyz", 503))
    finally:
        process.terminate()
        process.wait()
    require(answer["database"] == "corrupt", answer)
    return [("SQLite, damaged index: GET /readyz 503", answer["detail"])]


def asked(url: str, status: int) -> Any:
    """The JSON of an answer of that status; None: there is none yet."""
    try:
        answer = httpx2.get(url, timeout=5)
    except httpx2.TransportError:
        return None
    return answer.json() if answer.status_code == status else None


def waited(look: Callable[[], Any]) -> Any:
    """Return what `look` finds, once it finds something."""
    until = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        require(time.monotonic() < until, "nothing within", PATIENCE_S)
        time.sleep(0.2)
    return found


def read_only(seed: Path) -> Told:
    """A data directory on a disk that is mounted for reading alone."""
    with small_disk(seed.parent / "read-only", "size=64m") as disk:
        shutil.copytree(
            seed, disk, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
        )
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        said = refused_start(disk)
    require("cannot be written: Read-only file system" in said, said)
    return [("a data directory mounted read-only", said)]


def full_disk(seed: Path) -> Told:
    """A small disk is filled: what creates is 507, delete and cancel work; then started
    on, full.
    """
    told: Told = []
    settings = {**QUIET, "PERENNIAL_RESERVE_BYTES": str(8 << 20)}
    with small_disk(seed.parent / "full", "size=300m") as disk:
        shutil.copytree(
            seed, disk, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
        )
        with (
            service.run_temporary_service(disk, settings) as found,
            client(found.url, found.key) as http,
        ):
            require(http.post("/v1/models", json={**MODEL, "name": "other"}).status_code == 201)
            sent = http.post("/v1/models/other/tasks", content=archive(0, per_class=300))
            require(sent.status_code == 202, sent.text)
            require((disk / "reserve").exists(), "no reserve")
            filler = disk / "filler"
            fill(filler)
            upload = http.post("/v1/models/birds/tasks", content=archive(2))
            told.append((f"full disk, a batch: {upload.status_code}", upload.json()["detail"]))
            require(upload.status_code == 507, upload.text)
            cancel = http.post(f"/v1/jobs/{sent.json()['job']['id']}/cancel")
            told.append(("full disk, POST …/cancel", f"{cancel.status_code}"))
            require(cancel.status_code in (200, 409), cancel.text)
            gone = http.delete("/v1/models/other")
            told.append(
                (
                    "full disk, DELETE",
                    f"{gone.status_code}, reserve released: {not (disk / 'reserve').exists()}",
                )
            )
            require(gone.status_code == 204 and not (disk / "reserve").exists(), gone.text)
            fill(filler)
            later = http.post("/v1/models", json={**MODEL, "name": "later"})
            told.append((f"full disk without a reserve, POST: {later.status_code}",
                         later.json().get("detail", "created: a row fitted")))  # fmt: skip
            require(later.status_code in (201, 507), later.text)
            ready = http.get("/readyz")
            told.append(
                (f"full disk, GET /readyz: {ready.status_code}", f"store: {ready.json()['store']}")
            )
            filler.unlink()
            require(http.post("/v1/models", json={**MODEL, "name": "again"}).status_code == 201)
        fill(filler)
        said = refused_start(disk)
        told.append(("started on a full disk without a reserve", said))
        require("is full" in said, said)
    return told


def fill(file: Path) -> None:
    """Take what is left of a disk."""
    with contextlib.suppress(OSError), file.open("ab", buffering=0) as opened:
        while True:
            opened.write(bytes(4096))


def links(seed: Path) -> Told:
    """A backup with a link is restored by the command."""
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
    require(done.returncode == 2 and "is a link to '/etc/shadow'" in done.stderr, done)
    require(not (again / "perennial.db").exists(), "something was restored")
    return [("restore of a backup with a link", done.stderr.strip())]


def clock(seed: Path) -> Told:
    """The machine's clock jumps by +400, then by -800 days while jobs run: none fails, none is
    taken away.
    """
    package = importlib.util.find_spec("libfaketime")
    require(
        package is not None and package.submodule_search_locations,
        "pip install -c constraints.txt libfaketime",
    )
    assert package is not None and package.submodule_search_locations is not None
    library = (
        Path(package.submodule_search_locations[0]) / "vendor/libfaketime/src/libfaketime.so.1"
    )
    folder, now = copied(seed, "clock"), seed.parent / "clock-now"
    now.write_text("+0")
    moved = {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(now), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    ends: list[str] = []
    with service.run_temporary_service(
        folder, {**QUIET, **moved, "PERENNIAL_LEASE_S": "6"}
    ) as found:
        with client(found.url, found.key) as http:
            for number, offset in enumerate((f"+{400 * DAY_S}", f"-{400 * DAY_S}", "+0")):
                recipe = {"Perennial-Recipe": json.dumps({"epochs": 200})}
                sent = http.post(
                    "/v1/models/birds/tasks", content=archive(2 * number), headers=recipe
                )
                require(sent.status_code == 202, sent.text)
                job = sent.json()["job"]["id"]
                waited(
                    lambda job=job: http.get(f"/v1/jobs/{job}").json()["state"] == "running" or None
                )
                now.write_text(offset)
                end = waited(lambda job=job: ended(http.get(f"/v1/jobs/{job}").json()))
                ends.append(f"{offset} s: {end['state']}, attempt {end['attempt']}")
                require((end["state"], end["attempt"]) == ("succeeded", 1), end)
        said = [
            line for line in found.log.read_text().splitlines() if "put forward or back" in line
        ]
    require(said, "no warning of the jump")
    return [("clock +400 d, −400 d and back, a job running each time", "; ".join(ends)),
            ("the worker's log", json.loads(said[0])["event"])]  # fmt: skip


def ended(job: dict[str, Any]) -> dict[str, Any] | None:
    """The job, once it is over."""
    return job if job["state"] in ("succeeded", "failed", "rejected", "cancelled") else None


def keys(seed: Path) -> Told:
    """A key is revoked, and one expires, in the middle of an upload, an event stream and a
    download.
    """
    told: Told = []
    with (
        service.run_temporary_service(copied(seed, "keys"), QUIET) as found,
        client(found.url, found.key) as admin,
    ):
        host = found.url.removeprefix("http://")
        for how in ("revoked", "expired"):
            body: dict[str, Any] = {"name": how, "owner": "mine", "scope": "write"}
            if how == "expired":
                ends = time.gmtime(time.time() + 8)
                body["expires_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", ends)
            key = admin.post("/v1/keys", json=body).json()
            with client(found.url, key["secret"]) as mine:
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
                require(admin.delete(f"/v1/keys/{key['id']}").status_code == 204)
            else:
                time.sleep(max(0.0, 8 - 1.0))
            begin = time.monotonic()
            answer, took = piece.answer(), time.monotonic() - begin
            stop.set()
            feeding.join()
            require(answer.startswith(b"HTTP/1.1 401"), answer[:300])
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
            with client(found.url, key["secret"]) as mine:
                for method in ("HEAD", "PATCH", "DELETE"):
                    status = mine.request(
                        method, upload, headers={**TUS, "Upload-Offset": "0"}
                    ).status_code
                    require(status == 401, method, status)
    return told


class Raw:
    """One request whose body and answer are looked at byte by byte."""

    def __init__(
        self, host: str, key: str, method: str, path: str, headers: dict[str, str]
    ) -> None:
        name, _, port = host.partition(":")
        self._socket = socket.create_connection((name, int(port)), timeout=60)
        lines = {"Host": host, "Authorization": f"Bearer {key}", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())

    def feed(self, stop: threading.Event) -> None:
        """Send a piece of the body ten times a second until told to stop, or nobody takes it."""
        try:
            while not stop.wait(0.1):
                self._socket.sendall(bytes(20_000))
        except OSError:
            return

    def answer(self) -> bytes:
        """All that comes."""
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
        """Wait until the server ends its answer in chunks."""
        said = b""
        while not said.endswith(b"\r\n0\r\n\r\n"):
            block = self._socket.recv(65536)
            require(block, said[-300:])
            said = said[-300:] + block


CONDITIONS: dict[str, Callable[[Path], Told]] = {
    "keys": keys,
    "corrupt": corrupt,
    "corrupt-inside": corrupt_inside,
    "descriptors": few_descriptors,
    "full-disk": full_disk,
    "read-only": read_only,
    "clock": clock,
    "links": links,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all ended as they must; 1: some did not."""
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
    with seeded() as seed:
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
