"""Jobs beside the line of their model: claimed by priority, ended in every way, and never taken for
the line's own.
"""

import time
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from core.database.kinds import JobKind
from core.database.states import JobAction, JobState
from core.database.tables import Job, Model, StoredJobEvent, Task, Version
from core.errors import Rejected, StoredObjectDamaged, WrongState
from core.execution.kinds import JobOutcome
from core.jobs import queue
from core.lineage import lineage
from core.lineage.standing import read_unfinished_job_states_by_task
from core.models import memory, model_deletion
from core.retention import damage
from core.scheduling import claim as claims
from core.tasks import tasks
from core.upkeep import consistency, sweep
from core.upkeep.scrub import Scrubber
from core.uploads import upload_removal
from core.usage.usage_sums import sum_usage_by_model
from tests.core.rows import make_part_row


def claim_jobs_in_order(desk: Any, count: int) -> list[str]:
    """Return the next claims of a lone worker. Each of its jobs ends before it claims again."""
    claimed = []
    for _ in range(count):
        found = desk.claim()
        claimed.append(found.job_id)
        claims.fail_claimed_job_or_trial(desk.db, found, "code", "done")
    return claimed


def wait_for_later_job_id() -> None:
    time.sleep(0.002)  # ids of jobs carry milliseconds


@pytest.mark.both_databases
def test_a_check_runs_while_the_line_is_stopped(desk: Any) -> None:
    model = make_stopped_model(desk)
    waiting = desk.submit(model)
    check = desk.check(model)
    assert desk.claim().job_id == check
    assert claims.claim_job(desk.db, "w", 60) is None
    assert desk.state(waiting) is JobState.QUEUED


def test_a_check_runs_beside_a_job_of_the_line_and_keeps_none_waiting(desk: Any) -> None:
    model = desk.model()
    first, check = desk.submit(model), desk.check(model)
    second_check = desk.check(model)
    assert {desk.claim(f"w{n}").job_id for n in range(3)} == {first, check, second_check}
    assert claims.claim_job(desk.db, "w", 60) is None
    assert {desk.state(job) for job in (check, second_check)} == {JobState.VALIDATING}


def test_a_paused_check_keeps_nothing_waiting(desk: Any) -> None:
    model = desk.model()
    check, job = desk.check(model), desk.submit(model)
    desk.act(check, JobAction.PAUSE)
    assert desk.claim().job_id == job
    desk.act(check, JobAction.RESUME)
    assert desk.claim().job_id == check


@pytest.mark.both_databases
def test_checks_do_not_overtake_twice_in_a_row(desk: Any) -> None:
    batches = [desk.submit(desk.model()) for _ in range(3)]
    wait_for_later_job_id()
    model = desk.model()
    checks = []
    for _ in range(4):
        checks.append(desk.check(model))
        wait_for_later_job_id()
    in_turn = [job for both in zip(checks, batches, strict=False) for job in both]
    assert claim_jobs_in_order(desk, 7) == [*in_turn, checks[3]]


def test_an_endless_stream_of_checks_leaves_a_batch_every_second_turn(desk: Any) -> None:
    model = desk.model()
    batches = [desk.submit(model) for _ in range(5)]
    learned = 0
    for _ in range(10):
        wait_for_later_job_id()
        desk.check(model)
        learned += claim_jobs_in_order(desk, 1)[0] in batches
    assert learned == 5


def test_a_check_that_overtakes_nothing_uses_up_no_turn(desk: Any) -> None:
    first = desk.check(desk.model())
    assert claim_jobs_in_order(desk, 1) == [first]
    old = desk.submit(desk.model())
    wait_for_later_job_id()
    check = desk.check(desk.model())
    assert claim_jobs_in_order(desk, 2) == [check, old]


def test_the_checks_of_one_owner_do_not_overtake_the_batches_of_another(desk: Any) -> None:
    one = desk.submit(desk.model())
    desk.new_owner("other")
    wait_for_later_job_id()
    checks = [desk.check(desk.model()) for _ in range(3)]
    assert claim_jobs_in_order(desk, 2) == [one, checks[0]]


def test_a_kind_that_this_code_does_not_know_is_left_to_others(desk: Any) -> None:
    desk.check(desk.model(), kind="unlearn")
    assert claims.claim_job(desk.db, "w", 60) is None


def test_a_finished_check_keeps_its_report_and_its_lines_come_before_its_end(desk: Any) -> None:
    check = desk.check(desk.model())
    done = JobOutcome({"valid": True}, [("info", "All is well.")])
    assert claims.finish_job_without_version(desk.db, desk.claim(), done) is JobState.SUCCEEDED
    assert desk.job(check).report == {"valid": True}
    assert desk.job(check).fence is None
    told = [event.data for event in desk.all(StoredJobEvent, job_id=check)]
    assert told[-2:] == [{"level": "info", "message": "All is well."}, {"state": "succeeded"}]


def test_a_check_that_is_being_cancelled_is_not_finished(desk: Any) -> None:
    check = desk.check(desk.model())
    claim = desk.claim()
    desk.act(check, JobAction.CANCEL)
    with pytest.raises(WrongState):
        claims.finish_job_without_version(desk.db, claim, JobOutcome({"valid": True}))
    assert claims.complete_pause_or_cancellation(desk.db, claim) is JobState.CANCELLED


def test_three_lost_attempts_fail_a_check_and_stop_no_line(desk: Any) -> None:
    model = desk.model(on_failed="stop", on_rejected="stop")
    check = desk.check(model)
    for _ in range(claims.MAX_STRIKES):
        desk.expire(desk.claim())
        assert claims.take_back_jobs_with_expired_lease(desk.db) == [check]
    assert desk.state(check) is JobState.FAILED
    assert desk.job(check).error["code"] == "job-lost"
    job = desk.submit(model)
    assert desk.claim().job_id == job


def test_a_rejected_check_says_why_and_touches_no_task(desk: Any) -> None:
    model = desk.model(on_rejected="stop")
    job, check = desk.submit(model), desk.check(model)
    found = {
        "checked": "images",
        "rejected": [{"path": "a.png", "reason": "no"}],
        "rejected_count": 1,
    }
    claim = next(c for c in (desk.claim(), desk.claim()) if c.job_id == check)
    claims.reject_job(
        desk.db, claim, Rejected("Not one image could be decoded.", extra={"report": found})
    )
    row = desk.job(check)
    assert (row.state, row.error["code"]) == ("rejected", "batch-rejected")
    assert (row.report["valid"], row.report["checked"], row.report["report"]) == (
        False,
        "images",
        found,
    )
    assert desk.task(job).report == {} and not desk.task(job).stops


def test_a_check_that_is_refused_before_decoding_keeps_what_names_and_sizes_showed(
    desk: Any,
) -> None:
    check = desk.check(desk.model())
    claims.reject_job(desk.db, desk.claim(), Rejected("A class that the model does not know."))
    assert (desk.job(check).report["valid"], desk.job(check).report["media_type"]) == (False, "zip")


@pytest.mark.parametrize("by_a_sweep", [False, True])
def test_the_upload_of_a_check_goes_when_it_is_over_and_not_before(
    desk: Any, by_a_sweep: bool
) -> None:
    over, open_one = desk.check(desk.model()), desk.check(desk.model())
    desk.act(over, JobAction.CANCEL)
    if by_a_sweep:
        desk.store.put_bytes("archives/job_nobody", b"left by a crash")
    for _ in range(2):
        desk.remove_unwanted_runs(
            grace_days=0
        ) if by_a_sweep else upload_removal.delete_archives_of_finished_jobs(desk.db, desk.store)
        assert desk.keys("archives/") == [f"archives/{open_one}"]
    assert desk.job(over).archive_key is None
    upload_removal.delete_archive_of_finished_job(desk.db, desk.store, open_one)
    assert desk.keys("archives/") == [f"archives/{open_one}"]


def test_the_upload_of_a_check_is_named_for_the_operator(desk: Any) -> None:
    check = desk.check(desk.model())
    named = {one.key: one for one in consistency.iterate_referenced_objects(desk.db)}
    assert named[f"archives/{check}"].by == f"archive of {check}"
    assert (
        consistency.find_store_inconsistencies(desk.db, desk.store, desk.settings, verify=True)
        == []
    )
    desk.store.put_bytes(f"archives/{check}", b"zap")
    found = consistency.find_store_inconsistencies(desk.db, desk.store, desk.settings, verify=True)
    assert [(drift.kind, drift.object) for drift in found] == [("digest", f"archives/{check}")]


def test_the_scrub_reads_the_uploads_of_checks_and_says_which_is_damaged(desk: Any) -> None:
    model = desk.model()
    check = desk.check(model)
    desk.store.put_bytes(f"archives/{check}", b"zap")
    Scrubber(desk.db, desk.store, desk.settings, "w", lambda _seconds: False).run_scrub_if_due()
    with desk.db.read() as session:
        assert [row.key for row in damage.list_damage_marks(session, 9)] == [f"archives/{check}"]
        error = StoredObjectDamaged("x", extra={"object": f"archives/{check}"})
        assert "Send it again" in damage.reword_damaged_object_error(session, model, error).detail


def test_the_upload_of_a_check_counts_among_the_bytes_of_its_model(desk: Any) -> None:
    model = desk.model()
    desk.submit(model, decoded=False, archive=b"12345")
    check = desk.check(model, b"1234567")

    def sum_archive_bytes() -> int:
        with desk.db.read() as session:
            return int(sum_usage_by_model(session, Model.id == model)[model]["bytes"]["archives"])

    assert sum_archive_bytes() == 12
    desk.act(check, JobAction.CANCEL)
    upload_removal.delete_archive_of_finished_job(desk.db, desk.store, check)
    assert sum_archive_bytes() == 5


def test_deleting_a_tasks_data_passes_over_a_check_that_runs(desk: Any) -> None:
    model = desk.model()
    job, check = desk.submit(model), desk.check(model)
    other = desk.check(model)
    claim = next(c for c in (desk.claim(), desk.claim(), desk.claim()) if c.job_id == job)
    claims.fail_claimed_job_or_trial(desk.db, claim, "code", "no")
    desk.set(other, state="running")
    tasks.delete_task_data(desk.db, desk.store, desk.blobs, desk.actor, model, 1)
    assert desk.task(job).data_deleted_at is not None
    assert (desk.state(check), desk.state(other)) == (JobState.VALIDATING, JobState.RUNNING)


def test_deleting_a_models_memory_leaves_a_check_running(desk: Any) -> None:
    model = desk.model()
    check = desk.check(model)
    desk.claim()
    desk.set(check, state="running")
    (version,) = desk.all(Version, model_id=model)
    with desk.db.write() as session:
        session.add(make_part_row(version.id, "buffer", "0" * 64, 1))
    memory.delete_replay_memory(desk.db, desk.store, desk.blobs, desk.actor, model)
    assert desk.state(check) is JobState.RUNNING


def test_a_deleted_model_cancels_its_checks_and_deletes_their_uploads(desk: Any) -> None:
    model = desk.model()
    running, waiting = desk.check(model), desk.check(model)
    claim = desk.claim()
    assert claim.job_id == running
    model_deletion.delete_model(desk.db, desk.store, desk.blobs, desk.actor, model)
    assert (desk.state(running), desk.state(waiting)) == (JobState.CANCELLING, JobState.CANCELLED)
    assert desk.keys("archives/") == [f"archives/{running}"]
    assert desk.job(waiting).archive_key is None
    claims.complete_pause_or_cancellation(desk.db, claim)
    upload_removal.delete_archive_of_finished_job(desk.db, desk.store, running)
    assert desk.keys("archives/") == []


def make_stopped_model(desk: Any) -> str:
    """Make a model whose lineage waits, since a task failed."""
    model = desk.model(on_failed="stop")
    desk.submit(model)
    claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "no")
    return str(model)


def test_an_open_check_opens_no_task_and_waits_in_no_line(desk: Any) -> None:
    model = make_stopped_model(desk)
    desk.check(model)
    with desk.db.read() as session:
        row = session.get_one(Model, model)
        assert read_unfinished_job_states_by_task(session, model) == {}
        assert lineage.find_runnable_queued_job(session, row) is None


def test_a_check_behind_a_stopped_line_counts_as_waiting_for_a_worker(desk: Any) -> None:
    model = make_stopped_model(desk)
    desk.submit(model)
    assert queue.read_queue_and_service_metrics(desk.db).oldest_s == 0.0
    desk.check(model)
    assert queue.read_queue_and_service_metrics(desk.db).oldest_s > 1000.0


def test_an_unrung_check_is_rung_for(desk: Any) -> None:
    check = desk.check(desk.model())
    assert sweep.find_long_waiting_claimable_jobs(desk.db) == [check]


@pytest.mark.both_databases
def test_the_database_lets_two_checks_and_one_job_of_the_line_run_for_a_model(desk: Any) -> None:
    model = desk.model()
    first, second = desk.submit(model), desk.submit(model)
    for _ in range(2):
        desk.set(desk.check(model), state="running", lease_until=9e9)
    desk.set(first, state="running", lease_until=9e9)
    with pytest.raises(IntegrityError):
        desk.set(second, state="running", lease_until=9e9)


def test_jobs_of_the_line_are_of_the_kind_learn(desk: Any) -> None:
    job = desk.submit(desk.model())
    with desk.db.read() as session:
        assert session.get_one(Job, job).kind == JobKind.LEARN
        assert session.scalars(select(Task)).one().number == session.get_one(Job, job).task_number
