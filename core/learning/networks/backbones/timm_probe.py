"""Measurement of timm's networks: their size, and the images they take.

The networks are built without memory. `timm_weights.json` has these figures for each network;
everything else there is copied from timm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from core.learning.networks.backbones.timm_backbone import get_timm_feature_width
from core.learning.timm_import import import_timm_models

BATCH = 2
"""Images per pass: batch norms refuse one."""
MOST_UNITS = 8
"""Largest size to try as the smallest image, in strides or patches a side."""


@dataclass(frozen=True)
class TimmNetworkProperties:
    """Measured properties of a timm network: sizes, activations, accepted image sizes.

    parameters, activations, widest: numbers of float32 values, the latter two for one image (see
    `core.admission.network_size.NetworkSize`). step, smallest, resized_by: see
    `core.contract.pretrained.PretrainedWeights`.
    """

    parameters: int
    activations: int
    widest: int
    step: int
    smallest: int
    resized_by: str


def measure_timm_network_properties(name: str, size: int) -> TimmNetworkProperties:
    """Measure the properties of the timm network of some weights, at their own image size.

    Raises:
        ValueError: the network cannot be built without memory, or does not declare its width.
    """
    net = _build_timm_network_on_meta_device(name)
    activations, widest = _count_saved_activation_values(net, size, get_timm_feature_width(net))
    step, smallest, resized_by = _find_accepted_image_sizes(name, net, size)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    return TimmNetworkProperties(parameters, activations, widest, step, smallest, resized_by)


def _build_timm_network_on_meta_device(name: str, **arguments: object) -> nn.Module:
    """Build a timm network on the meta device, without changing the global generator."""
    # Without memory: some of timm's networks take gigabytes.
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return import_timm_models().create_model(name, pretrained=False, num_classes=0, **arguments)  # type: ignore[no-any-return]


def _count_saved_activation_values(net: nn.Module, size: int, width: int) -> tuple[int, int]:
    """Count the values that backward saves for one image, in total and in the largest tensor."""
    parameter_ids = {id(parameter) for parameter in net.parameters()}
    sizes: dict[object, int] = {}
    alive: list[Tensor] = []

    def record_saved_tensor(tensor: Tensor) -> Tensor:
        source = tensor if tensor._base is None else tensor._base
        if id(source) not in parameter_ids:
            # Views share storage: what backward holds is counted once.
            storage = tensor.untyped_storage()
            sizes[storage._cdata] = max(sizes.get(storage._cdata, 0), tensor.numel())
            alive.append(tensor)  # held alive, so that its address is not reused
        return tensor

    net.train()
    with torch.autograd.graph.saved_tensors_hooks(record_saved_tensor, lambda tensor: tensor):
        features = net(torch.empty(BATCH, 3, size, size, device="meta"))
    if tuple(features.shape) != (BATCH, width):
        raise ValueError("its features are not one vector for each image")
    return sum(sizes.values()) // BATCH, max(sizes.values()) // BATCH


def _find_accepted_image_sizes(name: str, net: nn.Module, size: int) -> tuple[int, int, str]:
    """Find the image sizes that a timm network accepts: step, smallest size, and timm's argument.

    Step 0 means that only its own size works.
    """
    unit, rules = _find_image_size_unit(net), _RULES.setdefault(type(net), [])
    plain = _ResizableNetwork(name, net, "")
    for rule in rules:
        if rule.needs_no_timm_argument and plain.accepts_image_size(rule.units * unit):
            return rule.compute_accepted_sizes(unit, size)
    with_argument = [rule for rule in rules if not rule.needs_no_timm_argument]
    if with_argument and not plain.accepts_image_size(2 * unit):
        return with_argument[0].compute_accepted_sizes(unit, size)
    # Without any rule the network takes its own size alone.
    new_rule = next(
        _iterate_fitting_image_size_rules(name, net, unit),
        _ImageSizeRule(fine=False, units=0, argument=""),
    )
    rules.append(new_rule)
    return new_rule.compute_accepted_sizes(unit, size)


@dataclass(frozen=True)
class _ImageSizeRule:
    """A rule for the image sizes that a class of timm networks accepts.

    Attributes:
        fine: any size; False: multiples of the unit.
        units: smallest size in units; 0: its own size only.
        argument: timm's argument for other sizes; "" without one.
    """

    fine: bool
    units: int
    argument: str

    @property
    def needs_no_timm_argument(self) -> bool:
        """True if the network accepts other image sizes without an argument to timm."""
        return bool(self.units) and not self.argument

    def compute_accepted_sizes(self, unit: int, own_size: int) -> tuple[int, int, str]:
        """Apply the size rule to a network: return step, smallest size in pixels, and timm's
        argument.
        """
        if not self.units:
            return 0, own_size, ""
        return (1 if self.fine else unit), self.units * unit, self.argument


_RULES: dict[type[nn.Module], list[_ImageSizeRule]] = {}
"""Rules of network classes of which one network was tried at every size.

Another network that needs no argument is tried once more.
"""


def _iterate_fitting_image_size_rules(
    name: str, net: nn.Module, unit: int
) -> Iterator[_ImageSizeRule]:
    """Yield size rules that fit a timm network, by argument and increasing smallest size."""
    for argument in ("", "dynamic_img_size", "img_size"):
        sized = _ResizableNetwork(name, net, argument)
        for units in (1, 2, MOST_UNITS):
            # Two sizes, since one of them may be the network's own, which always passes.
            if sized.accepts_image_size((units + 1) * unit) and sized.accepts_image_size(
                units * unit
            ):
                fine = sized.accepts_image_size((units + 1) * unit - 1)
                yield _ImageSizeRule(fine, units, argument)


def _find_image_size_unit(net: nn.Module) -> int:
    """Find the pixels a side by which a network's image size grows: its patch, or last stride."""
    embedding: Any = getattr(net, "patch_embed", None)
    patch = getattr(embedding, "patch_size", None)
    info: Any = getattr(net, "feature_info", None)
    if info and len(info) > 1:
        return max(int(layer["reduction"]) for layer in info)
    return int(patch[0]) if patch else 32


class _ResizableNetwork:
    """A timm network that can be rebuilt for other image sizes by one of timm's arguments ("":
    none).
    """

    def __init__(self, name: str, net: nn.Module, argument: str) -> None:
        self._name, self._argument = name, argument
        self._own = net
        self._dynamic: nn.Module | None = None

    def _get_network_for_size(self, size: int) -> nn.Module:
        """Return the timm network to run on images of a size, built with the argument if needed."""
        if not self._argument:
            return self._own
        if self._argument == "img_size":
            return _build_timm_network_on_meta_device(self._name, img_size=size)
        self._dynamic = self._dynamic or _build_timm_network_on_meta_device(
            self._name, **{self._argument: True}
        )
        return self._dynamic

    def accepts_image_size(self, size: int) -> bool:
        """Return true if images of this size pass through the network without changing its tensors'
        shapes.
        """
        try:
            net = self._get_network_for_size(size)
            if net is not self._own and _get_tensor_shapes(net) != _get_tensor_shapes(self._own):
                return False
            with torch.no_grad():
                return bool(net(torch.empty(BATCH, 3, size, size, device="meta")).ndim == 2)
        # How a network refuses a size is its own affair: timm has no common error for it.
        except (AssertionError, RuntimeError, ValueError, TypeError):
            return False


def _get_tensor_shapes(net: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in net.state_dict().items()}
