"""Base of all backbones: images in, feature vectors out, and a list of layers that defines depth.

A backbone names its tensors as its reference implementation does (torchvision's names for
torchvision's families), so that checkpoints load without renaming. Layers are name prefixes in
forward order; stages are runs of layers. A stage is the unit of depth (the number of stages that
are trained) and of storage (one part).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from core.contract.responses.architecture import ImageOut

Layer = tuple[str, ...]
SMALL_IMAGE = 64  # largest image, in pixels a side, with small stems and patches


@dataclass(frozen=True)
class ImageSpec:
    """The image format of a network: square images of `size` pixels a side with 1 or 3
    `channels`.
    """

    size: int
    channels: int

    def __post_init__(self) -> None:
        if self.size < 1 or self.channels < 1:
            raise ValueError(
                f"an image needs a positive size and channel count, not {self.size}x{self.channels}"
            )

    @staticmethod
    def parse_image_field(value: ImageSpec | ImageOut) -> ImageSpec:
        """Parse the `image` field of a model or manifest; return an ImageSpec unchanged."""
        return (
            value
            if isinstance(value, ImageSpec)
            else ImageSpec(int(value["size"]), int(value["channels"]))
        )


class Backbone(nn.Module):
    """Base class of backbones: map normalised float [B, channels, size, size] to features [B,
    width].

    `stage_prefixes[i]` holds the name prefixes of stage i, input side first; `layer_prefixes` the
    same per block (the layer index of OLOR, from 0 to n). They are not called `stages` and
    `layers`, which are names of children of timm's networks. `ignored`: prefixes of a reference
    checkpoint that are not part of the backbone, its classifier.
    """

    width: int
    ignored: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.stage_prefixes: list[list[str]] = []
        self.layer_prefixes: list[list[str]] = []

    def declare_stage_layers(self, stages: Sequence[Sequence[Layer]]) -> None:
        """Declare the layers of every stage of the backbone, both in forward order.

        Raises ValueError when a tensor of the backbone belongs to no stage or to two.
        """
        self.layer_prefixes = [list(layer) for stage in stages for layer in stage]
        self.stage_prefixes = [[prefix for layer in stage for prefix in layer] for stage in stages]
        for name in self.state_dict():
            # A tensor in no part would be lost when a version is stored, and one in two would be
            # stored twice.
            homes = sum(has_tensor_name_prefix(name, stage) for stage in self.stage_prefixes)
            if homes != 1:
                raise ValueError(f"the tensor {name} belongs to {homes} stages, not to one")

    def list_tensor_names_of_stage(self, stage: int) -> list[str]:
        """List the state-dict names of one stage, in state-dict order."""
        return [
            name
            for name in self.state_dict()
            if has_tensor_name_prefix(name, self.stage_prefixes[stage])
        ]

    def to_empty(self, *, device: torch.device | str | int | None, recurse: bool = True) -> Self:
        """Move the backbone to a device without copying values: all tensors are uninitialised
        there.

        Replaces torch's method, which copies the form of a tensor on the meta device by a function
        that imports sympy. That import costs each process of a job half a second.
        """

        def allocate_like(tensor: Tensor) -> Tensor:
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device
            )

        self._apply(allocate_like, recurse=recurse)  # type: ignore[no-untyped-call]
        return self

    def draw_initial_weights(self, generator: torch.Generator) -> None:
        """Draw all initial weights; overridden by backbones whose modules have no rule in
        `networks.init`.
        """
        raise NotImplementedError

    def load_base_weights(self, tensors: dict[str, Tensor]) -> None:
        """Load an uploaded base's weights into this backbone, by the reference implementation's
        names.

        The reference's classifier (`ignored`) is skipped. BatchNorm's batch counters may be
        missing, as in old checkpoints. Raises ValueError that names any other missing or extra
        tensor, or one of a wrong shape or dtype.
        """
        targets = self.state_dict()
        extra = [
            name
            for name in tensors
            if name not in targets and not name.startswith(self.ignored or ("\0",))
        ]
        if extra:
            raise ValueError(f"the base holds an unknown tensor: {extra[0]}")
        for name, target in targets.items():
            if name in tensors:
                copy_tensor_of_same_shape(name, target, tensors[name])
            elif is_batch_norm_counter(name):
                with torch.no_grad():
                    target.zero_()
            else:
                raise ValueError(f"the base lacks the tensor {name}")


def split_layers_evenly(layers: list[Layer], count: int) -> list[list[Layer]]:
    """Split layers into up to `count` runs of nearly equal length.

    Where the length does not divide evenly, earlier runs are longer.
    """
    count = min(count, len(layers))
    length, longer = divmod(len(layers), count)
    runs, start = [], 0
    for i in range(count):
        end = start + length + (i < longer)
        runs.append(layers[start:end])
        start = end
    return runs


def has_tensor_name_prefix(name: str, prefixes: Iterable[str]) -> bool:
    """Return true if a state-dict name equals one of the prefixes or lies below one."""
    # With the dot, so that `layer1` does not match `layer10`.
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def is_batch_norm_counter(name: str) -> bool:
    """Return true for the name of BatchNorm's batch counter, which is not used here."""
    return name == "num_batches_tracked" or name.endswith(".num_batches_tracked")


def copy_tensor_of_same_shape(name: str, target: Tensor, source: Tensor) -> None:
    """Copy a tensor's values in place into a target of the same shape, keeping device and memory
    format.

    Raises ValueError that names the tensor for another shape or dtype.
    """
    if source.shape != target.shape:
        raise ValueError(
            f"the tensor {name} has shape {tuple(source.shape)}, expected {tuple(target.shape)}"
        )
    # No silent conversion: a base in half precision would be stored as what it is not.
    if source.dtype != target.dtype:
        raise ValueError(f"the tensor {name} has dtype {source.dtype}, expected {target.dtype}")
    with torch.no_grad():
        target.copy_(source)


def copy_to_contiguous_cpu_tensor(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU, in the contiguous memory format."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
