"""`kill -9` of job process, worker and API through HTTP: every accepted job ends succeeded, same bytes."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.rest import Rest
from tools import digits, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RECIPE = {"method": {"name": "der++", "buffer": 60}, "epochs": 6}
QUICK = {"epochs": 1}
"""Of the first task, which nothing disturbs."""
SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_LEASE_S": "2",
    "PERENNIAL_CHORES_S": "0.5",
    "PERENNIAL_SNAPSHOT_S": "0.5",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service.running(tmp_path_factory.mktemp("killed"), SETTINGS) as found:
        yield found


@pytest.fixture
def client(running) -> Rest:
    return Rest(running.url, running.key)


@pytest.fixture(scope="module")
def undisturbed(running) -> dict[str, str]:
    """Part digests of two learned tasks that nothing interrupted."""
    client = Rest(running.url, running.key)
    return learn(client, "undisturbed", lambda _job: None)


def learn(client: Rest, model: str, disturb: Callable[[str], None]) -> dict[str, str]:
    client.models.create(model, recipe=RECIPE, architecture="small-cnn")
    (_, first), (_, second) = digits.archives()[:2]
    jobs = [client.submit(model, first, recipe=QUICK).id, client.submit(model, second).id]
    disturb(jobs[1])
    for job in jobs:
        end = client.wait(job)
        assert end.state == "succeeded", end
    parts = client.get(f"/v1/models/{model}/versions/2")["parts"]
    return {part["name"]: part["sha256"] for part in parts}


def mid_epoch(client: Rest, job: str) -> None:
    """Return while the job trains, some steps after a snapshot."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        events = client.items(f"/v1/jobs/{job}/events")
        if any(event["type"] == "snapshot" for event in events):
            return
        assert not client.get(f"/v1/jobs/{job}")["is_terminal"], "too fast to be killed"
        time.sleep(0.05)
    raise AssertionError(f"{job} wrote no snapshot")


def process(running: service.Service, module: str, *, child: bool = False) -> psutil.Process:
    """The process that runs `module`; with `child`, the first that it forked."""
    for found in psutil.Process(running.process.pid).children(recursive=True):
        line = found.cmdline()
        parent = found.parent()
        forked = parent is not None and parent.cmdline() == line
        if module in line and forked == child:
            return found
    raise AssertionError(f"no process runs {module}")


def left_over(running: service.Service) -> list[str]:
    """Snapshots, archives and scratch files that are still there some seconds after the last job."""
    deadline = time.monotonic() + 15
    while True:
        store = running.data_dir / "store"
        left = [path for name in ("snapshots", "uploads") for path in files_under(store / name)]
        left += [str(path) for path in (running.data_dir / "spool").iterdir()]
        left += [path for path in files_under(running.data_dir / "work") if path.endswith(".safetensors")]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def files_under(folder: Path) -> list[str]:
    """All files below a folder from which a worker may delete at the same time."""
    return [str(Path(at, name)) for at, _, names in os.walk(folder) for name in names]


@pytest.mark.campaign  # tests/faults/test_worker_deaths.py does it without HTTP
def test_a_killed_job_process_changes_no_bit(running, client, undisturbed):
    def disturb(job: str) -> None:
        mid_epoch(client, job)
        process(running, "worker.zygote", child=True).kill()

    assert learn(client, "child-killed", disturb) == undisturbed
    assert left_over(running) == []


@pytest.mark.campaign  # tests/faults/test_worker_deaths.py does it without HTTP
def test_a_killed_worker_changes_no_bit(running, client, undisturbed):
    def disturb(job: str) -> None:
        mid_epoch(client, job)
        process(running, "worker.loop").kill()

    assert learn(client, "worker-killed", disturb) == undisturbed
    assert left_over(running) == []


# tests/faults kills it, too: test_client_transfers.py in mid-upload, test_campaign.py at any moment.
@pytest.mark.campaign
def test_a_killed_api_loses_no_accepted_job_and_keeps_nothing_of_a_broken_upload(
    running, client, undisturbed
):
    client.models.create("broken-upload", recipe=RECIPE, architecture="small-cnn")

    def disturb(_job: str) -> None:
        api = next(
            p
            for p in psutil.Process(running.process.pid).children(recursive=True)
            if "api.app:create_app" in p.cmdline()
        )

        def body():
            yield digits.archives()[0][1][:20_000]
            time.sleep(0.5)
            assert list((running.data_dir / "spool").iterdir()), "the upload is not under way"
            os.kill(api.pid, signal.SIGKILL)
            yield digits.archives()[0][1][20_000:]

        with pytest.raises(httpx2.TransportError):
            client.http.post(
                "/v1/models/broken-upload/tasks", content=body(), headers={"Content-Type": "application/zip"}
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if client.http.get("/readyz").status_code == 200:
                    return
            except httpx2.TransportError:
                time.sleep(0.1)
        raise AssertionError("the API did not come back")

    assert learn(client, "api-killed", disturb) == undisturbed
    assert client.get("/v1/models/broken-upload/tasks")["items"] == []
    assert left_over(running) == []
