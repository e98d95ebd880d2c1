"""What a version must show before it is published and `production` moves to it.

Two checks are made in every model: that nothing which the model learned is lost (`lost_tasks`), and that the line still
goes on from the version's parent (`parent_rolled_back`). Limits that are not set are not checked. A figure that is
undefined (such as forgetting after the first task) passes with value None; one that is no finite number does not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.line.coverage import Lost

LIMITS = ("max_forgetting", "min_new_task", "min_acc", "max_predicted_loss_rise")


@dataclass(frozen=True)
class Place:
    """How a version lies in the line of its model.

    Attributes:
        parent: number of the version that it was learned from.
        head: number of the version that the line goes on from.
        lost: what it lacks of what the model must cover.
        may_lose: whether the model allows that (`allow_lost_classes`).
    """

    parent: int
    head: int
    lost: Lost = field(default_factory=Lost)
    may_lose: bool = False


@dataclass(frozen=True)
class Figures:
    """What is measured of a version.

    Attributes:
        forgetting, acc: of its row of the accuracy matrix.
        new_task: accuracy on its own task.
        predicted_rise: of the earlier tasks' mean loss, where the method forecasts it.
    """

    forgetting: float | None = None
    new_task: float | None = None
    acc: float | None = None
    predicted_rise: float | None = None


def verdict(gate: Mapping[str, Any], figures: Figures, place: Place) -> dict[str, Any]:
    """Judge a version by the model's gate: `{"passed", "checks": [{name, limit, value, passed}]}`.

    The check `lost_tasks` also names `tasks` and `classes`; its value is the number of tasks. Of `parent_rolled_back`
    the value is the version's parent, and the limit the version that the line goes on from.
    """
    values = {
        "max_forgetting": figures.forgetting,
        "min_new_task": figures.new_task,
        "min_acc": figures.acc,
        "max_predicted_loss_rise": figures.predicted_rise,
    }
    checks = []
    for name, value in values.items():
        limit = gate.get(name)
        if limit is None:
            continue
        passed = True
        if isinstance(value, float):
            passed = value <= limit if name.startswith("max_") else value >= limit
            value = value if math.isfinite(value) else None  # JSON has no other numbers
        checks.append({"name": name, "limit": limit, "value": value, "passed": passed})
    lost = place.lost
    checks.append(
        {
            "name": "lost_tasks",
            "limit": None if place.may_lose else 0,
            "value": len(lost.tasks),
            "passed": place.may_lose or not lost.tasks,
            "tasks": list(lost.tasks),
            "classes": list(lost.classes),
        }
    )
    in_line = place.parent == place.head
    checks.append(
        {"name": "parent_rolled_back", "limit": place.head, "value": place.parent, "passed": in_line}
    )
    return {"passed": all(check["passed"] for check in checks), "checks": checks}
