"""The curves of a model: accuracy over all tasks, and of single tasks, from version to version."""

from dataclasses import dataclass

from core.protocol.answers.metrics import MetricsOut
from core.requests.lineage import Lineage

TASKS = 10
"""Tasks that have a curve: those that were forgotten most."""


@dataclass(frozen=True)
class Curve:
    """A curve, one value in percent for each version; None: not measured."""

    name: str
    values: list[float | None]


@dataclass(frozen=True)
class Curves:
    """Published versions by rising number, and the curves over them."""

    versions: list[int]
    curves: list[Curve]


def curves(found: MetricsOut, history: Lineage) -> Curves:
    """The curves over the versions of a window."""
    shown = {one.number: one for one in history.versions if one.status != "held"}
    rows = {
        row["version"]: values for row, values in zip(found["rows"], found["accuracy_matrix"], strict=True)
    }
    numbers = sorted(number for number in shown if number in rows and shown[number].acc is not None)
    lost = {one["task"]: one["forgetting"] or 0.0 for one in found["summary"]["per_task"]}
    order = sorted(
        range(len(found["columns"])), key=lambda index: -lost.get(found["columns"][index]["task"], 0.0)
    )
    drawn = [Curve("All tasks", [_percent(shown[number].acc) for number in numbers])]
    for index in sorted(order[:TASKS]):
        column = found["columns"][index]
        name = f"Task {column['task']}" + (f" {column['name']}" if column["name"] else "")
        drawn.append(Curve(name, [_percent(rows[number][index]) for number in numbers]))
    return Curves(numbers, drawn)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)
