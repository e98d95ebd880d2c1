"""Elastic weight consolidation: a quadratic penalty per earlier task, stored as a single penalty.

(lambda / 2) Σ_k Σ_i F^k_i (θ_i - θ^k_i)², F^k the Fisher information after task k at its solution
θ^k (Kirkpatrick et al. 2017). Stored are A = Σ_k F^k and the mean anchor m = (Σ_k F^k θ^k) / A: the
gradient lambda · A (θ - m) equals that of the separate penalties exactly, and the value differs by
a constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from core.learning.curvature.fisher import EXACT_CLASSES, Kind, estimate_diagonal_fisher
from core.learning.data.augment import derive_seed
from core.learning.methods.method import TrainingMemoryMultiples
from core.learning.methods.penalties.quadratic import (
    QuadraticPenaltyMethod,
    clone_parameter_values,
    iterate_example_chunks,
)
from core.learning.methods.registration import register_method
from core.learning.recipe import Strength, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

# The exact form takes a backward pass for each class, so fewer examples are measured.
EXACT_EXAMPLES = 500
SAMPLE_EXAMPLES = 2000


class EwcHyper(StrictRecipeModel):
    """Hyper-parameters of the method `ewc` (elastic weight consolidation).

    `lambda` weighs the penalty. Values from libraries without the factor 1/2 must be doubled.
    `fisher`: "exact" sums over the active classes, "sample" draws one class per example,
    "empirical" takes the label, "predicted" the likeliest class; "auto" is exact up to 20 active
    classes, then sample. `examples`: number of training examples to measure, at most all; null: 500
    for exact, 2000 for the others.
    """

    model_config = ConfigDict(populate_by_name=True)

    lambda_: Strength = Field(default=1000.0, alias="lambda")
    fisher: Literal["auto", "exact", "sample", "empirical", "predicted"] = "auto"
    examples: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


@register_method
class EwcMethod(QuadraticPenaltyMethod):
    """The method `ewc` (elastic weight consolidation): a diagonal Gaussian at each task's
    solution.
    """

    name = "ewc"
    footprint = TrainingMemoryMultiples(copies=10.0, growing=2.0, examples=45.0, images=64)
    description = (
        "Elastic weight consolidation: earlier tasks hold the weights that mattered to them, by "
        "their Fisher information. Keeps no data. With SGD, weights that are held too steeply for "
        "lr take smaller steps."
    )
    source = "Kirkpatrick et al. 2017, arXiv 1612.00796; Huszár 2018, arXiv 1712.03847"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "class": "a weight penalty alone does not separate classes that were never seen together"
    }
    Hyper = EwcHyper
    neutral = EwcHyper.model_validate({"lambda": 0.0})
    inherited_state = ("curvature",)
    section = "curvature"
    importance = "fisher"
    hyper: EwcHyper

    @property
    def penalty_strength(self) -> float:
        """Strength lambda of the quadratic penalty lambda / 2 · F (θ - θ*)²."""
        return self.hyper.lambda_

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Measure the task's Fisher information at its end, and merge it with the stored
        penalty.
        """
        tensors = self.stored_tensors
        for name, fresh in self._measure_diagonal_fisher(ctx, batches).items():
            key, anchor, now = (
                self.get_importance_key(name),
                f"anchor.{name}",
                clone_parameter_values(ctx, name),
            )
            if key in tensors:
                tensors[key], tensors[anchor] = merge_quadratic_penalties(
                    tensors[key], tensors[anchor], fresh, now
                )
            else:
                tensors[key], tensors[anchor] = fresh, now

    def _measure_diagonal_fisher(
        self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]
    ) -> dict[str, Tensor]:
        kind, limit, generator = self._choose_fisher_sampling(ctx)
        with ctx.use_exact_evaluation_mode():
            return estimate_diagonal_fisher(
                ctx.network,
                lambda x: self.forward(ctx.network, x, ctx.task_argument_of_forward),
                list(ctx.trainable),
                iterate_example_chunks(batches, limit),
                kind=kind,
                generator=generator,
            )

    def _choose_fisher_sampling(
        self, ctx: TaskTrainingContext
    ) -> tuple[Kind, int, torch.Generator]:
        """Choose the kind of Fisher information, the number of images to sample, and a
        generator.
        """
        # By all classes of the head, since the softmax is over all of them.
        kind = self._resolve_fisher_kind(
            len(ctx.network.list_classes(ctx.task_argument_of_forward))
        )
        limit = self.hyper.examples or (EXACT_EXAMPLES if kind == "exact" else SAMPLE_EXAMPLES)
        # A generator of its own, so that the draws do not depend on what training has drawn.
        return kind, limit, torch.Generator().manual_seed(derive_seed(ctx.recipe.seed, ctx.task, 2))

    def _resolve_fisher_kind(self, classes: int) -> Kind:
        if self.hyper.fisher == "auto":
            return "exact" if classes <= EXACT_CLASSES else "sample"
        return self.hyper.fisher


def merge_quadratic_penalties(
    total: Tensor, anchor: Tensor, fresh: Tensor, theta: Tensor
) -> tuple[Tensor, Tensor]:
    """Merge two quadratic penalties with importances A, F into one: A + F, anchor m + F (θ - m) /
    (A + F).

    The anchor is θ where both importances are zero.

    Args:
        total: A, of the earlier tasks.
        anchor: m, of the earlier tasks.
        fresh: F, of the new task.
        theta: θ, the present weights.
    """
    both = total + fresh
    # Where both are zero, 0 / 0 would make the anchor NaN, and the penalty with it.
    share = torch.where(both > 0, fresh / both, 1.0)
    # `lerp` leaves the anchor as it is, bit for bit, where the new importance is zero.
    return both, torch.lerp(anchor, theta, share)
