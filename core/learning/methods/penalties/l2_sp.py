"""L2-SP: weight decay towards the starting point instead of towards zero.

Penalty (alpha / 2) ‖w_S - w⁰_S‖² + (beta / 2) ‖w_N‖² (Li et al. 2018, arXiv 1802.01483). w_S are
weights that the starting point has too, w_N the new ones. In a first task w_N is the whole head, as
in the paper. Later it is the rows of new classes alone, since decay to zero would erase rows that
earlier tasks have learned. Both gradients are added in closed form, so an adaptive optimizer
rescales them; decoupled weight decay is another method. Norms are sums over elements: means would
be thousands of times weaker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from core.learning.methods.method import Method, TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.recipe import StartingPoint, Strength, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext


class L2SpHyper(StrictRecipeModel):
    """Hyper-parameters of the method `l2-sp` (L2 penalty towards the starting point).

    `alpha` pulls towards the starting point, `beta` pulls new weights towards zero. `anchor`: the
    starting point is the version that the task starts from, or version 0. Version 0 has no head, so
    all of the head counts as new and `beta` pulls the rows of old classes too. `tensors`: "weights"
    leaves out parameters of one dimension, which are biases and norms.
    """

    alpha: Strength = 0.01
    beta: Strength = 0.01
    anchor: StartingPoint = "update_start"
    tensors: Literal["all", "weights"] = "all"


@register_method
class L2SpMethod(Method):
    """The method `l2-sp`: an L2 penalty on the distance of the weights from their starting
    point.
    """

    name = "l2-sp"
    footprint = TrainingMemoryMultiples(copies=8.0)
    description = (
        "Weight decay towards the weights that the task starts from. Keeps no data and no state."
    )
    source = "Li et al. 2018, Explicit Inductive Bias for Transfer Learning, arXiv 1802.01483"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "class": "a weight penalty alone does not separate classes that were never seen together"
    }
    Hyper = L2SpHyper
    neutral = L2SpHyper(alpha=0.0, beta=0.0)
    regularisers = ("penalty",)
    needs_classes = ""
    no_shards = ""
    hyper: L2SpHyper

    def add_penalty_gradients(self, ctx: TaskTrainingContext) -> None:
        """Add the L2 penalty's gradients: alpha (w - w⁰) for old weights, beta w for new ones."""
        anchors = self._get_starting_parameters(ctx)
        grads = {
            name: p.grad
            for name, p in self._select_penalised_parameters(ctx).items()
            if p.grad is not None
        }
        values = {name: ctx.trainable[name].detach() for name in grads}
        # Both dicts have the same names in the same order, so that the lists correspond.
        shared_grads, new_grads = _split_rows_by_anchor(grads, anchors)
        shared, new = _split_rows_by_anchor(values, anchors)
        if self.hyper.alpha > 0 and shared:
            # One call for all parameters: a loop would launch a kernel for each.
            pull = torch._foreach_sub(shared, [anchors[name] for name in grads if name in anchors])
            torch._foreach_add_(shared_grads, pull, alpha=self.hyper.alpha)
        if self.hyper.beta > 0 and new:
            torch._foreach_add_(new_grads, new, alpha=self.hyper.beta)

    def compute_penalty(self, ctx: TaskTrainingContext) -> float:
        """Compute the L2 penalty alpha / 2 ‖w_S - w⁰_S‖² + beta / 2 ‖w_N‖² of old and new
        weights.
        """
        anchors = self._get_starting_parameters(ctx)
        values = {name: p.detach() for name, p in self._select_penalised_parameters(ctx).items()}
        shared, new = _split_rows_by_anchor(values, anchors)
        starts = [anchors[name] for name in values if name in anchors]
        squared_distance = sum(
            float((t - start).square().sum()) for t, start in zip(shared, starts, strict=True)
        )
        large = sum(float(t.square().sum()) for t in new)
        return self.hyper.alpha / 2 * squared_distance + self.hyper.beta / 2 * large

    def _select_penalised_parameters(self, ctx: TaskTrainingContext) -> dict[str, nn.Parameter]:
        """Select the trainable parameters that the L2 penalty covers."""
        covers_all = self.hyper.tensors == "all"
        return {name: p for name, p in ctx.trainable.items() if covers_all or p.dim() > 1}

    def _get_starting_parameters(self, ctx: TaskTrainingContext) -> dict[str, Tensor]:
        """Return the trainable parameters' values at the recipe's anchor, on the device.

        Each covers the rows that existed then.
        """
        if "anchors" not in ctx.cache:
            weights = ctx.weights_at(self.hyper.anchor)
            ctx.cache["anchors"] = {
                # Copied into the parameter's layout, so that the steps need no conversion.
                name: torch.empty_like(parameter.detach()[: len(weights[name])]).copy_(
                    weights[name]
                )
                for name, parameter in ctx.trainable.items()
                if name in weights and len(weights[name])
            }
        anchors: dict[str, Tensor] = ctx.cache["anchors"]
        return anchors


def _split_rows_by_anchor(
    tensors: Mapping[str, Tensor], anchors: Mapping[str, Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Split tensors into views of the rows that have an anchor (starting value) and of those
    without.
    """
    old = {name: len(anchors[name]) if name in anchors else 0 for name in tensors}
    shared = [t[: old[name]] for name, t in tensors.items() if old[name]]
    # Views, so that adding to them changes the gradients in place.
    new = [t[old[name] :] for name, t in tensors.items() if old[name] < len(t)]
    return shared, new
