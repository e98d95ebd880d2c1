"""Progress: events in order, the newest in the job's row, speed and time left, only under the
fence.
"""

from typing import Any

import pytest

from core.contract.jobs.job_event import DoneEvent, LogEvent, MetricEvent, PhaseEvent, ProgressEvent
from core.database.tables import StoredJobEvent
from core.errors import LeaseLost
from core.execution.progress import replace_non_finite_in_json, store_job_process_events


def build_step_event(number: int, images: int, **more: Any) -> ProgressEvent:
    usual = {"phase": "train", "epoch": 1, "total_steps": 100, "loss": 0.5}
    return ProgressEvent(step=number, images=images, **{**usual, **more})


def test_events_are_rows_in_order_and_the_newest_progress_is_in_the_job(desk: Any) -> None:
    job_id, claim = desk.begin()
    store_job_process_events(
        desk.db,
        claim,
        [
            PhaseEvent(phase="train"),
            build_step_event(1, 32),
            MetricEvent(name="loss", step=1, value=0.5),
            LogEvent(level="info", message="hello"),
            build_step_event(2, 64),
        ],
    )
    events = [e for e in desk.all(StoredJobEvent, job_id=job_id) if e.type != "state"][
        1:
    ]  # after the claim's line
    assert [event.type for event in events] == ["progress", "progress", "metric", "log", "progress"]
    assert events[2].data == {"name": "loss", "step": 1, "value": 0.5}
    progress = desk.job(job_id).progress
    assert (progress["phase"], progress["step"], progress["total_steps"]) == ("train", 2, 100)


@pytest.mark.both_databases
def test_speed_and_time_left_follow_from_the_database_clock(desk: Any) -> None:
    job_id, claim = desk.begin()
    store_job_process_events(desk.db, claim, [build_step_event(10, 1000)])
    assert desk.job(job_id).progress["images_per_s"] is None
    progress = desk.job(job_id).progress
    desk.set(job_id, progress={**progress, "at": progress["at"] - 2})
    store_job_process_events(desk.db, claim, [build_step_event(20, 2000)])
    progress = desk.job(job_id).progress
    assert progress["images_per_s"] == pytest.approx(500, rel=0.2)
    assert progress["eta_s"] == pytest.approx(16, rel=0.2)  # 80 steps of 100 images


def test_a_new_phase_starts_its_counts_again(desk: Any) -> None:
    job_id, claim = desk.begin()
    store_job_process_events(desk.db, claim, [build_step_event(10, 1000)])
    store_job_process_events(desk.db, claim, [PhaseEvent(phase="evaluate")])
    progress = desk.job(job_id).progress
    assert progress["phase"] == "evaluate"
    assert "step" not in progress
    assert progress["images_per_s"] is None


def test_decoding_has_the_same_shape_as_training(desk: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False)
    event = ProgressEvent(phase="validate", step=5, total_steps=10, images=5)
    store_job_process_events(desk.db, desk.claim(), [event])
    progress = desk.job(job_id).progress
    assert (progress["phase"], progress["step"], progress["total_steps"]) == ("validate", 5, 10)


def test_each_batch_is_one_revision(desk: Any) -> None:
    job_id, claim = desk.begin()
    before = desk.job(job_id).revision
    store_job_process_events(desk.db, claim, [build_step_event(1, 1), build_step_event(2, 2)])
    assert desk.job(job_id).revision == before + 1


def test_other_events_are_left_out(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    store_job_process_events(desk.db, desk.claim(), [DoneEvent(path="/x")])
    assert [event.type for event in desk.all(StoredJobEvent, job_id=job_id)] == [
        "log",
        "state",
    ]  # of the claim


def test_a_zombie_cannot_write_progress(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    zombie = desk.claim("zombie")
    desk.lose(zombie)
    desk.claim("owner")
    count = len(desk.all(StoredJobEvent, job_id=job_id))
    with pytest.raises(LeaseLost):
        store_job_process_events(desk.db, zombie, [build_step_event(1, 1)])
    assert len(desk.all(StoredJobEvent, job_id=job_id)) == count
    assert desk.job(job_id).progress == {}


def test_numbers_that_json_does_not_have_become_null(desk: Any) -> None:
    job_id = desk.submit(desk.model())
    store_job_process_events(desk.db, desk.claim(), [build_step_event(1, 1, loss=float("nan"))])
    assert desk.job(job_id).progress["loss"] is None
    assert replace_non_finite_in_json({"a": [1.0, float("inf")], "b": "x"}) == {
        "a": [1.0, None],
        "b": "x",
    }


def read_later_messages(desk: Any, job_id: str) -> list[str]:
    return desk.messages(job_id)[1:]


def test_a_finished_epoch_is_a_line_with_loss_and_speed(desk: Any) -> None:
    job_id, claim = desk.begin()
    store_job_process_events(desk.db, claim, [build_step_event(10, 1000, epochs=2)])
    desk.set(
        job_id, progress={**desk.job(job_id).progress, "at": desk.job(job_id).progress["at"] - 2}
    )
    store_job_process_events(
        desk.db,
        claim,
        [build_step_event(50, 5000, epochs=2), build_step_event(51, 5100, epochs=2, epoch=2)],
    )
    (line,) = read_later_messages(desk, job_id)
    assert line.startswith("Epoch 1 of 2, loss 0.5, ") and line.endswith(" images/s.")
    stored = [e.data for e in desk.all(StoredJobEvent, job_id=job_id, type="progress")]
    assert not [data for data in stored if "epochs" in data]


@pytest.mark.parametrize(
    ("epochs", "lines"),
    [(1, 1), (20, 20), (21, 11), (400, 20), pytest.param(10_000, 20, marks=pytest.mark.campaign)],
)
def test_a_long_job_has_no_longer_a_log(desk: Any, epochs: int, lines: int) -> None:
    job_id = desk.submit(desk.model())
    reports = [
        build_step_event(
            number, number, epoch=(number + 1) // 2, epochs=epochs, total_steps=2 * epochs
        )
        for number in range(1, 2 * epochs + 1)
    ]
    claim = desk.claim()
    for at in range(0, len(reports), 5000):
        store_job_process_events(desk.db, claim, reports[at : at + 5000])
    told = read_later_messages(desk, job_id)
    assert len(told) == lines
    assert told[-1].startswith(f"Epoch {epochs:,} of {epochs:,}")
