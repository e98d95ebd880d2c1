"""Sentences about a version that is held."""

from typing import Any

import pytest

from core.contract.gate import GateCheck, Verdict
from core.database.tables import Model, Task
from core.lineage import wording
from core.lineage.standing import TaskStanding


def make_check(name: Any, detail: str, passed: bool = False) -> GateCheck:
    return {"name": name, "limit": 0.1, "value": 0.0, "passed": passed, "detail": detail}


def make_failed_verdict(*checks: GateCheck) -> Verdict:
    return {"passed": False, "checks": list(checks)}


FORGOTTEN = make_check("forgotten", "It gets 9 images wrong.")
LOST = make_check("class_lost", "It lost cat.")
DRIFTED = make_check("drifted", "It gets 5 images of task 2 wrong.")
BLANK = make_check("learned_nothing", "It gets 0 of 9 right.")


def test_of_several_checks_that_see_one_loss_the_most_telling_is_the_reason() -> None:
    told = wording.explain_held_version(4, make_failed_verdict(FORGOTTEN, LOST, DRIFTED))
    assert told == (
        "Version 4 is held by its gate: it lost cat; the checks forgotten and drifted fail too."
    )


def test_a_check_that_sees_something_else_stays_a_reason() -> None:
    told = wording.explain_held_version(4, make_failed_verdict(FORGOTTEN, DRIFTED, BLANK))
    assert told == (
        "Version 4 is held by its gate: it gets 9 images wrong; it gets 0 of 9 right; "
        "the check drifted fails too."
    )


def test_passed_checks_are_no_reasons() -> None:
    passed = make_check("class_lost", "It lost nothing.", passed=True)
    told = wording.explain_held_version(4, make_failed_verdict(passed, FORGOTTEN))
    assert told == "Version 4 is held by its gate: it gets 9 images wrong."


def test_all_failed_checks_are_listed_in_sentences() -> None:
    listed = wording.list_failed_gate_check_sentences(make_failed_verdict(FORGOTTEN, LOST))
    assert listed == ["It gets 9 images wrong.", "It lost cat."]


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (TaskStanding.QUEUED, "which is being learned again."),
        (TaskStanding.RUNNING, "which is being learned again."),
        (TaskStanding.SKIPPED, "which was skipped. Learn it again with "),
        (
            TaskStanding.ROLLED_BACK,
            "which was rolled back: the gate holds a version that lacks it.",
        ),
    ],
)
def test_a_sentence_about_a_missing_task_says_why_it_is_missing(
    standing: TaskStanding, reason: str
) -> None:
    model = Model(name="birds", scenario="class", allow_lost_classes=False)
    task = Task(number=2, name="week-32", classes=["coat"], train_sha256="0" * 64)
    sentence = wording.describe_missing_task(model, task, standing)
    assert sentence.startswith(
        f"The new version will not contain task 2 (“week-32”, class coat), {reason}"
    )
