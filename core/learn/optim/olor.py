"""OLOR: after every step of a stock optimizer, each layer moves back towards its starting point.

Huang et al. 2024, One Step Learning, One Step Review (arXiv 2401.10962). The paper keeps the displacement d =
θ - θ₀ as optimizer state and damps both d and the step. Since d is the displacement itself, that equals θ ←
lerp(optimizer's θ, θ₀, rho) with rho = iota · lr / peak lr: one fused pass, no state, and no drift between d
and θ - θ₀ in low precision. Layer i of 0 … n has iota2 + (1 - i/n)^gamma · (iota1 - iota2). Heads and
BatchNorm's statistics are not pulled back. Weight decay acts before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.learn.context import Context
from core.learn.networks.backbone import has_prefix
from core.learn.optim import eager
from core.learn.recipe import OlorRecipe, is_head


@dataclass(frozen=True)
class Anchored:
    """A parameter whose first `len(anchor)` rows are pulled back by the share `iota` at the peak rate."""

    parameter: nn.Parameter
    anchor: Tensor
    iota: float


@dataclass(frozen=True)
class _Pull:
    parameter: nn.Parameter
    iota: float
    target: Tensor  # the rows of the parameter that have an anchor, in the parameter's own memory
    anchor: Tensor  # laid out as `target`, as one fused pass over both needs
    group: int


class Olor:
    """Steps any torch optimizer, then pulls weights back.

    `peaks`: the peak rate of each of the optimizer's groups. It is not read from the optimizer: a scheduler
    may have set another `initial_lr` (OneCycleLR: a 25th of the peak, so rho would be 25 times too large). A
    parameter without a gradient does not move back in that step, nor does any at rho 0.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        peaks: Sequence[float],
        anchored: Sequence[Anchored],
        warn: Callable[[str], None],
    ) -> None:
        """Raises KeyError for an anchored parameter that the optimizer does not have."""
        self._optimizer = optimizer
        self._peaks = list(peaks)
        self._warn = warn
        self._warned = False
        group_of = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        self._pulls: list[_Pull] = []
        for each in anchored:
            whole = each.parameter.detach()
            target = whole if each.anchor.shape == whole.shape else whole[: len(each.anchor)]
            anchor = torch.empty_like(target).copy_(each.anchor)
            self._pulls.append(_Pull(each.parameter, each.iota, target, anchor, group_of[each.parameter]))

    def step(self) -> None:
        """The optimizer's step, then the rollback."""
        eager.step(self._optimizer)
        groups = zip(self._optimizer.param_groups, self._peaks, strict=True)
        rates = [float(group["lr"]) / peak for group, peak in groups]
        targets: list[Tensor] = []
        anchors: list[Tensor] = []
        shares: list[float] = []
        for pull in self._pulls:
            rho = self._share(pull.iota * rates[pull.group])
            if rho > 0 and pull.parameter.grad is not None:
                targets.append(pull.target)
                anchors.append(pull.anchor)
                shares.append(rho)
        if targets:
            torch._foreach_lerp_(targets, anchors, shares)

    def _share(self, rho: float) -> float:
        if 0 <= rho <= 1:
            return rho
        if not self._warned:
            self._warned = True
            self._warn(f"OLOR: a rollback by {rho:g} of the distance is limited to the range from 0 to 1")
        return min(max(rho, 0.0), 1.0)


def layer_iota(i: int, n: int, recipe: OlorRecipe) -> float:
    """iota of layer i of 0 … n. A single layer (n = 0) has iota1."""
    left: float = max(0.0, 1 - i / n) ** recipe.gamma if n else 1.0
    return recipe.iota2 + left * (recipe.iota1 - recipe.iota2)


def layer_iotas(
    names: Sequence[str], layers: Sequence[Sequence[str]], recipe: OlorRecipe
) -> dict[str, float]:
    """iota by parameter, for those that move and belong to the backbone.

    `names`: all that may move, in the network's order. `layers`: name prefixes of the backbone's blocks. With
    granularity "tensor" each tensor that moves is a layer.
    """
    return {name: layer_iota(i, n, recipe) for i, n, name in _layers(names, layers, recipe)}


def iotas_by_layer(names: Sequence[str], layers: Sequence[Sequence[str]], recipe: OlorRecipe) -> list[float]:
    """iota of each layer of the backbone that moves, from the first on; arguments as for `layer_iotas`."""
    return [
        layer_iota(i, n, recipe) for i, n in sorted({(i, n) for i, n, _ in _layers(names, layers, recipe)})
    ]


def _layers(
    names: Sequence[str], layers: Sequence[Sequence[str]], recipe: OlorRecipe
) -> Iterator[tuple[int, int, str]]:
    """(i, n, parameter): the parameter is in layer i of 0 … n."""
    body = [name for name in names if name.startswith("backbone.")]
    if recipe.granularity == "tensor":
        yield from ((i, len(body) - 1, name) for i, name in enumerate(body))
        return
    for i, prefixes in enumerate(layers):
        for name in body:
            if has_prefix(name.removeprefix("backbone."), prefixes):
                yield i, len(layers) - 1, name


def anchored(ctx: Context, recipe: OlorRecipe) -> list[Anchored]:
    """What moves now and is pulled back by a share above 0; [] when OLOR has no effect.

    Raises ValueError when the anchor lacks one of the backbone's parameters.
    """
    weights = ctx.weights_at(recipe.anchor)
    found: list[Anchored] = []
    for name, iota in layer_iotas(list(ctx.trainable), ctx.network.backbone.layer_prefixes, recipe).items():
        if name not in weights:
            raise ValueError(f"OLOR has nothing to roll {name} back to: the {recipe.anchor} weights lack it")
        found.append(Anchored(ctx.trainable[name], weights[name], iota))
    if recipe.anchor_old_head_rows:
        found += _old_rows(ctx.trainable, ctx.weights_at("update_start"), recipe.iota1)
    return [each for each in found if each.iota > 0]


def _old_rows(
    trainable: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor], iota: float
) -> list[Anchored]:
    """Head rows that the parent had.

    Version 0 has none, so these rows are anchored at the start of the task.
    """
    return [
        Anchored(parameter, weights[name], iota)
        for name, parameter in trainable.items()
        if is_head(name) and name in weights and len(weights[name])
    ]
