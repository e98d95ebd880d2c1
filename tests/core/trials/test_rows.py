"""The rows of trials: what becomes of them when a job fails, waits, moves or ends."""

from typing import Any

import pytest

from core.contract.jobs.trial import TrialMeasurements, TrialScore
from core.database.states import JobAction
from core.database.tables import Task, Trial, TrialFile
from core.errors import WrongState
from core.execution.trials import ClaimedJobTrials
from core.retention import references
from core.scheduling import claim as claims
from core.tasks.tasks import delete_task_data
from core.trials.listing import read_job_trials
from core.trials.trial_selection import choose_best_of_overdue_trials, choose_trial

RECIPES: list[Any] = [{"method": {"name": name}, "seed": 0} for name in ("er", "lwf", "finetune")]


def make_measurements(value: float = 0.5, images: int = 0) -> TrialMeasurements:
    score = TrialScore(source="selection", value=value, error=0.01, images=100)
    return TrialMeasurements(score=score, passed=True, bytes=10, images=images)


def submit_with_trials(desk: Any, model: str, count: int = 2, choose: str = "best") -> str:
    """Add a task whose job has trials."""
    job_id: str = desk.submit(model, choose=choose, recipe=RECIPES[0])
    empty = {"parent": None, "began_s": None, "seconds": None, "figures": None, "error": None}
    with desk.db.write() as session:
        session.add_all(
            Trial(
                job_id=job_id,
                number=number,
                recipe_override=RECIPES[number - 1],
                recipe=RECIPES[number - 1],
                reason="It was listed.",
                state="waiting",
                **empty,
            )
            for number in range(1, count + 1)
        )
    return job_id


def claim_trials(desk: Any) -> ClaimedJobTrials:
    """Claim the next job."""
    return ClaimedJobTrials(desk.db, desk.store, desk.blobs, desk.claim(), 0.0)


def measure_trials(desk: Any, trials: ClaimedJobTrials, *values: float) -> None:
    """Learn the next trials, as far as the rows see it."""
    for value in values:
        number = trials.begin_next_trial()
        assert number is not None
        folder = desk.result({"head": f"head {number}"}, [("new", 1, 5, 10)])
        trials.store_result(number, folder, make_measurements(value))


def list_trial_states(desk: Any, job_id: str) -> list[str]:
    rows = desk.all(Trial, job_id=job_id)
    return [row.state for row in sorted(rows, key=lambda row: row.number)]


def find_used_digests(desk: Any, digests: list[str]) -> set[str]:
    with desk.db.read() as session:
        return references.find_digests_still_in_use(session, digests)


def limit_trial_seconds(desk: Any, job_id: str, seconds: float) -> None:
    """Limit the trials of a job."""
    desk.set(job_id, trial_budget_s=seconds)


def test_a_job_whose_budget_is_used_up_skips_the_trials_that_wait(desk: Any) -> None:
    job_id = submit_with_trials(desk, desk.model(), count=3)
    limit_trial_seconds(desk, job_id, 1e-9)
    trials = claim_trials(desk)
    measure_trials(desk, trials, 0.5)
    assert trials.begin_next_trial() is None
    assert list_trial_states(desk, job_id) == ["measured", "skipped", "skipped"]
    assert trials.choose_trial() == 1
    table = read_job_trials(desk.db, desk.actor, job_id)
    assert table["max_seconds"] == 1e-9
    assert [one["why_lost"] for one in table["items"]][1:] == [
        "It was not run: the budget of 1e-09 s was used up before it."
    ] * 2


def test_trials_within_the_budget_are_all_run(desk: Any) -> None:
    job_id = submit_with_trials(desk, desk.model(), count=2)
    limit_trial_seconds(desk, job_id, 1e6)
    measure_trials(desk, claim_trials(desk), 0.5, 0.4)
    assert list_trial_states(desk, job_id) == ["measured", "measured"]


def test_a_trial_is_run_after_the_budget_if_those_before_failed(desk: Any) -> None:
    job_id = submit_with_trials(desk, desk.model(), count=3)
    limit_trial_seconds(desk, job_id, 1e-9)
    trials = claim_trials(desk)
    assert trials.begin_next_trial() == 1
    claims.fail_claimed_job_or_trial(desk.db, trials.claim, "non-finite", "the loss diverged")
    measure_trials(desk, claim_trials(desk), 0.5)
    assert list_trial_states(desk, job_id) == ["failed", "measured", "waiting"]


def test_a_skipped_trial_cannot_be_chosen(desk: Any) -> None:
    job_id = submit_with_trials(desk, desk.model(), count=3, choose="manual")
    trials = claim_trials(desk)
    measure_trials(desk, trials, 0.5, 0.4)
    limit_trial_seconds(desk, job_id, 1e-9)
    assert trials.begin_next_trial() is None
    assert trials.choose_trial() is None
    with pytest.raises(WrongState, match="Trial 3 is skipped"):
        choose_trial(desk.db, desk.actor, job_id, 3)


@pytest.mark.both_databases
def test_each_trial_lends_the_job_its_recipe_and_the_best_one_does_at_last(desk: Any) -> None:
    job_id = submit_with_trials(desk, desk.model())
    trials = claim_trials(desk)
    measure_trials(desk, trials, 0.5)
    assert trials.begin_next_trial() == 2
    assert trials.begin_next_trial() == 2, "a trial that was begun is resumed"
    assert desk.job(job_id).recipe == RECIPES[1]
    measure_trials(desk, trials, 0.4)
    assert trials.begin_next_trial() is None
    assert trials.choose_trial() == 1
    assert desk.job(job_id).recipe == RECIPES[0]
    folder = trials.copy_trial_result_to_folder(1, desk.folder / "chosen")
    assert (folder / "parts" / "head.safetensors").read_text() == "head 1"
    digests = trials.list_trial_result_digests()
    assert find_used_digests(desk, digests) == set(digests)
    desk.act(job_id, JobAction.CANCEL)
    claims.complete_pause_or_cancellation(desk.db, trials.claim)
    assert find_used_digests(desk, digests) == set()
    assert list_trial_states(desk, job_id) == ["measured", "measured"], "their figures stay"


def test_strikes_count_per_trial_and_the_job_fails_with_its_last_one(desk: Any) -> None:
    job_id = submit_with_trials(desk, desk.model())
    for lost in range(3):
        trials = claim_trials(desk)
        assert trials.begin_next_trial() == 1
        desk.lose(trials.claim)
        assert desk.job(job_id).strikes == (lost + 1) % 3
    assert list_trial_states(desk, job_id) == ["failed", "waiting"]
    trials = claim_trials(desk)
    assert trials.begin_next_trial() == 2
    claims.fail_claimed_job_or_trial(desk.db, trials.claim, "non-finite", "the loss diverged")
    assert (desk.job(job_id).state, desk.job(job_id).error["kind"]) == ("failed", "non-finite")
    assert list_trial_states(desk, job_id) == ["failed", "failed"]


@pytest.mark.parametrize("kind", ["data", "time"])
def test_an_error_that_all_trials_would_meet_fails_the_job(desk: Any, kind: str) -> None:
    job_id = submit_with_trials(desk, desk.model())
    trials = claim_trials(desk)
    trials.begin_next_trial()
    claims.fail_claimed_job_or_trial(desk.db, trials.claim, kind, "too late")
    assert desk.job(job_id).state == "failed"


@pytest.mark.both_databases
def test_the_best_trial_is_chosen_where_nobody_chose_in_time(desk: Any) -> None:
    job_id = submit_with_trials(desk, desk.model(), 3, "manual")
    trials = claim_trials(desk)
    measure_trials(desk, trials, 0.5, 0.9, 0.7)
    assert trials.choose_trial() is None
    assert choose_best_of_overdue_trials(desk.db) == []
    desk.set(job_id, choose_until=1.0)
    assert choose_best_of_overdue_trials(desk.db) == [job_id]
    job = desk.job(job_id)
    assert (job.state, job.chosen_trial, job.choose_until) == ("queued", 2, None)
    again = claim_trials(desk)
    assert again.begin_next_trial() is None
    assert again.choose_trial() == 2


def test_trials_are_learned_again_from_another_version_that_the_line_goes_on_from(
    desk: Any,
) -> None:
    model = desk.model()
    for number in (1, 2):
        desk.submit(model)
        desk.publish(cells=[("new", number, 5, 10)])
    job_id = submit_with_trials(desk, model, 2, "manual")
    trials = claim_trials(desk)
    measure_trials(desk, trials, 0.5, 0.9)
    assert trials.choose_trial() is None
    desk.roll_back(model, 1)
    choose_trial(desk.db, desk.actor, job_id, 1)
    trials = claim_trials(desk)
    assert trials.begin_next_trial() == 1
    assert list_trial_states(desk, job_id) == ["running", "waiting"]
    assert desk.job(job_id).chosen_trial is None
    assert desk.all(TrialFile) == []


def test_results_go_with_the_data_of_an_earlier_task(desk: Any) -> None:
    model = desk.model()
    desk.submit(model)
    desk.publish()
    job_id = submit_with_trials(desk, model, 2, "manual")
    trials = claim_trials(desk)
    measure_trials(desk, trials, 0.5, 0.9)
    digests = trials.list_trial_result_digests()
    assert trials.choose_trial() is None
    delete_task_data(desk.db, desk.store, desk.blobs, desk.actor, model, 1)
    assert list_trial_states(desk, job_id) == ["waiting", "waiting"]
    assert desk.state(job_id) == "queued"
    assert find_used_digests(desk, digests) == set()
    assert not any(desk.blobs.has(digest) for digest in digests)
    assert desk.all(Task, number=2)[0].data_deleted_at is None
