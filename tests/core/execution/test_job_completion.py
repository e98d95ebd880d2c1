"""Progress of a whole job: weighted by the costs of the last one, never falling, with the time
left.
"""

from typing import Any

import pytest

from core.contract.jobs.job_event import AliveEvent, JobEvent, PhaseEvent, ProgressEvent
from core.database.states import JobState
from core.database.tables import StoredJobEvent
from core.execution import job_completion
from core.execution.progress import store_job_process_events
from core.jobs.job_response import job_to_json
from core.scheduling.claim import JobClaim

PHASES = (
    "validate",
    "prepare",
    "measure",
    "inspect",
    "train",
    "consolidate",
    "evaluate",
    "publish",
)


def build_step_event(number: int, phase: str = "train") -> ProgressEvent:
    return ProgressEvent(phase=phase, step=number, total_steps=100, images=number)


def store_event_after(
    desk: Any, claim: JobClaim, event: JobEvent, *, after_s: float = 0.0
) -> dict[str, Any]:
    """Store an event that comes some seconds after the last one, and return the job's progress."""
    progress = desk.job(claim.job_id).progress
    if progress:
        moved = {name: progress[name] - after_s for name in ("at", "heard_at") if name in progress}
        desk.set(claim.job_id, progress={**progress, **moved})
    store_job_process_events(desk.db, claim, [event])
    found: dict[str, Any] = desk.job(claim.job_id).progress
    return found


def create_succeeded_job(desk: Any, model: str, costs: dict[str, float]) -> str:
    """Create a job that has succeeded, and return its id."""
    job: str = desk.begin(model)[0]
    desk.set(
        job,
        state=str(JobState.SUCCEEDED),
        progress={"phase": "publish", "costs": costs},
        lease_until=None,
    )
    return job


def test_the_seconds_of_each_phase_are_kept(desk: Any) -> None:
    _, claim = desk.begin()
    store_event_after(desk, claim, PhaseEvent(phase="measure"))
    store_event_after(desk, claim, build_step_event(1), after_s=7)
    store_event_after(desk, claim, build_step_event(50), after_s=20)
    costs = store_event_after(desk, claim, PhaseEvent(phase="evaluate"), after_s=30)["costs"]
    assert {name: round(seconds) for name, seconds in costs.items()} == {"measure": 7, "train": 50}


def test_the_seconds_between_two_attempts_belong_to_no_phase(desk: Any) -> None:
    _, claim = desk.begin()
    store_event_after(desk, claim, build_step_event(1))
    desk.lose(claim)
    again = desk.claim("other")
    progress = store_event_after(desk, again, build_step_event(2), after_s=500)
    assert progress["costs"].get("train", 0.0) < 100


def test_phases_weigh_what_they_cost_the_last_time(desk: Any) -> None:
    model = desk.model()
    create_succeeded_job(desk, model, {"validate": 10, "train": 30, "evaluate": 60})
    _, claim = desk.begin(model)
    store_event_after(desk, claim, build_step_event(100, "validate"))
    progress = store_event_after(desk, claim, build_step_event(50))
    assert progress["done"] == pytest.approx(0.25, abs=0.03)
    assert progress["left_s"] == pytest.approx(75, rel=0.1)


def test_a_slow_first_phase_does_not_stretch_the_time_left(desk: Any) -> None:
    model = desk.model()
    create_succeeded_job(desk, model, {"prepare": 2, "train": 30, "evaluate": 10})
    _, claim = desk.begin(model)
    store_event_after(desk, claim, PhaseEvent(phase="prepare"))
    progress = store_event_after(
        desk, claim, build_step_event(0), after_s=12
    )  # its weights were fetched
    assert progress["left_s"] == pytest.approx(40, rel=0.1)


def test_a_last_job_that_cost_nearly_nothing_gives_a_share(desk: Any) -> None:
    model = desk.model()
    create_succeeded_job(desk, model, {"validate": 0.0, "train": 0.05})
    _, claim = desk.begin(model)
    store_event_after(desk, claim, PhaseEvent(phase="validate"))
    progress = store_event_after(desk, claim, PhaseEvent(phase="evaluate"), after_s=3)
    assert 0 < progress["done"] < 1


def test_a_larger_batch_is_expected_to_take_longer_but_for_the_evaluation(desk: Any) -> None:
    model = desk.model()
    first = create_succeeded_job(desk, model, {"train": 30, "evaluate": 60})
    job, claim = desk.begin(model)
    images = sum(desk.task(first).classes.values())
    with desk.db.write() as session:
        session.get_one(type(desk.task(job)), desk.task(job).id).classes = {"a": 3 * images}
    expected = store_event_after(desk, claim, PhaseEvent(phase="train"))["expected"]
    assert (expected["train"], expected["evaluate"]) == (90, 60)


def test_a_job_of_another_method_says_nothing_and_more_epochs_take_longer(desk: Any) -> None:
    model = desk.model()
    first = create_succeeded_job(desk, model, {"train": 30})
    desk.set(first, recipe={"method": {"name": "er"}, "epochs": 2})
    job, claim = desk.begin(model)
    desk.set(job, recipe={"method": {"name": "er"}, "epochs": 6})
    assert store_event_after(desk, claim, PhaseEvent(phase="train"))["expected"]["train"] == 90
    desk.set(job, recipe={"method": {"name": "ewc"}, "epochs": 6}, progress={})
    assert not store_event_after(desk, claim, PhaseEvent(phase="train"))["is_measured"]


def test_a_first_job_in_closed_form_spends_its_time_before_it_trains(desk: Any) -> None:
    job, claim = desk.begin()
    desk.set(job, recipe={"method": {"name": "analytic", "adapt": None}, "epochs": 10})
    store_event_after(desk, claim, PhaseEvent(phase="validate"))
    before = store_event_after(desk, claim, PhaseEvent(phase="train"))["done"]
    assert store_event_after(desk, claim, PhaseEvent(phase="consolidate"))["done"] - before < 0.02


def test_the_first_job_of_a_model_has_usual_weights_and_its_time_is_known_when_it_has_run(
    desk: Any,
) -> None:
    _, claim = desk.begin()
    progress = store_event_after(desk, claim, build_step_event(0))
    assert not progress["is_measured"] and progress["left_s"] is None
    progress = store_event_after(desk, claim, build_step_event(50), after_s=60)
    usual = job_completion.USUAL_S["learn"]
    rest = sum(usual[name] for name in ("consolidate", "evaluate", "publish"))
    assert progress["done"] == pytest.approx(30 / (60 + rest), abs=0.01)
    assert progress["left_s"] == pytest.approx(60 + 2 * rest, rel=0.1)


def test_the_share_never_falls_and_is_never_whole_before_the_end(desk: Any) -> None:
    _, claim = desk.begin()
    seen = []
    for phase in PHASES:
        for event in (
            PhaseEvent(phase=phase),
            build_step_event(40, phase),
            build_step_event(20, phase),
            build_step_event(100, phase),
        ):
            seen.append(store_event_after(desk, claim, event, after_s=1)["done"])
    assert seen == sorted(seen) and len(set(seen)) > len(PHASES)
    assert seen[-1] == job_completion.MOST_DONE


def test_a_job_that_goes_on_elsewhere_does_not_fall_back(desk: Any) -> None:
    _, claim = desk.begin()
    before = store_event_after(desk, claim, build_step_event(90))["done"]
    desk.lose(claim)
    again = desk.claim("other")
    assert store_event_after(desk, again, PhaseEvent(phase="prepare"))["done"] == before
    assert store_event_after(desk, again, build_step_event(10))["done"] == before


def test_a_sign_of_life_moves_a_phase_whose_steps_are_not_counted(desk: Any) -> None:
    job, claim = desk.begin()
    first = store_event_after(desk, claim, PhaseEvent(phase="evaluate"))
    events = len(desk.all(StoredJobEvent, job_id=job, type="progress"))
    assert store_event_after(desk, claim, AliveEvent()) == first  # too soon
    later = store_event_after(desk, claim, AliveEvent(), after_s=5)
    assert later["done"] > first["done"] and later["costs"]["evaluate"] >= 5
    (event,) = desk.all(StoredJobEvent, job_id=job, type="progress")[events:]
    assert event.data == {"phase": "evaluate", "done": later["done"], "left_s": later["left_s"]}


def test_a_sign_of_life_before_the_first_phase_says_nothing(desk: Any) -> None:
    job, claim = desk.begin()
    store_job_process_events(desk.db, claim, [AliveEvent()])
    assert desk.job(job).progress == {}


def test_the_last_report_of_a_batch_has_the_share_of_the_job(desk: Any) -> None:
    job, claim = desk.begin()
    store_job_process_events(desk.db, claim, [build_step_event(1), build_step_event(2)])
    first, second = (event.data for event in desk.all(StoredJobEvent, job_id=job, type="progress"))
    assert "done" not in first and second["done"] == desk.job(job).progress["done"]


@pytest.mark.parametrize("phase", ["load", "export", "check"])
def test_a_phase_of_another_kind_of_job_has_a_share_too(desk: Any, phase: str) -> None:
    job, claim = desk.begin()
    desk.set(job, kind="export")
    assert 0 < store_event_after(desk, claim, build_step_event(50, phase))["done"] < 1


def test_a_phase_that_nobody_knows_is_the_whole_job(desk: Any) -> None:
    _, claim = desk.begin()
    assert store_event_after(desk, claim, build_step_event(50, "tidying"))["done"] == 0.5


@pytest.mark.parametrize(
    ("state", "stored", "done"),
    [
        ("queued", {}, 0.0),
        ("validating", {}, 0.0),
        ("running", {"phase": "train", "step": 5, "total_steps": 10, "eta_s": 3.0}, None),
        ("failed", {"phase": "train", "step": 5}, None),
        ("succeeded", {"phase": "evaluate"}, 1.0),
        ("failed", {"phase": "train", "done": 0.4, "left_s": 9.0}, 0.4),
    ],
)
def test_rows_of_older_code_are_answered(
    desk: Any, state: str, stored: dict[str, Any], done: float | None
) -> None:
    job, _ = desk.begin()
    desk.set(job, state=state, progress=stored)
    progress = job_to_json(desk.job(job))["progress"]
    assert (progress["done"], progress["left_s"]) == (done, None)
    assert progress["step"] == stored.get("step")


def test_a_job_that_older_code_began_goes_on(desk: Any) -> None:
    _, claim = desk.begin()
    old = {
        "phase": "train",
        "at": 1.0,
        "step": 5,
        "total_steps": 100,
        "images": 5,
        "images_per_s": None,
    }
    desk.set(claim.job_id, progress=old)
    progress = store_event_after(desk, claim, build_step_event(50))
    assert 0 < progress["done"] < 1 and progress["costs"] == {}
