"""The large size in operation: downloads from S3, a broker that is away or silent, workers that freeze or die.

One service of an API process and two Celery workers, with short leases, for the whole module.
"""

import base64
import hashlib
import io
import signal
import socket
import statistics
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import large_size
import psutil
import pytest
import redis_server as redis_servers
from large_size import LargeSize

from core.doorbell import SOCKET_TIMEOUT_S
from tests.rest import Rest
from tools import digits

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]

QUICK = {"method": "finetune", "epochs": 1}
LONG = {"method": "finetune", "epochs": 1200}
"""Some ten seconds."""
MLP: dict[str, Any] = {"architecture": {"name": "mlp", "hidden": [64]}, "image": {"size": 8, "channels": 3}}


@pytest.fixture(scope="module")
def broker() -> Iterator[redis_servers.RedisServer]:
    """A Redis of this module's own, to be stopped."""
    server = redis_servers.RedisServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, broker: Any, s3: Any
) -> Iterator[tuple[LargeSize, Rest]]:
    settings = {"PERENNIAL_LEASE_S": "2", "PERENNIAL_CHORES_S": "0.5", "PERENNIAL_SNAPSHOT_S": "0.5"}
    folder = tmp_path_factory.mktemp("large")
    with large_size.running(folder, postgres_url, broker.url, s3, **settings) as found:
        yield found


@pytest.fixture(scope="module")
def large(running: tuple[LargeSize, Rest]) -> LargeSize:
    return running[0]


@pytest.fixture(scope="module")
def client(running: tuple[LargeSize, Rest]) -> Rest:
    return running[1]


@pytest.fixture(scope="module")
def archives() -> list[bytes]:
    return [data for _, data in digits.archives()]


@pytest.fixture(scope="module")
def learned(client: Rest, archives: list[bytes]) -> str:
    """A model with one learned version, whose bytes are in S3."""
    client.models.create("learned", recipe={**QUICK, "epochs": 8}, architecture="small-cnn")
    assert client.wait(client.submit("learned", archives[0])).state == "succeeded"
    return "/v1/models/learned/versions/1"


# Downloads and predictions with a store that has no local files.


def test_a_redirected_download_serves_the_same_bytes_from_the_store(client: Rest, learned: str) -> None:
    answer = client.http.get(f"{learned}/download?redirect=1")
    assert answer.status_code == 307, answer.text
    digest = answer.headers["ETag"].strip('"')
    sha256 = base64.b64encode(bytes.fromhex(digest)).decode()
    assert answer.headers["Repr-Digest"] == f"sha-256=:{sha256}:"
    assert answer.headers["Cache-Control"] == "no-store"
    there = httpx2.get(answer.headers["Location"])  # without the key of the service
    assert there.status_code == 200, there.text
    assert hashlib.sha256(there.content).hexdigest() == digest
    assert there.headers["Content-Disposition"] == 'attachment; filename="learned-v1.zip"'
    assert there.headers["Content-Type"] == "application/zip"
    assert client.http.get(f"{learned}/download").content == there.content


def test_a_signed_url_is_good_for_its_object_and_method_alone(client: Rest, learned: str) -> None:
    location = client.http.get(f"{learned}/download?redirect=1").headers["Location"]
    path, _, query = location.partition("?")
    assert httpx2.get(path).status_code in (400, 403)
    other = path[:-1] + ("1" if path.endswith("0") else "0")
    assert httpx2.get(f"{other}?{query}").status_code == 403
    assert httpx2.delete(location).status_code == 403
    assert "attachment" in query and "testing-secret-key" not in location


def test_a_redirect_to_head_is_followed_to_an_answer(client: Rest, learned: str) -> None:
    whole = client.http.head(f"{learned}/download")
    answer = client.http.head(f"{learned}/download?redirect=1", follow_redirects=True)
    assert answer.status_code == 200
    assert answer.headers["Content-Length"] == whole.headers["Content-Length"]


def test_a_client_that_has_the_file_is_not_redirected(client: Rest, learned: str) -> None:
    tag = client.http.head(f"{learned}/download").headers["ETag"]
    answer = client.http.get(f"{learned}/download?redirect=1", headers={"If-None-Match": tag})
    assert answer.status_code == 304


def test_a_download_that_breaks_off_goes_on_in_the_middle(client: Rest, learned: str) -> None:
    path = f"{learned}/download"
    with client.http.stream("GET", path) as first:
        size, tag = int(first.headers["Content-Length"]), first.headers["ETag"]
        begin = next(first.iter_bytes(size // 3))
    headers = {"Range": f"bytes={len(begin)}-", "If-Range": tag}
    rest = client.http.get(path, headers=headers)
    assert rest.status_code == 206
    assert rest.headers["Content-Range"] == f"bytes {len(begin)}-{size - 1}/{size}"
    whole = begin + rest.content
    assert hashlib.sha256(whole).hexdigest() == tag.strip('"')
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None


def test_versions_in_the_store_predict_and_a_lost_cache_is_filled_again(
    client: Rest, large: LargeSize, learned: str, archives: list[bytes]
) -> None:
    with zipfile.ZipFile(io.BytesIO(archives[0])) as archive:
        names = archive.namelist()[::20]
        files = [("image", (name, archive.read(name), "image/png")) for name in names]
    first = client.call("POST", f"{learned}/predict", files=files).json()
    right = [p["label"] == n.split("/")[0] for p, n in zip(first["predictions"], names, strict=True)]
    assert sum(right) >= 0.9 * len(names)
    parts = {part["sha256"] for part in client.get(learned)["parts"]}
    cached = {path.name: path for path in (large.data("api") / "cache").glob("blobs/*/*")}
    assert parts <= set(cached)
    for path in cached.values():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        path.unlink()
    assert client.call("POST", f"{learned}/predict", files=files).json() == first
    assert all(cached[part].is_file() for part in parts)


def test_a_whole_batch_is_checked_from_the_store_and_its_upload_goes(
    client: Rest, large: LargeSize, archives: list[bytes]
) -> None:
    client.models.create("checked", recipe=QUICK, architecture="small-cnn")
    path = "/v1/models/checked/tasks"
    answer = client.call("POST", path, content=archives[0], params={"validate": "full"})
    assert (answer.status_code, answer.json()["kind"]) == (202, "validate")
    done = client.wait(answer.json()["id"])
    assert (done.state, done.report.valid, done.report.checked) == (
        "succeeded",
        True,
        "images",
    )
    assert client.items(path) == []

    def left() -> list[int]:
        return [one["bytes"]["archives"] for one in client.items("/v1/usage") if one["name"] == "checked"]

    large.until(lambda: left() == [0], 20)


# The broker.


def test_a_job_submitted_while_the_broker_is_away_runs_once_afterwards(
    client: Rest, large: LargeSize, broker: Any, archives: list[bytes]
) -> None:
    client.models.create("unrung", recipe=QUICK, architecture="small-cnn")
    broker.stop()
    begin = time.monotonic()
    job = client.submit("unrung", archives[0]).id
    assert time.monotonic() - begin < 1.0
    answer = large.until(lambda: _ready_when(large, "down"), 20)
    assert answer.status_code == 200, answer.text
    assert client.get(f"/v1/jobs/{job}")["state"] == "queued"
    broker.start()
    assert client.wait(job, 60).state == "succeeded"
    assert [version["number"] for version in client.get("/v1/models/unrung/versions")["items"]] == [0, 1]
    assert client.get(f"/v1/jobs/{job}")["attempt"] == 1
    assert states(client, job).count("running") == 1
    large.until(lambda: _ready_when(large, "up"), 20)


def _ready_when(large: LargeSize, status: str) -> httpx2.Response | None:
    answer = httpx2.get(f"{large.url}/readyz", timeout=10)
    return answer if answer.json()["broker"] == status else None


def test_a_silent_broker_delays_neither_an_upload_nor_the_end(
    tmp_path: Path, redis_server: Any, archives: list[bytes]
) -> None:
    """One API process on SQLite and a folder: only its broker differs between the two runs."""
    api = LargeSize(tmp_path, {"PERENNIAL_DATABASE_URL": f"sqlite:///{tmp_path / 'db'}"})
    with silent() as url:
        healthy, _ = _submit_times(api, redis_server.url, archives)
        delayed, stopped_s = _submit_times(api, url, archives)
    assert delayed - healthy < SOCKET_TIMEOUT_S / 2, (
        healthy,
        delayed,
    )  # to wait for it would cost all of that
    assert stopped_s < 5.0
    print(f"202 after {healthy:.3f} s with a healthy and {delayed:.3f} s with a silent broker; "
          f"ended within {stopped_s:.2f} s")  # fmt: skip


def _submit_times(api: LargeSize, broker: str, archives: list[bytes]) -> tuple[float, float]:
    """Median seconds of a few submits, and how long the process then takes to end."""
    if not api.folder.joinpath("db").exists():
        api.migrate()
    client = api.start_api(PERENNIAL_BROKER_URL=broker)
    name = f"m{len(client.get('/v1/models')['items'])}"
    try:
        client.models.create(name, recipe=QUICK, architecture="small-cnn")
        times = []
        for number in range(8):
            begin = time.monotonic()
            client.submit(name, archives[number % len(archives)])
            times.append(time.monotonic() - begin)
    finally:
        stopped_s = api.stop("api")
    return statistics.median(times[1:]), stopped_s


@contextmanager
def silent() -> Iterator[str]:
    """A listener that accepts every connection and never says a word; its URL as a broker's."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


# Workers.


def test_workers_notice_within_a_minute_when_the_broker_is_cut_off(large: LargeSize, broker: Any) -> None:
    """Each waits on two connections: for rings, and for commands; the kernel probes both."""
    for name in large_size.WORKERS:
        large.until(lambda name=name: _probed(large.processes[name], broker.port) >= 2, 10)


def _probed(worker: psutil.Popen, port: int) -> int:
    """How many connections to a port have a keepalive timer of a minute (`/proc/net/tcp`: kind 2)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = {int(row[1].split(":")[1], 16): row[5].split(":") for row in rows}
    ours = [c.laddr.port for c in worker.net_connections("tcp4") if c.raddr and c.raddr.port == port]
    return sum(timers[p][0] == "02" and int(timers[p][1], 16) <= 60 * 100 for p in ours if p in timers)


@pytest.mark.campaign  # tests/faults/test_worker_deaths.py freezes one in the small size
def test_a_frozen_worker_that_comes_back_publishes_nothing_and_goes_on(
    client: Rest, large: LargeSize, archives: list[bytes]
) -> None:
    client.models.create("frozen", recipe=LONG, **MLP)
    client.models.create("after", recipe=LONG, **MLP)
    job = client.submit("frozen", archives[0]).id
    zombie = in_work(large, client, job)
    family = [large.processes[zombie], *large.processes[zombie].children(recursive=True)]
    for process in family:
        process.suspend()
    try:
        taken = large.until(lambda: (large.worker_of(job) or zombie) != zombie and large.worker_of(job), 30)
        end = client.wait(job, 120)
    finally:
        for process in family:
            if process.is_running():
                process.resume()
    assert end.state == "succeeded" and end.attempt == 2, large.logs()
    large.until(lambda: f'"{job}"' in lost(large.log(zombie)), 10)
    assert taken != zombie
    logs = [line for line in large.log(zombie).splitlines() if job in line]
    assert not any('"event": "published"' in line for line in logs)
    versions = client.get("/v1/models/frozen/versions")["items"]
    assert [version["number"] for version in versions] == [0, 1]
    assert states(client, job).count("succeeded") == 1

    # Pairs of long jobs of two models. One worker may hold both rings for a while, so that no pair is certain.
    for archive in archives[1:4]:
        later = [client.submit(model, archive).id for model in ("frozen", "after")]
        for job in later:
            assert client.wait(job, 120).state == "succeeded"
        if any(f'"{job}"' in large.log(zombie) for job in later):
            return
    raise AssertionError(f"{zombie} took no job any more.\n{large.logs()}")


def test_a_killed_worker_leaves_no_process_and_its_job_to_the_other(
    client: Rest, large: LargeSize, archives: list[bytes]
) -> None:
    client.models.create("orphaned", recipe=LONG, **MLP)
    job = client.submit("orphaned", archives[0]).id
    victim = in_work(large, client, job)
    children = large.processes[victim].children(recursive=True)
    assert len(children) >= 2  # the zygote and the job
    large.processes[victim].send_signal(signal.SIGKILL)
    large.processes[victim].wait()
    large.until(lambda: not any(map(lives, children)), 5)
    end = client.wait(job, 120)
    assert end.state == "succeeded" and end.attempt == 2, large.logs()
    assert [version["number"] for version in client.get("/v1/models/orphaned/versions")["items"]] == [0, 1]
    large.start_worker(victim)  # the same data directory: what the dead one left there goes
    large.until(lambda: len(list((large.data(victim) / "work").iterdir())) == 1, 30)


def in_work(large: LargeSize, client: Rest, job: str) -> str:
    """The worker that is in the middle of the training of a job: a snapshot of it is registered."""

    def look() -> str | None:
        state, snapshot = large.rows("SELECT state, snapshot FROM jobs WHERE id = :job", job=job)[0]
        return large.worker_of(job) if state == "running" and snapshot else None

    return large.until(look, 60)  # type: ignore[return-value]


def states(client: Rest, job: str) -> list[str]:
    """The states that a job went through, in order."""
    events = client.get(f"/v1/jobs/{job}/events?limit=200&type=state")["items"]
    return [event["data"]["state"] for event in events]


def lost(log: str) -> str:
    """The lines that tell of a lost lease."""
    return "\n".join(line for line in log.splitlines() if "lease lost" in line)


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
