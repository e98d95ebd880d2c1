"""The total rollback of OLOR over a whole task.

OLOR's iota is a share per step, so its effect depends on the number of steps. A weight that nothing
else moves keeps the share exp(-Σ rho) of its distance from the anchor, with rho = iota · lr / peak
lr of each step. The authors' runs on CIFAR-100 have a sum of 49 in the first layer and of 17 in the
mean over the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.contract.figures import OlorPullTowardsInitialWeights
from core.learning.optimizers.build import compute_learning_rate_factor
from core.learning.optimizers.olor import find_anchored_parameters, list_layer_rollback_shares
from core.learning.recipe import OlorRecipe, Recipe
from core.learning.training.context import TaskTrainingContext

LITTLE = 3.0
"""With a smaller sum, the first layer keeps more than a twentieth of its distance: exp(-3)."""


@dataclass(frozen=True)
class TrainingStageDepthAndSteps:
    """Depth (1 to 5) and number of optimizer steps of one training stage."""

    depth: int
    steps: int


def resolve_olor_settings(
    recipe: Recipe, stages: Sequence[TrainingStageDepthAndSteps]
) -> OlorRecipe | None:
    """Resolve OLOR's settings for the training stages, deriving iota1; None without OLOR.

    iota1 is derived from `iota_total` where that is set.
    """
    olor = recipe.optimizer.olor
    if olor is None or olor.iota_total is None:
        return olor
    # At depth 1 no stage trains the backbone: the steps of all stages then count, for old head
    # rows.
    rates = sum(
        _list_learning_rate_factors_of_steps(
            recipe, _select_stages_that_train_backbone(stages) or stages
        )
    )
    # Cleared, so that settings that are resolved twice do not change.
    return olor.model_copy(update={"iota1": olor.iota_total / rates, "iota_total": None})


def sum_olor_rollback_over_steps(
    ctx: TaskTrainingContext, olor: OlorRecipe | None, stages: Sequence[TrainingStageDepthAndSteps]
) -> OlorPullTowardsInitialWeights | None:
    """Sum OLOR's rollback shares over a task's steps: for the first layer, and as a mean over
    layers.

    Returns None where OLOR pulls no layer back.

    Args:
        ctx: the training context.
        olor: OLOR's settings as `resolve_olor_settings` returns them.
        stages: the stages of the task.
    """
    if olor is None:
        return None
    rates = _list_learning_rate_factors_of_steps(
        ctx.recipe, _select_stages_that_train_backbone(stages)
    )
    iotas = list_layer_rollback_shares(
        list(ctx.trainable), ctx.network.backbone.layer_prefixes, olor
    )
    if not rates or not any(iotas):
        return None
    # A step cannot roll back by more than the whole distance, as in `Olor.step`.
    sums = [sum(min(1.0, iota * rate) for rate in rates) for iota in iotas]
    return OlorPullTowardsInitialWeights(first=sums[0], mean=sum(sums) / len(sums))


def report_olor_rollback(
    ctx: TaskTrainingContext, olor: OlorRecipe, stages: Sequence[TrainingStageDepthAndSteps]
) -> None:
    """Log OLOR's summed rollback as a metric; warn if it has no or too little effect."""
    if not find_anchored_parameters(ctx, olor):
        ctx.warn(
            f"OLOR rolls nothing back in this task: nothing that moves at depth {ctx.recipe.depth} "
            "has a share above 0; see depth, iota1, iota2 and anchor_old_head_rows"
        )
    total = sum_olor_rollback_over_steps(ctx, olor, stages)
    if total is None:
        return
    ctx.log_metric("rollback", total.first, {"mean": total.mean})
    if total.first < LITTLE:
        steps = sum(stage.steps for stage in _select_stages_that_train_backbone(stages))
        ctx.warn(
            f"OLOR rolls the first layer back by {total.first:.2g} in sum over {steps} steps; "
            f"below {LITTLE:g} "
            "it hardly differs from plain training: set optimizer.olor.iota_total to the sum that "
            "you want, 3 to 50 (49 in the authors' runs on CIFAR-100)"
        )


def _select_stages_that_train_backbone(
    stages: Sequence[TrainingStageDepthAndSteps],
) -> list[TrainingStageDepthAndSteps]:
    return [stage for stage in stages if stage.depth > 1]


def _list_learning_rate_factors_of_steps(
    recipe: Recipe, stages: Sequence[TrainingStageDepthAndSteps]
) -> list[float]:
    """List the learning rate of every step as a share of the peak rate."""
    return [
        compute_learning_rate_factor(recipe.optimizer, step, stage.steps)
        for stage in stages
        for step in range(stage.steps)
    ]
