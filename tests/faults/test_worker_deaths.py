"""Real workers and job processes, killed, stopped and frozen: nothing is lost, repeated or left behind."""

import contextlib
import signal
import time
from typing import Any

import psutil
import pytest

Digests = list[list[tuple[str, str]]]


def states(house: Any, job: str) -> list[str]:
    return [event.data["state"] for event in house.events(job) if event.type == "state"]


@pytest.mark.share(4)
def test_a_killed_job_process_is_resumed_and_ends_bit_identical(
    house: Any, batches: list[bytes], undisturbed: Digests
) -> None:
    jobs = [house.submit(batch) for batch in batches]
    with house.worker() as worker:
        house.training(jobs[0])
        house.child(worker).kill()
        assert [house.finished(job).state for job in jobs] == ["succeeded", "succeeded"]
    assert house.job(jobs[0]).attempt == 2
    assert "queued" in states(house, jobs[0])[1:]
    assert house.digests() == undisturbed
    assert house.left_over() == []


@pytest.mark.slow
@pytest.mark.share(4)
def test_a_killed_worker_leaves_no_process_and_another_ends_bit_identical(
    house: Any, batches: list[bytes], undisturbed: Digests, all_gone: Any
) -> None:
    jobs = [house.submit(batch) for batch in batches]
    with house.worker() as worker:
        house.training(jobs[0])
        house.child(worker)
        family = worker.children(recursive=True)
        assert len(family) >= 2
        worker.kill()
        worker.wait()
        assert all_gone(family)
    with house.worker():
        assert [house.finished(job).state for job in jobs] == ["succeeded", "succeeded"]
    assert house.digests() == undisturbed
    assert house.left_over() == []


@pytest.mark.campaign
def test_a_worker_killed_beside_a_best_state_leaves_none_and_another_ends_bit_identical(
    house: Any, batches: list[bytes]
) -> None:
    recipe = {"anytime": True, "validation": 0.2, "optimizer": {"lr": 0.001}}
    undisturbed, killed = (house.submit(batches[0], house.create(name), recipe) for name in ("a", "b"))
    with house.worker() as worker:
        assert house.finished(undisturbed).state == "succeeded"
        house.until(lambda: house.job(killed).anytime and house.job(killed).snapshot)
        worker.kill()
        worker.wait()
    assert [i.key for i in house.store.list(f"anytime/{killed}/")]
    with house.worker():
        assert house.finished(killed).state == "succeeded"
    assert house.job(killed).attempt == 2
    models = [house.job(job).model_id for job in (undisturbed, killed)]
    assert house.digests(models[0]) == house.digests(models[1])
    assert house.left_over() == []


@pytest.mark.slow
@pytest.mark.share(4)
def test_a_terminated_worker_releases_without_a_strike_and_exits_zero(
    house: Any, batches: list[bytes], undisturbed: Digests, all_gone: Any
) -> None:
    job = house.submit(batches[0])
    with house.worker() as worker:
        house.training(job)
        house.child(worker)
        family = worker.children(recursive=True)
        begin = time.monotonic()
        worker.terminate()
        assert worker.wait(10) == 0
        assert time.monotonic() - begin < 5
        assert all_gone(family)
    stopped = house.job(job)
    assert (stopped.state, stopped.strikes, stopped.worker) == ("queued", 0, None)
    with house.worker():
        assert house.finished(job).state == "succeeded"
    assert house.digests() == undisturbed[:1]
    assert house.left_over() == []


@pytest.mark.slow
@pytest.mark.share(4)
def test_a_killed_zygote_costs_nothing(house: Any, batches: list[bytes], undisturbed: Digests) -> None:
    jobs = [house.submit(batch) for batch in batches]
    with house.worker() as worker:
        house.training(jobs[0])
        child = house.child(worker)
        zygote = child.parent()
        assert zygote is not None
        zygote.kill()
        assert [house.finished(job).state for job in jobs] == ["succeeded", "succeeded"]
    assert [house.job(job).attempt for job in jobs] == [1, 1]
    assert house.digests() == undisturbed


@pytest.mark.slow
@pytest.mark.share(4)
def test_a_frozen_worker_that_wakes_after_another_finished_publishes_nothing(
    house: Any, batches: list[bytes], undisturbed: Digests, all_gone: Any
) -> None:
    job = house.submit(batches[0])
    with house.worker() as zombie:
        house.training(job)
        child = house.child(zombie)
        zombie.send_signal(signal.SIGSTOP)
        with house.worker():
            assert house.finished(job).state == "succeeded"
            events = len(house.events(job))
            zombie.send_signal(signal.SIGCONT)
            assert all_gone([child])
            house.until(lambda: "lease lost" in house.log())
            time.sleep(0.5)
        assert len(house.events(job)) == events
    assert house.job(job).attempt == 2
    assert house.digests() == undisturbed[:1]
    assert house.left_over() == []


@pytest.mark.share(4)
def test_a_job_whose_process_always_dies_fails_at_the_third_strike(house: Any, batches: list[bytes]) -> None:
    job = house.submit(batches[0], recipe={"epochs": 2000})
    with house.worker(PERENNIAL_SNAPSHOT_S="1000") as worker:
        killed: set[int] = set()

        def kill() -> bool:
            if house.job(job).state == "failed":
                return True
            for process in psutil.Process(worker.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # zombies too
                    ours = process.ppid() != worker.pid and "worker.zygote" in process.cmdline()
                    if ours and process.pid not in killed:
                        killed.add(process.pid)
                        process.kill()
            return False

        house.until(kill, 40)
    failed = house.job(job)
    assert failed.error["kind"] == "lost"
    assert failed.attempt == 3
    assert house.digests() == []


@pytest.mark.slow
@pytest.mark.share(4)
def test_a_cancelled_job_ends_at_once_and_leaves_nothing(
    house: Any, batches: list[bytes], all_gone: Any
) -> None:
    job = house.submit(batches[0], recipe={"epochs": 5000})
    with house.worker() as worker:
        house.training(job)
        child = house.child(worker)
        house.act(job, "cancel")
        assert house.finished(job, 10).state == "cancelled"
        assert all_gone([child])
    house.sweep()
    assert house.left_over() == []


@pytest.mark.slow
@pytest.mark.share(4)
def test_a_paused_job_resumes_where_it_was(house: Any, batches: list[bytes], undisturbed: Digests) -> None:
    job = house.submit(batches[0])
    with house.worker():
        house.training(job)
        house.act(job, "pause")
        house.until(lambda: house.job(job).state == "paused", 10)
        assert house.job(job).snapshot is not None
        house.act(job, "resume")
        assert house.finished(job).state == "succeeded"
    assert house.digests() == undisturbed[:1]
    assert house.left_over() == []


@pytest.mark.campaign
def test_two_workers_keep_the_order_of_one_model(
    house: Any, batches: list[bytes], undisturbed: Digests
) -> None:
    jobs = [house.submit(batch) for batch in batches]
    with house.worker(), house.worker():
        assert [house.finished(job).version for job in jobs] == [1, 2]
    assert house.digests() == undisturbed


@pytest.mark.campaign
def test_a_lost_part_of_the_store_is_not_published(house: Any, batches: list[bytes]) -> None:
    first = house.submit(batches[0])
    with house.worker():
        assert house.finished(first).state == "succeeded"
    for name, sha256 in house.digests()[0]:
        if name == "head":
            house.store.delete(f"blobs/{sha256[:2]}/{sha256}")
    second = house.submit(batches[1])
    with house.worker():
        failed = house.finished(second, 30)
    assert failed.state == "failed"
    assert house.production() == 1
