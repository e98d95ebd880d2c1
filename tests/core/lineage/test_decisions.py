"""Decisions about the lineage of a model, each by a test; `docs/lifecycle.md` says the same in
words.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from core.database.states import JobAction
from core.database.tables import Job, Model, Task, Version
from core.errors import WrongState
from core.jobs import jobs
from core.lineage import lineage
from core.models import attention, model_deletion
from core.publishing.publish import JobVersionStatus, publish_or_hold_job_result
from core.requests.actor import Actor
from core.requests.resources import UseCaseResources
from core.scheduling import claim as claims
from core.tasks import retries, task_decisions
from core.versions import aliases
from tests.core.batches import CATALOGUE
from tests.core.desk import Desk

ROOT = Path(__file__).parents[3]
GATE = {"min_new_task": 0.5}
GOOD, BAD = 9, 1
"""Right answers of ten."""


def make_actor(desk: Desk) -> Actor:
    return Actor(desk.owner, None, "write")


def publish_next_job(desk: Desk, correct: int = GOOD) -> tuple[int, JobVersionStatus]:
    """Run the next job from claim to publication.
    Return its task and the status of the job and version.
    """
    claim = desk.claim()
    result = desk.result({"head": claim.job_id}, [("new", claim.task_number, correct, 10)])
    return claim.task_number, publish_or_hold_job_result(desk.db, desk.store, claim, result)


def make_taught_model(desk: Desk, *batches: str, scenario: str = "class", **values: Any) -> str:
    """Return a model that was taught tasks of these classes.
    Each letter is a class; without letters, each task has classes of its own.
    """
    model = desk.model(scenario, gate=GATE, **values)
    for labels in batches:
        submit_batch(desk, model, labels)
        assert publish_next_job(desk)[1].status == "published"
    return model


def submit_batch(desk: Desk, model: str, labels: str = "") -> str:
    """Submit a batch of the classes that the letters name, and return its job."""
    job = desk.submit(model, gate=GATE)
    if labels:
        with desk.db.write() as session:
            session.get_one(Task, desk.job(job).task_id).classes = {label: 4 for label in labels}
    return job


def relearn_task_again(desk: Desk, model: str, number: int) -> tuple[Any, bool]:
    """Learn a task again with the recipe it had."""
    resources = UseCaseResources(desk.db, desk.blobs, CATALOGUE)
    return task_decisions.relearn_task(resources, make_actor(desk), model, number, None)


def roll_production_back(desk: Desk, model: str) -> None:
    aliases.roll_alias_back(
        desk.db,
        make_actor(desk),
        model,
        "production",
        aliases.AliasMoveReasonAndSeenVersion("worse"),
    )


def list_standings(desk: Desk, model: str) -> list[str | None]:
    return [
        task.standing
        for task in sorted(desk.all(Task, model_id=model), key=lambda task: task.number)
    ]


def read_lost_tasks(desk: Desk, model: str, number: int) -> tuple[list[int], list[str]]:
    """Return the tasks and classes that the gate found lost in a version."""
    (version,) = desk.all(Version, model_id=model, number=number)
    (check,) = [check for check in version.gate["checks"] if check["name"] == "lost_tasks"]
    return check["tasks"], check["classes"]


def read_taught_tasks(desk: Desk, model: str, number: int) -> list[int]:
    (version,) = desk.all(Version, model_id=model, number=number)
    tasks: list[int] = version.manifest.tasks
    return tasks


def list_tasks_that_need_decisions(desk: Desk, model: str) -> dict[int | None, str]:
    """Return the number of each task that waits for a person, with the text of its entry."""
    with desk.db.read() as session:
        entries = attention.list_attention_items(session, [session.get_one(Model, model)])
    return {entry["task"]: entry["detail"] for entry in entries.get(model, [])}


# A cancelled job.


def test_a_cancelled_batch_is_asked_of_no_later_version_and_not_mentioned(desk: Desk) -> None:
    model = make_taught_model(desk, "")
    cancelled = submit_batch(desk, model)
    jobs.apply_job_action(desk.db, make_actor(desk), cancelled, JobAction.CANCEL)
    last = submit_batch(desk, model)
    assert publish_next_job(desk)[1].status == "published"
    assert list_standings(desk, model) == ["learned", "cancelled", "learned"]
    assert read_taught_tasks(desk, model, 2) == [1, 3]
    assert desk.job(last).warnings == []


def test_a_cancelled_batch_that_is_retried_keeps_its_place_before_later_ones(desk: Desk) -> None:
    model = make_taught_model(desk, "")
    cancelled = submit_batch(desk, model)
    jobs.apply_job_action(desk.db, make_actor(desk), cancelled, JobAction.CANCEL)
    submit_batch(desk, model)
    retries.retry_job(desk.db, CATALOGUE, make_actor(desk), cancelled, None)
    assert [publish_next_job(desk)[0] for _ in range(2)] == [2, 3]
    assert read_taught_tasks(desk, model, 3) == [1, 2, 3]


def test_a_cancelled_retry_leaves_a_held_task_held_and_the_line_stopped(desk: Desk) -> None:
    model = make_taught_model(desk, "")
    held = submit_batch(desk, model)
    assert publish_next_job(desk, BAD)[1].status == "held"
    waits = submit_batch(desk, model)
    again, _ = retries.retry_job(desk.db, CATALOGUE, make_actor(desk), held, None)
    jobs.apply_job_action(desk.db, make_actor(desk), again["id"], JobAction.CANCEL)
    assert list_standings(desk, model) == ["learned", "held", None]
    assert claims.claim_job(desk.db, "w", 60.0) is None
    task_decisions.skip_held_task_and_continue_lineage(desk.db, make_actor(desk), model, 2, "later")
    assert desk.claim().job_id == waits


def test_a_cancelled_relearning_leaves_a_task_rolled_back(desk: Desk) -> None:
    model = make_taught_model(desk, "", "")
    roll_production_back(desk, model)
    again, _ = relearn_task_again(desk, model, 2)
    jobs.apply_job_action(desk.db, make_actor(desk), again["id"], JobAction.CANCEL)
    assert list_standings(desk, model) == ["learned", "rolled_back"]
    submit_batch(desk, model)
    assert publish_next_job(desk)[1].status == "held"
    assert read_lost_tasks(desk, model, 3) == ([2], ["2a", "2b"])


def test_a_version_that_was_held_for_a_lost_task_says_when_that_was_learned_again(
    desk: Desk,
) -> None:
    model = make_taught_model(desk, "", "")
    roll_production_back(desk, model)
    submit_batch(desk, model)
    assert publish_next_job(desk)[1].status == "held"
    assert "Learn task 2 again first" in list_tasks_that_need_decisions(desk, model)[3]
    relearn_task_again(desk, model, 2)
    assert publish_next_job(desk)[1].status == "published"
    (detail,) = list_tasks_that_need_decisions(desk, model).values()
    assert "Task 2 was learned again since: learn task 3 again" in detail
    assert "again first" not in detail


# A deleted model.


def test_the_line_of_a_deleted_model_ends_its_running_job_publishes_nothing(desk: Desk) -> None:
    model = make_taught_model(desk, "")
    submit_batch(desk, model)
    submit_batch(desk, model)
    claim = desk.claim()
    result = desk.result({"head": "x"}, [("new", 2, GOOD, 10)])
    model_deletion.delete_model(desk.db, desk.store, desk.blobs, make_actor(desk), model)
    with pytest.raises(WrongState):
        publish_or_hold_job_result(desk.db, desk.store, claim, result)
    claims.complete_pause_or_cancellation(desk.db, claim)
    states = {job.task_number: job.state for job in desk.all(Job, model_id=model)}
    assert states == {1: "succeeded", 2: "cancelled", 3: "cancelled"}
    assert len(desk.all(Version, model_id=model)) == 2
    assert claims.claim_job(desk.db, "w", 60.0) is None


def test_a_held_version_of_a_deleted_model_is_not_judged_again(desk: Desk) -> None:
    model = make_taught_model(desk, "", "")
    roll_production_back(desk, model)
    submit_batch(desk, model)
    assert publish_next_job(desk)[1].status == "held"
    model_deletion.delete_model(desk.db, desk.store, desk.blobs, make_actor(desk), model)
    with desk.db.write() as session:
        row = session.get_one(Model, model)
        row.allow_lost_classes = True
        assert lineage.rejudge_and_publish_held_versions(session, row, desk.db.now(session)) == []


# Scenarios.


def test_in_the_class_scenario_a_task_is_asked_for_though_other_tasks_show_its_classes(
    desk: Desk,
) -> None:
    model = make_taught_model(desk, "ab", "ab")
    roll_production_back(desk, model)
    submit_batch(desk, model, "ab")
    assert publish_next_job(desk)[1].status == "held"
    assert read_lost_tasks(desk, model, 3) == ([2], [])


def test_in_the_data_scenario_a_task_is_not_asked_for_whose_classes_others_show(desk: Desk) -> None:
    model = make_taught_model(desk, "abc", "abc", scenario="data", classes=["a", "b", "c"])
    roll_production_back(desk, model)
    submit_batch(desk, model, "ab")
    assert publish_next_job(desk)[1].status == "published"
    assert read_lost_tasks(desk, model, 3) == ([], [])


def test_in_the_data_scenario_a_class_that_no_other_task_shows_is_asked_for(desk: Desk) -> None:
    model = make_taught_model(desk, "ab", "bc", scenario="data", classes=["a", "b", "c"])
    roll_production_back(desk, model)
    submit_batch(desk, model, "ab")
    assert publish_next_job(desk)[1].status == "held"
    assert read_lost_tasks(desk, model, 3) == ([2], ["c"])


def test_in_the_task_scenario_a_class_of_the_same_name_in_another_task_does_not_stand_in(
    desk: Desk,
) -> None:
    model = make_taught_model(desk, "ab", "ab", scenario="task")
    roll_production_back(desk, model)
    submit_batch(desk, model, "ab")
    assert publish_next_job(desk)[1].status == "held"
    assert read_lost_tasks(desk, model, 3) == ([2], ["a", "b"])


# Held, failed, rolled back.


def test_a_model_that_continues_passes_over_what_its_gate_holds(desk: Desk) -> None:
    model = make_taught_model(desk, "", on_held="continue")
    submit_batch(desk, model)
    submit_batch(desk, model)
    assert [publish_next_job(desk, correct)[1].status for correct in (BAD, GOOD)] == [
        "held",
        "published",
    ]
    assert list_standings(desk, model) == ["learned", "skipped", "learned"]
    assert read_taught_tasks(desk, model, 3) == [1, 3]


def test_a_failed_task_stops_the_line_only_where_the_model_says_so(desk: Desk) -> None:
    for on_failed, stops in (("continue", False), ("stop", True)):
        model = make_taught_model(desk, "", on_failed=on_failed)
        submit_batch(desk, model)
        claims.fail_claimed_job_or_trial(desk.db, desk.claim(), "code", "no")
        submit_batch(desk, model)
        found = claims.claim_job(desk.db, "w", 60.0)
        assert (found is None) is stops
    task_decisions.discard_task(desk.db, make_actor(desk), model, 2, "not needed")
    assert publish_next_job(desk)[1].status == "published"
    assert list_standings(desk, model) == ["learned", "discarded", "learned"]


def test_a_job_whose_parent_was_rolled_back_while_it_ran_is_held(desk: Desk) -> None:
    model = make_taught_model(desk, "", "")
    submit_batch(desk, model)
    claim = desk.claim()
    roll_production_back(desk, model)
    result = desk.result({"head": "x"}, [("new", 3, GOOD, 10)])
    assert publish_or_hold_job_result(desk.db, desk.store, claim, result).status == "held"
    (version,) = desk.all(Version, model_id=model, number=3)
    assert [c["name"] for c in version.gate["checks"] if not c["passed"]] == ["parent_rolled_back"]


def test_after_a_rollback_versions_are_published_and_production_stays_until_it_follows(
    desk: Desk,
) -> None:
    model = make_taught_model(desk, "", "")
    roll_production_back(desk, model)
    task_decisions.discard_task(desk.db, make_actor(desk), model, 2, "worse")
    for number in (3, 4):
        submit_batch(desk, model)
        assert publish_next_job(desk)[1] == JobVersionStatus(number, "published")
        assert desk.aliases(model) == {"production": 1, "latest": number}
    assert read_taught_tasks(desk, model, 4) == [1, 3, 4]
    moved, _ = aliases.let_production_follow_lineage(desk.db, make_actor(desk), model, "production")
    assert (moved["version"], moved["follows"]) == (4, True)


def test_a_held_version_that_only_lacked_a_task_is_published_once_that_is_discarded(
    desk: Desk,
) -> None:
    model = make_taught_model(desk, "", "")
    roll_production_back(desk, model)
    submit_batch(desk, model)
    assert publish_next_job(desk)[1].status == "held"
    task_decisions.discard_task(desk.db, make_actor(desk), model, 2, "worse")
    assert list_standings(desk, model) == ["learned", "discarded", "learned"]
    assert desk.aliases(model) == {"production": 1, "latest": 3}


def test_what_a_promoted_version_lacks_is_passed_over(desk: Desk) -> None:
    model = make_taught_model(desk, "", "")
    roll_production_back(desk, model)
    submit_batch(desk, model)
    assert publish_next_job(desk)[1].status == "held"
    answer, _ = aliases.set_alias(
        desk.db,
        make_actor(desk),
        model,
        "production",
        3,
        aliases.AliasMoveReasonAndSeenVersion("seen and accepted"),
    )
    assert answer["lost_tasks"][0]["lost_classes"] == ["2a", "2b"]
    assert list_standings(desk, model) == ["learned", "skipped", "learned"]
    submit_batch(desk, model)
    assert publish_next_job(desk)[1].status == "published"


def test_a_task_is_learned_again_before_all_that_wait_though_the_line_is_stopped(
    desk: Desk,
) -> None:
    model = make_taught_model(desk, "")
    held = submit_batch(desk, model)
    assert publish_next_job(desk, BAD)[1].status == "held"
    submit_batch(desk, model)
    assert claims.claim_job(desk.db, "w", 60.0) is None
    retries.retry_job(desk.db, CATALOGUE, make_actor(desk), held, None)
    assert [publish_next_job(desk)[0] for _ in range(2)] == [2, 3]
    assert read_taught_tasks(desk, model, 4) == [1, 2, 3]


def test_a_held_version_is_retried_once_the_task_that_it_lacked_is_learned_again(
    desk: Desk,
) -> None:
    model = make_taught_model(desk, "", "")
    roll_production_back(desk, model)
    submit_batch(desk, model)
    task, held = publish_next_job(desk)
    assert (task, held.status) == (3, "held")
    submit_batch(desk, model)
    relearn_task_again(desk, model, 2)
    assert list_standings(desk, model) == ["learned", "rolled_back", "held", None]
    assert publish_next_job(desk)[0] == 2
    assert list_standings(desk, model) == ["learned", "learned", "held", None]
    retries.retry_job(desk.db, CATALOGUE, make_actor(desk), find_held_job(desk, model), None)
    assert [publish_next_job(desk)[0] for _ in range(2)] == [3, 4]
    assert read_taught_tasks(desk, model, 6) == [1, 2, 3, 4]


def test_several_tasks_are_brought_back_one_after_the_other(desk: Desk) -> None:
    model = make_taught_model(desk, "", "", "")
    aliases.roll_alias_back(
        desk.db,
        make_actor(desk),
        model,
        "production",
        aliases.AliasMoveReasonAndSeenVersion("worse"),
        1,
    )
    for number in (3, 2):
        relearn_task_again(desk, model, number)
    assert [
        (task, made.status) for task, made in (publish_next_job(desk), publish_next_job(desk))
    ] == [
        (2, "published"),
        (3, "published"),
    ]
    assert read_taught_tasks(desk, model, 5) == [1, 2, 3]
    assert list_standings(desk, model) == ["learned", "learned", "learned"]


def find_held_job(desk: Desk, model: str) -> str:
    """Return the job whose version is held."""
    return str(next(v.job_id for v in desk.all(Version, model_id=model) if v.status == "held"))


def test_what_the_line_head_was_taught_meanwhile_stays_learned_though_a_retry_is_held(
    desk: Desk,
) -> None:
    """Task 2 is retried, its held version is promoted meanwhile, and the retry is held too: nothing
    is taken back.
    """
    model = make_taught_model(desk, "")
    held = submit_batch(desk, model)
    assert publish_next_job(desk, BAD)[1].status == "held"
    retries.retry_job(desk.db, CATALOGUE, make_actor(desk), held, None)
    aliases.set_alias(
        desk.db,
        make_actor(desk),
        model,
        "production",
        2,
        aliases.AliasMoveReasonAndSeenVersion("seen"),
    )
    assert publish_next_job(desk, BAD)[1].status == "held"
    assert list_standings(desk, model) == ["learned", "learned"]
    assert not desk.all(Task, model_id=model)[1].stops


def test_a_task_whose_images_are_gone_is_not_learned_again_and_the_refusal_has_the_date(
    desk: Desk,
) -> None:
    model = make_taught_model(desk, "", "", training_data_days=0.0)
    roll_production_back(desk, model)
    with pytest.raises(
        WrongState, match=r"went on \d{4}-\d\d-\d\d: send the batch again"
    ) as refused:
        relearn_task_again(desk, model, 2)
    assert refused.value.extra["training_data_deleted_at"] is not None


def test_the_tests_that_the_document_names_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "lifecycle.md").read_text()))
    files = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    missing = {name for name in named if not any(f"def {name}(" in text for text in files.values())}
    assert len(named) > 20 and not missing
