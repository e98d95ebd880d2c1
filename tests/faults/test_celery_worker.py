"""A real Celery worker on a Redis of its own: rings, outages and the orderly end."""

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import redis
from redis_server import RedisServer

from core.jobs.worker_notification import QUEUE, WorkerNotifier
from core.settings import Settings
from tests.faults.conftest import ENDLESS, PATIENCE_S, Backend
from worker import celery_app

pytestmark = [pytest.mark.slow, pytest.mark.services("redis")]

CELERY = (
    *("-m", "celery", "-A", "worker.celery_app", "worker", "-P", "solo"),
    *("--without-gossip", "--without-mingle"),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def rung(
    make_backend: Callable[..., Backend],
    broker: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Backend]:
    """A backend whose standing worker is rung through Redis."""
    made = make_backend(
        tmp_path_factory.mktemp("rung"), {"PERENNIAL_BROKER_URL": broker.url}, worker=CELERY
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def bell(rung: Backend) -> Iterator[WorkerNotifier]:
    made = WorkerNotifier(rung.settings, rung.db)
    yield made
    made.close()


def test_its_log_begins_without_a_banner(rung: Backend) -> None:
    worker = rung.standing_worker()
    rung.until(lambda: f"-{worker.pid}-" in rung.log() and "worker ready" in rung.log())
    assert "[queues]" not in rung.log()


@pytest.mark.campaign  # tests/core/upkeep/test_sweep.py finds jobs that were not rung
def test_a_lost_ring_is_repeated_when_the_broker_is_back(
    rung: Backend, bell: WorkerNotifier, batches: list[bytes], broker: RedisServer
) -> None:
    model, worker = rung.create(), rung.standing_worker()
    first = rung.submit(model, batches[0])
    bell.notify_workers(first)
    assert rung.is_run_finished(first).state == "succeeded"
    with redis.Redis.from_url(broker.url) as queue:
        rung.until(
            lambda: queue.hlen("unacked") == 0
        )  # the worker looks for no more jobs by itself
    broker.stop()
    second = rung.submit(model, batches[1])
    bell.notify_workers(second)
    broker.start()
    assert rung.is_run_finished(second).state == "succeeded"
    assert rung.job(second).attempt == 1
    assert worker.poll() is None
    assert len(rung.digests(model)) == 2
    alive = rung.folder / "worker-alive"
    before = alive.stat().st_mtime
    rung.until(lambda: alive.stat().st_mtime > before)


def test_repeated_rings_run_a_job_once(
    rung: Backend, bell: WorkerNotifier, batches: list[bytes], broker: RedisServer
) -> None:
    model = rung.create()
    job = rung.submit(model, batches[0])
    for _ in range(20):
        bell.notify_workers(job)
    rung.standing_worker()
    assert rung.is_run_finished(job).state == "succeeded"
    with redis.Redis.from_url(broker.url) as queue:
        rung.until(lambda: queue.llen(QUEUE) == 0)
    assert rung.job(job).attempt == 1
    assert len(rung.digests(model)) == 1


@pytest.mark.campaign  # test_worker_deaths.py shows it of the embedded worker
def test_a_terminated_celery_worker_releases_its_job_and_leaves_nothing(
    rung: Backend, bell: WorkerNotifier, batches: list[bytes], all_gone: Any
) -> None:
    model = rung.create()

    def start_endless_job() -> str:
        job = rung.submit(model, batches[0], ENDLESS)
        bell.notify_workers(job)
        return job

    job, process = rung.hold(start_endless_job)
    worker = rung.standing_worker()
    family = worker.children(recursive=True)
    worker.terminate()
    rung.release_stopping(process)
    assert worker.wait(PATIENCE_S) == 0, rung.log()
    assert all_gone(family)
    released = rung.job(job)
    assert (released.state, released.strikes) == ("queued", 0)
    assert released.snapshot is not None
    rung.act(job, "cancel")


def test_a_celery_worker_without_a_broker_ends_with_what_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(celery_app, "settings", Settings(broker_url=""))
    with pytest.raises(SystemExit, match=r"python -m worker\.loop"):
        celery_app._start_worker_early()


@pytest.mark.campaign  # the test before
def test_a_celery_process_without_a_broker_says_what_to_run(backend: Backend) -> None:
    backend.environment["PERENNIAL_BROKER_URL"] = ""
    worker: psutil.Popen = backend._start(CELERY)
    assert worker.wait(PATIENCE_S) != 0
    assert "python -m worker.loop" in backend.log()
