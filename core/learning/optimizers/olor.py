"""OLOR: after every step of a stock optimizer, pull each layer back towards its starting point.

Huang et al. 2024, One Step Learning, One Step Review (arXiv 2401.10962). The paper stores the
displacement d = θ - θ₀ as optimizer state and damps both d and the step. Since d is the
displacement itself, that equals θ ← lerp(optimizer's θ, θ₀, rho) with rho = iota · lr / peak lr.
This takes one fused pass and no state, and d cannot drift from θ - θ₀ in low precision. Layer i of
0 … n has iota = iota2 + (1 - i/n)^gamma · (iota1 - iota2). Heads and BatchNorm's statistics are not
pulled back. Weight decay acts before the pull.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.learning.networks.backbone import has_tensor_name_prefix
from core.learning.optimizers import eager
from core.learning.recipe import OlorRecipe, is_head_parameter
from core.learning.training.context import TaskTrainingContext


@dataclass(frozen=True)
class AnchoredParameter:
    """A parameter whose first rows the OLOR optimizer pulls back towards an anchor (earlier
    values).

    Attributes:
        parameter: the parameter to pull back.
        anchor: values to return to, for the first `len(anchor)` rows of the parameter.
        iota: share of the distance to go back in one step at the peak rate.
    """

    parameter: nn.Parameter
    anchor: Tensor
    iota: float


@dataclass(frozen=True)
class _RollbackTarget:
    """An anchored parameter prepared for OLOR's fused pull back of several parameters."""

    parameter: nn.Parameter
    iota: float
    target: Tensor  # a view of the parameter's rows that have an anchor
    anchor: Tensor  # in the memory layout of `target`, which one fused pass over both requires
    group: int


class OlorOptimizer:
    """The OLOR optimizer: steps any torch optimizer, then pulls weights back towards earlier
    values.

    A parameter without a gradient is not pulled back in that step, nor is any at rho 0.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        peaks: Sequence[float],
        anchored: Sequence[AnchoredParameter],
        warn: Callable[[str], None],
    ) -> None:
        """Prepare the parameters that OLOR pulls back to their start.

        Raises KeyError for one that the optimizer does not have.

        Args:
            optimizer: the optimizer to step.
            peaks: the peak rate of each of the optimizer's groups. The optimizer's `initial_lr` is
                not used, because a scheduler may change it: OneCycleLR sets a 25th of the peak,
                which makes rho 25 times too large.
            anchored: parameters to pull back, with their anchors.
            warn: called with a message for the user.
        """
        self._optimizer = optimizer
        self._peaks = list(peaks)
        self._warn = warn
        self._warned = False
        group_of = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        self._pulls: list[_RollbackTarget] = []
        for each in anchored:
            full_tensor = each.parameter.detach()
            # A head that has grown has an anchor for its old rows only.
            target = (
                full_tensor
                if each.anchor.shape == full_tensor.shape
                else full_tensor[: len(each.anchor)]
            )
            # Copied to the device once, in the layout of the rows that it pulls.
            anchor = torch.empty_like(target).copy_(each.anchor)
            self._pulls.append(
                _RollbackTarget(each.parameter, each.iota, target, anchor, group_of[each.parameter])
            )

    def step(self) -> None:
        """Take the optimizer's step, then pull the anchored parameters back."""
        eager.step_optimizer_without_hooks(self._optimizer)
        groups = zip(self._optimizer.param_groups, self._peaks, strict=True)
        rates = [float(group["lr"]) / peak for group, peak in groups]
        targets: list[Tensor] = []
        anchors: list[Tensor] = []
        shares: list[float] = []
        for pull in self._pulls:
            rho = self._limit_rollback_share(pull.iota * rates[pull.group])
            # The optimizer did not move a parameter without a gradient, so there is no step to
            # damp.
            if rho > 0 and pull.parameter.grad is not None:
                targets.append(pull.target)
                anchors.append(pull.anchor)
                # Collected for one fused call: a loop would launch a kernel for each parameter.
                shares.append(rho)
        if targets:
            torch._foreach_lerp_(targets, anchors, shares)

    def _limit_rollback_share(self, rho: float) -> float:
        """Limit the rollback share rho to [0, 1]; warn the first time that it lies outside."""
        if 0 <= rho <= 1:
            return rho
        if not self._warned:
            self._warned = True
            self._warn(
                f"OLOR: a rollback by {rho:g} of the distance is limited to the range from 0 to 1"
            )
        return min(max(rho, 0.0), 1.0)


def compute_olor_rollback_share_of_layer(i: int, n: int, recipe: OlorRecipe) -> float:
    """Compute OLOR's rollback share (iota) of layer i of 0 … n. A single layer (n = 0) has
    iota1.
    """
    decay: float = max(0.0, 1 - i / n) ** recipe.gamma if n else 1.0
    return recipe.iota2 + decay * (recipe.iota1 - recipe.iota2)


def compute_rollback_share_by_parameter(
    names: Sequence[str], layers: Sequence[Sequence[str]], recipe: OlorRecipe
) -> dict[str, float]:
    """Compute OLOR's rollback share (iota) of each trainable backbone parameter, by name.

    Args:
        names: all trainable parameters, in network order.
        layers: name prefixes of the backbone's blocks, one sequence per layer.
        recipe: OLOR's part of the recipe. With granularity "tensor" each trainable tensor is a
            layer.
    """
    return {
        name: compute_olor_rollback_share_of_layer(i, n, recipe)
        for i, n, name in _iterate_layer_parameters(names, layers, recipe)
    }


def list_layer_rollback_shares(
    names: Sequence[str], layers: Sequence[Sequence[str]], recipe: OlorRecipe
) -> list[float]:
    """List OLOR's rollback share (iota) of each trainable backbone layer, from the first on.

    The arguments are those of `compute_rollback_share_by_parameter`.
    """
    return [
        compute_olor_rollback_share_of_layer(i, n, recipe)
        for i, n in sorted({(i, n) for i, n, _ in _iterate_layer_parameters(names, layers, recipe)})
    ]


def _iterate_layer_parameters(
    names: Sequence[str], layers: Sequence[Sequence[str]], recipe: OlorRecipe
) -> Iterator[tuple[int, int, str]]:
    """Yield (layer i, last layer n, parameter name) for each trainable backbone parameter."""
    body = [name for name in names if name.startswith("backbone.")]
    if recipe.granularity == "tensor":
        yield from ((i, len(body) - 1, name) for i, name in enumerate(body))
        return
    for i, prefixes in enumerate(layers):
        for name in body:
            if has_tensor_name_prefix(name.removeprefix("backbone."), prefixes):
                yield i, len(layers) - 1, name


def find_anchored_parameters(
    ctx: TaskTrainingContext, recipe: OlorRecipe
) -> list[AnchoredParameter]:
    """List the trainable parameters that OLOR pulls back, with their anchors; empty if it has no
    effect.

    Raises ValueError when the anchor lacks one of the backbone's parameters.
    """
    weights = ctx.weights_at(recipe.anchor)
    candidates: list[AnchoredParameter] = []
    for name, iota in compute_rollback_share_by_parameter(
        list(ctx.trainable), ctx.network.backbone.layer_prefixes, recipe
    ).items():
        if name not in weights:
            raise ValueError(
                f"OLOR has nothing to roll {name} back to: the {recipe.anchor} weights lack it"
            )
        candidates.append(AnchoredParameter(ctx.trainable[name], weights[name], iota))
    if recipe.anchor_old_head_rows:
        candidates += _anchor_old_head_rows(
            ctx.trainable, ctx.weights_at("update_start"), recipe.iota1
        )
    return [each for each in candidates if each.iota > 0]


def _anchor_old_head_rows(
    trainable: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor], iota: float
) -> list[AnchoredParameter]:
    """Anchor the head rows that the parent version had to their values at the start of the task.

    Version 0 has no head rows to serve as an anchor.
    """
    return [
        AnchoredParameter(parameter, weights[name], iota)
        for name, parameter in trainable.items()
        if is_head_parameter(name) and name in weights and len(weights[name])
    ]
