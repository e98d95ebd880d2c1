"""A real Celery worker on a Redis of its own: rings, outages and the orderly end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.doorbell import Doorbell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def celery_worker(tmp_path: Path) -> Iterator[Callable[..., psutil.Popen]]:
    """Starts `celery worker` with an environment; all are ended afterwards."""
    started: list[psutil.Popen] = []

    def start(environment: dict[str, str]) -> psutil.Popen:
        with (tmp_path / "worker.log").open("ab") as log:
            process = psutil.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "worker.celery_app", "worker", "-P", "solo"),
                    *("--without-gossip", "--without-mingle"),
                ],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def scale(house: Any, redis_server: Any) -> Iterator[Any]:
    """A house whose workers are rung through Redis."""
    house.environment["PERENNIAL_BROKER_URL"] = redis_server.url
    house.settings.broker_url = redis_server.url
    house.bell = Doorbell(house.settings, house.db)
    yield house
    house.bell.close()


@pytest.mark.slow
def test_a_ring_starts_a_job_and_a_lost_ring_is_repeated(
    scale: Any, celery_worker: Any, batches: list[bytes], redis_server: Any, undisturbed: Any
) -> None:
    first = scale.submit(batches[0])
    scale.bell.ring(first)
    worker = celery_worker(scale.environment)
    assert scale.finished(first).state == "succeeded"
    time.sleep(0.5)  # the worker has looked once more and waits for a ring
    redis_server.stop()
    second = scale.submit(batches[1])
    begin = time.monotonic()
    scale.bell.ring(second)
    assert time.monotonic() - begin < 1  # a ring must not wait for the broker
    time.sleep(1.0)
    assert scale.job(second).state == "queued"
    redis_server.start()
    assert scale.finished(second).state == "succeeded"
    assert scale.job(second).attempt == 1
    assert worker.poll() is None
    assert scale.digests() == undisturbed
    assert (scale.folder / "worker-alive").stat().st_mtime > time.time() - 10


@pytest.mark.slow
def test_a_terminated_celery_worker_releases_its_job_and_leaves_nothing(
    scale: Any, celery_worker: Any, batches: list[bytes], all_gone: Any
) -> None:
    job = scale.submit(batches[0], recipe={"epochs": 5000})
    scale.bell.ring(job)
    worker = celery_worker(scale.environment)
    scale.training(job)
    family = worker.children(recursive=True)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0, scale.log()
    assert all_gone(family)
    released = scale.job(job)
    assert (released.state, released.strikes) == ("queued", 0)
    assert released.snapshot is not None


@pytest.mark.slow
def test_repeated_rings_run_a_job_once(scale: Any, celery_worker: Any, batches: list[bytes]) -> None:
    job = scale.submit(batches[0])
    for _ in range(20):
        scale.bell.ring(job)
    for _ in range(2):
        celery_worker(scale.environment)
    assert scale.finished(job).state == "succeeded"
    time.sleep(2)
    assert scale.job(job).attempt == 1
    assert len(scale.digests()) == 1


def test_a_celery_worker_without_a_broker_says_what_to_run(celery_worker: Any, tmp_path: Path) -> None:
    worker = celery_worker({"PERENNIAL_DATA_DIR": str(tmp_path), "PERENNIAL_BROKER_URL": ""})
    assert worker.wait(30) != 0
    assert "python -m worker.loop" in (tmp_path / "worker.log").read_text()
