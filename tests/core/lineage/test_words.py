"""Sentences about a version that is held."""

from typing import Any

from core.contract.gate import GateCheck, Verdict
from core.lineage import words


def fail_check(name: Any, detail: str, passed: bool = False) -> GateCheck:
    return {"name": name, "limit": 0.1, "value": 0.0, "passed": passed, "detail": detail}


def judge(*checks: GateCheck) -> Verdict:
    return {"passed": False, "checks": list(checks)}


FORGOTTEN = fail_check("forgotten", "It gets 9 images wrong.")
LOST = fail_check("class_lost", "It lost cat.")
DRIFTED = fail_check("drifted", "It gets 5 images of task 2 wrong.")
BLANK = fail_check("learned_nothing", "It gets 0 of 9 right.")


def test_of_several_checks_that_see_one_loss_the_most_telling_is_the_reason() -> None:
    told = words.explain_held_version(4, judge(FORGOTTEN, LOST, DRIFTED))
    assert told == (
        "Version 4 is held by its gate: it lost cat; the checks forgotten and drifted fail too."
    )


def test_a_check_that_sees_something_else_stays_a_reason() -> None:
    told = words.explain_held_version(4, judge(FORGOTTEN, DRIFTED, BLANK))
    assert told == (
        "Version 4 is held by its gate: it gets 9 images wrong; it gets 0 of 9 right; "
        "the check drifted fails too."
    )


def test_passed_checks_are_no_reasons() -> None:
    passed = fail_check("class_lost", "It lost nothing.", passed=True)
    told = words.explain_held_version(4, judge(passed, FORGOTTEN))
    assert told == "Version 4 is held by its gate: it gets 9 images wrong."


def test_all_failed_checks_are_listed_in_sentences() -> None:
    listed = words.list_failed_gate_checks(judge(FORGOTTEN, LOST))
    assert listed == ["It gets 9 images wrong.", "It lost cat."]
