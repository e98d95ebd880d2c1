"""Workers that die while they check a whole batch: it is checked again, and nothing of it stays."""

import signal

import pytest

from tests.faults.conftest import PATIENCE_S, Backend


@pytest.mark.campaign  # tests/core/execution/test_added_kind.py kills one of any kind
@pytest.mark.slow
def test_a_check_whose_worker_was_killed_is_begun_again_and_starts_no_learning(
    shared: Backend, batches: list[bytes]
) -> None:
    model, worker = shared.create(), shared.standing_worker()
    shared.arm("ingest-decoded")
    job = shared.check(model, batches[0])
    assert worker.wait(PATIENCE_S) == -signal.SIGKILL
    shared.end_lease(job)
    shared.standing_worker()
    done = shared.is_run_finished(job)
    assert (done.state, done.attempt, done.strikes) == ("succeeded", 2, 1)
    assert done.report["valid"] is True and done.report["checked"] == "images"
    assert not shared.has_logged("job process", job=job)
    shared.until(lambda: shared.job(job).archive_key is None)
    shared.await_nothing_left(model)


@pytest.mark.campaign
def test_a_check_that_kills_its_worker_three_times_fails_and_its_upload_goes(
    shared: Backend, batches: list[bytes]
) -> None:
    model = shared.create()
    job = shared.check(model, batches[0])
    for _ in range(3):
        shared.arm("ingest-decoded")
        assert shared.standing_worker().wait(PATIENCE_S) == -signal.SIGKILL
        shared.end_lease(job)
    shared.standing_worker()
    done = shared.is_run_finished(job)
    assert (done.state, done.error["code"]) == ("failed", "job-lost")
    shared.await_nothing_left(model)
    assert shared.job(job).archive_key is None
    assert shared.is_run_finished(shared.submit(model, batches[0])).state == "succeeded"
