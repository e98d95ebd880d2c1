"""What a version must show before it is published and `production` moves to it.

Two checks are made in every model: that nothing which the model learned is lost (`lost_tasks`), and that the line still
goes on from the version's parent (`parent_rolled_back`). Limits that are not set are not checked. A figure that is
undefined (such as forgetting after the first task) passes with value None; one that is no finite number does not.
"""

import math
from dataclasses import dataclass, field

from core.line.checks import check_losses, describe_visible
from core.line.coverage import Lost
from core.protocol.features import FeatureCount
from core.protocol.gate import GateCheck, GateLimits, GateOut, Limit, Verdict
from core.protocol.losses import Losses


@dataclass(frozen=True)
class Place:
    """How a version lies in the line of its model.

    Attributes:
        parent: number of the version that it was learned from.
        head: number of the version that the line goes on from.
        lost: what it lacks of what the model must cover.
        may_lose: whether the model allows that (`allow_lost_classes`).
        model: id of its model.
    """

    parent: int
    head: int
    lost: Lost = field(default_factory=Lost)
    may_lose: bool = False
    model: str = ""


@dataclass(frozen=True)
class Production:
    """How a version compares with the one that was in production when it was made, image by image.

    Attributes:
        version: number of that version.
        negative: images that it answers right and the new version wrong.
        images: held-out images of all tasks that both answer.
    """

    version: int
    negative: int
    images: int


@dataclass(frozen=True)
class Metrics:
    """What is measured of a version.

    Attributes:
        forgetting, acc: of its row of the accuracy matrix.
        new_task: accuracy on its own task.
        predicted_rise: of the earlier tasks' mean loss, where the method forecasts it.
        coverage: share of held-out images that it answers surely, where the model promises a precision.
        production: beside the version in production; None: that was taught nothing, or nothing was compared.
        losses: image by image beside other versions; None: nothing was counted.
        features: beside its ancestors' features; None: nothing was counted.
    """

    forgetting: float | None = None
    new_task: float | None = None
    acc: float | None = None
    predicted_rise: float | None = None
    production: Production | None = None
    coverage: float | None = None
    losses: Losses | None = None
    features: FeatureCount | None = None

    @property
    def negative_flips(self) -> float | None:
        """The share of images that got wrong, in [0, 1]."""
        found = self.production
        return found.negative / found.images if found is not None and found.images else None


def verdict(gate: GateLimits | GateOut, metrics: Metrics, place: Place) -> Verdict:
    """Judge a version by the limits of a gate."""
    values: dict[Limit, float | None] = {
        "max_forgetting": metrics.forgetting,
        "min_new_task": metrics.new_task,
        "min_acc": metrics.acc,
        "max_predicted_loss_rise": metrics.predicted_rise,
        "max_negative_flips": metrics.negative_flips,
        "min_coverage": metrics.coverage,
    }
    checks: list[GateCheck] = []
    for name, value in values.items():
        limit = gate.get(name)
        if limit is None:
            continue
        passed = True
        if isinstance(value, float):
            passed = value <= limit if name.startswith("max_") else value >= limit
            value = value if math.isfinite(value) else None  # JSON has no other numbers
        check: GateCheck = {"name": name, "limit": limit, "value": value, "passed": passed}
        beside = metrics.production
        if name == "max_negative_flips" and beside is not None:
            check |= {"against": beside.version, "negative": beside.negative, "images": beside.images}
        checks.append(check)
    checks += check_losses(gate, metrics.losses, place.model, metrics.features)
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
    judged: Verdict = {"passed": all(check["passed"] for check in checks), "checks": checks}
    visible = describe_visible(gate, metrics.losses)
    return judged if visible is None else {**judged, "visible": visible}
