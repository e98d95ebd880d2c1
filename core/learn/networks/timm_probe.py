"""What timm's networks are like: how large, and which images they take. Found by building them without memory.

This is what `timm_weights.json` tells of a network; everything else there is copied from timm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from core.learn.networks.timm_backbone import width_of
from core.learn.timm_import import timm_models

BATCH = 2
"""Images of a pass: batch norms refuse one."""
MOST_UNITS = 8
"""Images of so many strides or patches a side are tried as the smallest."""


@dataclass(frozen=True)
class Probed:
    """A network of timm.

    parameters, activations, widest: numbers of float32 values, the latter two for one image (see
    `core.requests.network_size.Size`). step, smallest, resized_by: see `core.protocol.pretrained.Pretrained`.
    """

    parameters: int
    activations: int
    widest: int
    step: int
    smallest: int
    resized_by: str


def probed(name: str, size: int) -> Probed:
    """The network of some weights, whose own images have `size` pixels a side.

    Raises:
        ValueError: the network cannot be built without memory, or does not say its width.
    """
    net = _built(name)
    activations, widest = _activations(net, size, width_of(net))
    step, smallest, resized_by = _sizes(name, net, size)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    return Probed(parameters, activations, widest, step, smallest, resized_by)


def _built(name: str, **arguments: object) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return timm_models().create_model(name, pretrained=False, num_classes=0, **arguments)  # type: ignore[no-any-return]


def _activations(net: nn.Module, size: int, width: int) -> tuple[int, int]:
    """Values that a backward pass needs of one image, and those of the largest of them."""
    own = {id(parameter) for parameter in net.parameters()}
    seen: dict[object, int] = {}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        source = tensor if tensor._base is None else tensor._base
        if id(source) not in own:
            storage = tensor.untyped_storage()
            seen[storage._cdata] = max(seen.get(storage._cdata, 0), tensor.numel())
            kept.append(tensor)  # so that no other tensor gets its number
        return tensor

    net.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        features = net(torch.empty(BATCH, 3, size, size, device="meta"))
    if tuple(features.shape) != (BATCH, width):
        raise ValueError("its features are not one vector for each image")
    return sum(seen.values()) // BATCH, max(seen.values()) // BATCH


def _sizes(name: str, net: nn.Module, size: int) -> tuple[int, int, str]:
    """Step, smallest size and timm's argument for images of another size; step 0: there is none."""
    unit, rules = _unit(net), _RULES.setdefault(type(net), [])
    plain = _Sized(name, net, "")
    for rule in rules:
        if rule.plain and plain.takes(rule.units * unit):
            return rule.sizes(unit, size)
    others = [rule for rule in rules if not rule.plain]
    if others and not plain.takes(2 * unit):
        return others[0].sizes(unit, size)
    found = next(_tried(name, net, unit), _Rule(fine=False, units=0, argument=""))
    rules.append(found)
    return found.sizes(unit, size)


@dataclass(frozen=True)
class _Rule:
    """Which images a class of networks takes: any size or multiples of the unit, from so many units on; 0: its own."""

    fine: bool
    units: int
    argument: str

    @property
    def plain(self) -> bool:
        """Whether the network takes other sizes as it is."""
        return bool(self.units) and not self.argument

    def sizes(self, unit: int, own: int) -> tuple[int, int, str]:
        if not self.units:
            return 0, own, ""
        return (1 if self.fine else unit), self.units * unit, self.argument


_RULES: dict[type[nn.Module], list[_Rule]] = {}
"""Of classes of networks of which one was tried at every size. Another one that needs no argument is tried
once more."""


def _tried(name: str, net: nn.Module, unit: int) -> Iterator[_Rule]:
    for argument in ("", "dynamic_img_size", "img_size"):
        sized = _Sized(name, net, argument)
        for units in (1, 2, MOST_UNITS):
            if sized.takes((units + 1) * unit) and sized.takes(units * unit):
                fine = sized.takes((units + 1) * unit - 1)
                yield _Rule(fine, units, argument)


def _unit(net: nn.Module) -> int:
    """Pixels a side of what the network sees as one: of a patch, or the stride of its last layer."""
    embedding: Any = getattr(net, "patch_embed", None)
    patch = getattr(embedding, "patch_size", None)
    info: Any = getattr(net, "feature_info", None)
    if info and len(info) > 1:
        return max(int(layer["reduction"]) for layer in info)
    return int(patch[0]) if patch else 32


class _Sized:
    """A network with one of timm's arguments for images of other sizes; none: as it is."""

    def __init__(self, name: str, net: nn.Module, argument: str) -> None:
        self._name, self._argument = name, argument
        self._own = net
        self._dynamic: nn.Module | None = None

    def _net_for(self, size: int) -> nn.Module:
        if not self._argument:
            return self._own
        if self._argument == "img_size":
            return _built(self._name, img_size=size)
        self._dynamic = self._dynamic or _built(self._name, **{self._argument: True})
        return self._dynamic

    def takes(self, size: int) -> bool:
        """Whether images of this size pass through the network, and its tensors are those of its own size."""
        try:
            net = self._net_for(size)
            if net is not self._own and _shapes(net) != _shapes(self._own):
                return False
            with torch.no_grad():
                return bool(net(torch.empty(BATCH, 3, size, size, device="meta")).ndim == 2)
        except (AssertionError, RuntimeError, ValueError, TypeError):
            return False


def _shapes(net: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in net.state_dict().items()}
