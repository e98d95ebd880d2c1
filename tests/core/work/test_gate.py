"""The gate: what a version must show, and what it is not asked where nothing is known."""

from typing import Any

import pytest

from core.matrix import Row
from core.work.gate import verdict
from core.work.result import JobResult

ROWS = [Row(0, None, None), Row(1, 1, 0), Row(2, 2, 1)]
CELLS = {(1, 1): (9, 10), (2, 1): (7, 10), (2, 2): (8, 10)}


def judged(gate: dict[str, Any], rise: float | None = None, version: int = 2) -> dict[str, Any]:
    return verdict(gate, ROWS, CELLS, version, "class", rise)


def test_without_limits_every_version_passes() -> None:
    assert judged({}) == {"passed": True, "checks": []}
    assert judged({"max_forgetting": None, "max_predicted_loss_rise": None}, 1e9)["passed"]


@pytest.mark.parametrize(
    ("name", "passing", "failing", "value"),
    [
        ("max_forgetting", 0.25, 0.1, 0.2),
        ("min_new_task", 0.8, 0.9, 0.8),
        ("min_acc", 0.7, 0.8, 0.75),
        ("max_predicted_loss_rise", 12.5, 12.0, 12.5),
    ],
)
def test_each_limit_holds_what_is_beyond_it(name: str, passing: float, failing: float, value: float) -> None:
    for limit, passed in ((passing, True), (failing, False)):
        found = judged({name: limit}, 12.5)
        (check,) = found["checks"]
        assert (check["name"], check["limit"], check["passed"]) == (name, limit, passed)
        assert check["value"] == pytest.approx(value) and found["passed"] is passed


def test_one_failed_check_holds_the_version() -> None:
    found = judged({"min_new_task": 0.5, "max_predicted_loss_rise": 1.0}, 2.0)
    assert {check["name"]: check["passed"] for check in found["checks"]} == {
        "min_new_task": True,
        "max_predicted_loss_rise": False,
    }
    assert not found["passed"]


@pytest.mark.parametrize("limit", [0.0, 100.0])
def test_a_version_without_a_forecast_passes(limit: float) -> None:
    """As the first task's, and every version of a method that does not forecast."""
    found = judged({"max_predicted_loss_rise": limit}, None)
    assert found["passed"] and all(check["value"] is None for check in found["checks"])
    first = judged({"max_predicted_loss_rise": limit, "max_forgetting": 0.0}, None, version=1)
    assert first["passed"]


def test_a_forecast_of_no_rise_or_of_a_fall_passes_the_strictest_limit() -> None:
    assert judged({"max_predicted_loss_rise": 0.0}, 0.0)["passed"]
    assert judged({"max_predicted_loss_rise": 0.0}, -3.0)["passed"]


@pytest.mark.parametrize("rise", [float("nan"), float("inf")])
def test_a_forecast_that_is_no_finite_number_does_not_pass(rise: float) -> None:
    found = judged({"max_predicted_loss_rise": 1.0}, rise)
    assert not found["passed"] and found["checks"][0]["value"] is None


@pytest.mark.parametrize(
    ("document", "rise"),
    [
        ({}, None),
        ({"forecast": {"predicted": 2, "measured": None, "tasks": {}}}, 2.0),
        ({"forecast": {"predicted": None, "measured": 1.0, "tasks": {}}}, float("inf")),
    ],
)
def test_a_result_tells_its_forecast_and_that_it_was_not_finite(
    document: dict[str, Any], rise: float | None
) -> None:
    """Results are read with null for what is no finite number."""
    assert JobResult(document, [], []).predicted_rise == rise
