"""The promise of a model, kept by a version, and the gate that asks for it."""

from typing import Any

import pytest

from core.lineage.confident_predictions import choose_threshold_for_promised_precision
from core.lineage.gate import GateMetrics, VersionLineageFacts, judge_gate_metrics

CURVE = [
    {"probability": probability, "images": images, "right": right}
    for probability, images, right in ((0.9, 100, 100), (0.6, 150, 149), (0.4, 300, 240))
]


class Stored:
    """Stands for a session that finds one measurement, or none."""

    def __init__(self, detail: dict[str, Any] | None) -> None:
        self._detail = detail

    def get(self, table: object, key: object) -> Any:
        return None if self._detail is None else type("Row", (), {"detail": self._detail})


class Promising:
    id = "mdl_x"

    def __init__(self, precision: float | None) -> None:
        self.answers = None if precision is None else {"precision": precision}


@pytest.mark.parametrize(
    ("precision", "detail", "found"),
    [
        (None, {"curve": CURVE}, None),
        (0.95, {"curve": CURVE}, (0.6, 150, 149, 300, 59)),
        (0.99, {"curve": CURVE}, (None, 0, 0, 300, 299)),
        (0.95, {"error": 0.1}, (None, 0, 0, 0, 59)),
        (0.95, None, (None, 0, 0, 0, 59)),
    ],
    ids=[
        "no promise",
        "kept",
        "cannot be kept",
        "measured before there was a curve",
        "not measured",
    ],
)
def test_what_a_version_keeps(
    precision: float | None, detail: dict[str, Any] | None, found: Any
) -> None:
    told = choose_threshold_for_promised_precision(Stored(detail), Promising(precision), 1)  # type: ignore[arg-type]
    names = ("threshold", "covered", "right", "images", "needed")
    assert (None if told is None else tuple(told[name] for name in names)) == found  # type: ignore[literal-required]


@pytest.mark.parametrize(
    ("value", "passed"), [(0.5, True), (0.4, False), (0.0, False), (None, True)]
)
def test_the_gate_asks_for_coverage(value: float | None, passed: bool) -> None:
    found = judge_gate_metrics(
        {"min_coverage": 0.5}, GateMetrics(coverage=value), VersionLineageFacts(0, 0)
    )
    check = found["checks"][0]
    assert (check["name"], check["value"], check["passed"]) == ("min_coverage", value, passed)
