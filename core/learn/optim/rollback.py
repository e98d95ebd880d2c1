"""How far OLOR rolls back over a whole task.

OLOR's iota is a share per step, so what it does depends on the number of steps: a weight that nothing else
moves is left with the share exp(-Σ rho) of its way from the anchor, rho = iota · lr / peak lr of each step. The
authors' runs on CIFAR-100 have a sum of 49 in the first layer and of 17 in the mean over the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.learn.context import Context
from core.learn.optim.build import rate_factor
from core.learn.optim.olor import anchored, iotas_by_layer
from core.learn.recipe import OlorRecipe, Recipe
from core.protocol.figures import Rollback

LITTLE = 3.0
"""With a smaller sum, the first layer keeps more than a twentieth of its way: exp(-3)."""


@dataclass(frozen=True)
class StageSteps:
    """Optimizer steps of one stage of training, and its depth from 1 to 5."""

    depth: int
    steps: int


def settled(recipe: Recipe, stages: Sequence[StageSteps]) -> OlorRecipe | None:
    """OLOR's numbers for these stages: iota1 from `iota_total`, where that is given; None without OLOR."""
    olor = recipe.optimizer.olor
    if olor is None or olor.iota_total is None:
        return olor
    rates = sum(_rates(recipe, _that_move_the_backbone(stages) or stages))
    return olor.model_copy(update={"iota1": olor.iota_total / rates, "iota_total": None})


def rollback(ctx: Context, olor: OlorRecipe | None, stages: Sequence[StageSteps]) -> Rollback | None:
    """The sum of rho over the steps of a task, by layers that move; None where OLOR holds no layer.

    olor: as `settled` returns it.
    """
    if olor is None:
        return None
    rates = _rates(ctx.recipe, _that_move_the_backbone(stages))
    iotas = iotas_by_layer(list(ctx.trainable), ctx.network.backbone.layer_prefixes, olor)
    if not rates or not any(iotas):
        return None
    sums = [sum(min(1.0, iota * rate) for rate in rates) for iota in iotas]
    return Rollback(first=sums[0], mean=sum(sums) / len(sums))


def announce(ctx: Context, olor: OlorRecipe, stages: Sequence[StageSteps]) -> None:
    """Report the sum as a metric; warn where OLOR does nothing, or too little to matter."""
    if not anchored(ctx, olor):
        ctx.warn(
            f"OLOR rolls nothing back in this task: nothing that moves at depth {ctx.recipe.depth} has a "
            "share above 0; see depth, iota1, iota2 and anchor_old_head_rows"
        )
    found = rollback(ctx, olor, stages)
    if found is None:
        return
    ctx.log_metric("rollback", found.first, {"mean": found.mean})
    if found.first < LITTLE:
        steps = sum(stage.steps for stage in _that_move_the_backbone(stages))
        ctx.warn(
            f"OLOR rolls the first layer back by {found.first:.2g} in sum over {steps} steps; below {LITTLE:g} "
            "it hardly differs from plain training: set optimizer.olor.iota_total to the sum that you want, 3 "
            "to 50 (49 in the authors' runs on CIFAR-100)"
        )


def _that_move_the_backbone(stages: Sequence[StageSteps]) -> list[StageSteps]:
    return [stage for stage in stages if stage.depth > 1]


def _rates(recipe: Recipe, stages: Sequence[StageSteps]) -> list[float]:
    """lr / peak lr of every step."""
    return [
        rate_factor(recipe.optimizer, step, stage.steps) for stage in stages for step in range(stage.steps)
    ]
