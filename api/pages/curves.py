"""A model's accuracy curves over its versions: all tasks together, and single tasks."""

from dataclasses import dataclass

from core.protocol.answers.metrics import MetricsOut
from core.requests.lineage import Lineage

TASKS = 10
"""Maximum number of tasks with a curve: those with the most forgetting."""


@dataclass(frozen=True)
class Curve:
    """A curve with one value in percent per version; None: not measured."""

    name: str
    values: list[float | None]


@dataclass(frozen=True)
class Curves:
    """Published versions in ascending order, and the curves over them."""

    versions: list[int]
    curves: list[Curve]


def build_curves(matrix: MetricsOut, history: Lineage) -> Curves:
    """Return the curves over a window of versions."""
    published = {one.number: one for one in history.versions if one.status != "held"}
    rows = {
        row["version"]: values
        for row, values in zip(matrix["rows"], matrix["accuracy_matrix"], strict=True)
    }
    numbers = sorted(
        number for number in published if number in rows and published[number].acc is not None
    )
    forgetting = {one["task"]: one["forgetting"] or 0.0 for one in matrix["summary"]["per_task"]}
    order = sorted(
        range(len(matrix["columns"])),
        key=lambda index: -forgetting.get(matrix["columns"][index]["task"], 0.0),
    )
    drawn = [Curve("All tasks", [_to_percent(published[number].acc) for number in numbers])]
    for index in sorted(order[:TASKS]):
        column = matrix["columns"][index]
        name = f"Task {column['task']}" + (f" {column['name']}" if column["name"] else "")
        drawn.append(Curve(name, [_to_percent(rows[number][index]) for number in numbers]))
    return Curves(numbers, drawn)


def _to_percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)
