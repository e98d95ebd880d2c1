"""The gate: what a version must show, and what it is not asked where nothing is known."""

from typing import Any

import pytest

from core.contract.figures import VersionFigures
from core.database import measurements
from core.lineage.coverage import MissingTasksAndClasses
from core.lineage.gate import GateMetrics, VersionLineageFacts, judge_gate_metrics
from core.lineage.judgement import read_forecast_loss_rise
from tests.core.desk import Desk

FIGURES = {1: (None, 0.9, 0.9), 2: (0.2, 0.8, 0.75)}
"""Version → forgetting, accuracy on its own task, ACC."""
ALWAYS = ("lost_tasks", "parent_rolled_back")


def judge_version(
    gate: dict[str, Any],
    rise: float | None = None,
    version: int = 2,
    place: VersionLineageFacts | None = None,
) -> dict[str, Any]:
    return judge_gate_metrics(
        gate,
        GateMetrics(*FIGURES[version], rise),
        place or VersionLineageFacts(version - 1, version - 1),
    )


def select_requested_checks(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the checks that the model asks for, without those that are always made."""
    return [check for check in found["checks"] if check["name"] not in ALWAYS]


def test_without_limits_a_version_of_the_line_that_lost_nothing_passes() -> None:
    found = judge_version({})
    assert found["passed"] and [check["name"] for check in found["checks"]] == list(ALWAYS)
    assert judge_version({"max_forgetting": None, "max_predicted_loss_rise": None}, 1e9)["passed"]


def test_a_version_that_lost_a_task_is_held_and_names_it_with_its_classes() -> None:
    found = judge_version(
        {}, place=VersionLineageFacts(1, 1, MissingTasksAndClasses((2, 5), ("hat",)))
    )
    assert not found["passed"]
    assert found["checks"][0] == {
        "name": "lost_tasks", "limit": 0, "value": 2, "passed": False, "tasks": [2, 5], "classes": ["hat"],
    }  # fmt: skip


def test_a_model_that_allows_losses_still_names_them() -> None:
    found = judge_version(
        {}, place=VersionLineageFacts(1, 1, MissingTasksAndClasses((2,), ("hat",)), may_lose=True)
    )
    assert found["passed"] and found["checks"][0]["tasks"] == [2]


def test_a_version_whose_parent_the_line_has_left_is_held() -> None:
    found = judge_version({}, place=VersionLineageFacts(2, 1))
    assert not found["passed"]
    assert found["checks"][1] == {
        "name": "parent_rolled_back",
        "limit": 1,
        "value": 2,
        "passed": False,
    }


@pytest.mark.parametrize(
    ("name", "passing", "failing", "value"),
    [
        ("max_forgetting", 0.25, 0.1, 0.2),
        ("min_new_task", 0.8, 0.9, 0.8),
        ("min_acc", 0.7, 0.8, 0.75),
        ("max_predicted_loss_rise", 12.5, 12.0, 12.5),
    ],
)
def test_each_limit_holds_what_is_beyond_it(
    name: str, passing: float, failing: float, value: float
) -> None:
    for limit, passed in ((passing, True), (failing, False)):
        found = judge_version({name: limit}, 12.5)
        (check,) = select_requested_checks(found)
        assert (check["name"], check["limit"], check["passed"]) == (name, limit, passed)
        assert check["value"] == pytest.approx(value) and found["passed"] is passed


def test_one_failed_check_holds_the_version() -> None:
    found = judge_version({"min_new_task": 0.5, "max_predicted_loss_rise": 1.0}, 2.0)
    assert {check["name"]: check["passed"] for check in select_requested_checks(found)} == {
        "min_new_task": True,
        "max_predicted_loss_rise": False,
    }
    assert not found["passed"]


@pytest.mark.parametrize("limit", [0.0, 100.0])
def test_a_version_without_a_forecast_passes(limit: float) -> None:
    """As the first task's, and every version of a method that does not forecast."""
    found = judge_version({"max_predicted_loss_rise": limit}, None)
    assert found["passed"] and all(
        check["value"] is None for check in select_requested_checks(found)
    )
    first = judge_version(
        {"max_predicted_loss_rise": limit, "max_forgetting": 0.0}, None, version=1
    )
    assert first["passed"]


def test_a_forecast_of_no_rise_or_of_a_fall_passes_the_strictest_limit() -> None:
    assert judge_version({"max_predicted_loss_rise": 0.0}, 0.0)["passed"]
    assert judge_version({"max_predicted_loss_rise": 0.0}, -3.0)["passed"]


@pytest.mark.parametrize("rise", [float("nan"), float("inf")])
def test_a_forecast_that_is_no_finite_number_does_not_pass(rise: float) -> None:
    found = judge_version({"max_predicted_loss_rise": 1.0}, rise)
    assert not found["passed"] and found["checks"][0]["value"] is None


@pytest.mark.parametrize(
    ("document", "rise"),
    [
        ({}, None),
        ({"forecast": {"predicted": 2, "measured": None, "tasks": {}}}, 2.0),
        ({"forecast": {"predicted": None, "measured": 1.0, "tasks": {}}}, float("inf")),
    ],
)
def test_a_version_tells_its_forecast_and_that_it_was_not_finite(
    desk: Desk, document: dict[str, Any], rise: float | None
) -> None:
    """Results are read with null for what is no finite number."""
    model = desk.model()
    with desk.db.write() as session:
        measurements.insert_measurement_rows(
            session,
            model,
            1,
            measurements.build_measurement_rows(VersionFigures.from_json(document)),
        )
        assert read_forecast_loss_rise(session, model, 1) == rise
