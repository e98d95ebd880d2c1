"""Memory aware synapses: the importance of a weight is the sensitivity of the outputs to it.

Omega += mean over examples of |∂ ‖z(x)‖² / ∂θ|, z the logits, at the end of each task; labels are
not used. Penalty lambda Σ Omega (θ - θ*)², without 1/2 (Aljundi et al. 2018), θ* the weights after
the latest task. The absolute value is taken per example: in a batch's mean gradient examples
cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import torch
from pydantic import ConfigDict, Field

from core.learning.curvature.per_sample import PerExampleGradientSizeSums
from core.learning.methods.method import TrainingMemoryMultiples
from core.learning.methods.penalties.quadratic import (
    QuadraticPenaltyMethod,
    clone_parameter_values,
    iterate_example_chunks,
)
from core.learning.methods.registration import register_method
from core.learning.recipe import Strength, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch


class MasHyper(StrictRecipeModel):
    """Hyper-parameters of the method `mas`; `lambda` weighs the penalty lambda Σ Omega (θ -
    θ*)².
    """

    model_config = ConfigDict(populate_by_name=True)

    lambda_: Strength = Field(default=1.0, alias="lambda")


@register_method
class MemoryAwareSynapses(QuadraticPenaltyMethod):
    """The method `mas` (memory aware synapses): importance by the sensitivity of the logits'
    norm.
    """

    name = "mas"
    footprint = TrainingMemoryMultiples(copies=10.0, examples=45.0, images=64)
    description = (
        "Memory aware synapses: holds the weights to which the outputs on earlier tasks are "
        "sensitive. Keeps no data and uses no labels. With SGD, weights that are held too steeply "
        "for lr take smaller steps."
    )
    source = "Aljundi et al. 2018, Memory Aware Synapses, arXiv 1711.09601"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "data": "it holds the outputs on old data as they are, and new data of the same classes "
        "must change them",
        "class": "a weight penalty alone does not separate classes that were never seen together",
    }
    Hyper = MasHyper
    neutral = MasHyper.model_validate({"lambda": 0.0})
    section = "own"
    importance = "importance"
    hyper: MasHyper

    @property
    def penalty_strength(self) -> float:
        """Strength 2 lambda of the quadratic penalty, since MAS has no factor 1/2."""
        return 2 * self.hyper.lambda_

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Add the parameter importance measured on the task, and move the anchor to the present
        weights.
        """
        tensors = self.stored_tensors
        gradients = PerExampleGradientSizeSums(
            ctx.network,
            lambda x: self.forward(ctx.network, x, ctx.task_argument_of_forward),
            list(ctx.trainable),
            # Absolute values and not squares: importance is linear in the sensitivity, as in the
            # paper.
            torch.abs,
        )
        with ctx.use_exact_evaluation_mode():
            for x, _ in iterate_example_chunks(batches):
                # The gradient of ‖z‖² by z is 2 z.
                gradients.add_examples(x, lambda logits: [2 * logits])
        for name, fresh in gradients.compute_mean_gradient_sizes().items():
            previous = tensors.get(self.get_importance_key(name))
            # Added, as in the paper: every earlier task counts in full.
            tensors[self.get_importance_key(name)] = fresh if previous is None else previous + fresh
            tensors[f"anchor.{name}"] = clone_parameter_values(ctx, name)
