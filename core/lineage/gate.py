"""The gate: checks that a version must pass before it is published and `production` moves to it.

Two checks apply to every model: no learned task is lost (`lost_tasks`), and the lineage still
continues from the version's parent (`parent_rolled_back`). Limits that are not set are not checked.
An undefined figure (such as forgetting after the first task) passes with value None; a figure that
is not finite fails.
"""

import math
from dataclasses import dataclass, field

from core.contract.features import AncestorFeatureComparison
from core.contract.gate import GateCheck, GateLimits, GateOut, Limit, Verdict
from core.contract.losses import GateComparisons
from core.lineage.checks import build_version_comparison_gate_checks
from core.lineage.coverage import MissingTasksAndClasses
from core.lineage.visible_losses import describe_detectable_losses


@dataclass(frozen=True)
class VersionLineageFacts:
    """Position of a version in the lineage of its model.

    Attributes:
        parent: number of the version that it was learned from.
        head: number of the version that the lineage continues from.
        lacking: tasks and classes that it lacks.
        may_lose: True if the model allows lost tasks (`allow_lost_classes`).
        model: id of its model.
    """

    parent: int
    head: int
    lacking: MissingTasksAndClasses = field(default_factory=MissingTasksAndClasses)
    may_lose: bool = False
    model: str = ""


@dataclass(frozen=True)
class ComparisonWithProductionVersion:
    """Image-by-image comparison of a version with the production version when it was made.

    Attributes:
        version: number of the version in production.
        negative: images that production gets right and the new version gets wrong.
        images: held-out images of all tasks that both cover.
    """

    version: int
    negative: int
    images: int


@dataclass(frozen=True)
class GateMetrics:
    """Measurements of a version that its gate judges.

    Attributes:
        forgetting, acc: figures of its row of the accuracy matrix.
        new_task: accuracy on its own task, in [0, 1].
        acc: mean accuracy of its row, in [0, 1].
        predicted_rise: rise of the earlier tasks' mean loss, if the method forecasts it.
        production: comparison with production; None if production was taught nothing or nothing was
            compared.
        coverage: share of held-out images predicted with confidence, if the model promises a
            precision.
        losses: counts image by image against other versions; None if nothing was counted.
        features: counts of its features against its ancestors'; None if nothing was counted.
        doubt: finding that most labels of its batch look wrong (`core.lineage.label_doubts`).
    """

    forgetting: float | None = None
    new_task: float | None = None
    acc: float | None = None
    predicted_rise: float | None = None
    production: ComparisonWithProductionVersion | None = None
    coverage: float | None = None
    losses: GateComparisons | None = None
    features: AncestorFeatureComparison | None = None
    doubt: str | None = None

    @property
    def negative_flip_share(self) -> float | None:
        """Share of images that production predicts right and the version wrong, in [0, 1]; None
        without images.
        """
        production = self.production
        return (
            production.negative / production.images
            if production is not None and production.images
            else None
        )


def judge_gate_metrics(
    gate: GateLimits | GateOut, metrics: GateMetrics, lineage_facts: VersionLineageFacts
) -> Verdict:
    """Judge a version's measurements by the limits of a gate, and return the verdict."""
    values: dict[Limit, float | None] = {
        "max_forgetting": metrics.forgetting,
        "min_new_task": metrics.new_task,
        "min_acc": metrics.acc,
        "max_predicted_loss_rise": metrics.predicted_rise,
        "max_negative_flips": metrics.negative_flip_share,
        "min_coverage": metrics.coverage,
    }
    checks: list[GateCheck] = []
    for name, value in values.items():
        limit = gate.get(name)
        if limit is None:
            continue
        passed = True
        if isinstance(value, float):
            # NaN makes both comparisons false, so a figure that is no number never passes.
            passed = value <= limit if name.startswith("max_") else value >= limit
            value = value if math.isfinite(value) else None  # JSON has no infinity or NaN
        check: GateCheck = {"name": name, "limit": limit, "value": value, "passed": passed}
        production = metrics.production
        if name == "max_negative_flips" and production is not None:
            check |= {
                "against": production.version,
                "negative": production.negative,
                "images": production.images,
            }
        checks.append(check)
    checks += build_version_comparison_gate_checks(
        gate, metrics.losses, lineage_facts.model, metrics.features, metrics.doubt
    )
    lacking = lineage_facts.lacking
    checks.append(
        {
            "name": "lost_tasks",
            "limit": None if lineage_facts.may_lose else 0,
            "value": len(lacking.tasks),
            "passed": lineage_facts.may_lose or not lacking.tasks,
            "tasks": list(lacking.tasks),
            "classes": list(lacking.classes),
        }
    )
    # The head was moved by hand while the job ran, and publishing would undo that.
    in_line = lineage_facts.parent == lineage_facts.head
    checks.append(
        {
            "name": "parent_rolled_back",
            "limit": lineage_facts.head,
            "value": lineage_facts.parent,
            "passed": in_line,
        }
    )
    judged: Verdict = {"passed": all(check["passed"] for check in checks), "checks": checks}
    visible = describe_detectable_losses(gate, metrics.losses)
    return judged if visible is None else {**judged, "visible": visible}
