"""Device, number format, memory layout and input scaling of a network.

By default a CPU trains in float32 and CUDA in bfloat16 autocast, without a gradient scaler.
Evaluation is in float32 on both. Networks with convolutions use channels_last on both: 1.2 times
faster on a CPU, and no stored byte changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from core.contract.architecture import Normalisation

DEFAULT_MEAN = 0.5
DEFAULT_STD = 0.25

Format = Literal["float32", "bfloat16"]
"""Number format of a forward pass in training. Weights and gradients are float32 in both."""
Precision = Literal["auto", "float32", "bfloat16"]
"""A format, or `auto`: bfloat16 on CUDA, float32 on a CPU."""


def choose_torch_device(name: str) -> torch.device:
    """Choose the torch device for `auto` (CUDA if available), `cpu`, `cuda` or `cuda:N`.

    Raises ValueError when a CUDA device is requested by name and there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} was asked for, but CUDA is not available")
    return device


def open_device_with_limit(name: str, memory_share: float = 1.0) -> torch.device:
    """Open a torch device by name, and limit this process to a share of a GPU's memory.

    Later allocations beyond the share fail.

    Args:
        name: `auto` (CUDA where there is one), `cpu`, `cuda` or `cuda:N`.
        memory_share: in (0, 1]; two workers on one GPU take half each.

    Raises:
        ValueError: a CUDA device is requested by name and there is none.
    """
    device = choose_torch_device(name)
    if device.type == "cuda" and memory_share < 1:
        # torch requires a device index; cuda without one is the current device.
        torch.cuda.set_per_process_memory_fraction(memory_share, device.index or 0)
    return device


def choose_number_format(precision: Precision, device: torch.device) -> Format:
    """Choose the number format of training that a recipe's precision means on a device."""
    if precision == "auto":
        return "bfloat16" if device.type == "cuda" else "float32"
    return precision


def has_cpu_bfloat16_instructions() -> bool:
    """Return True if this CPU multiplies bfloat16 in hardware, by avx512_bf16 or AMX.

    Otherwise bfloat16 is slower than float32.
    """
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def use_training_precision(
    device: torch.device, precision: Precision = "auto"
) -> AbstractContextManager[object]:
    """Return a context manager that runs forward passes of training in the chosen `precision`."""
    if choose_number_format(precision, device) == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


@contextmanager
def use_full_precision(device: torch.device) -> Iterator[None]:
    """Context manager that computes float32 products in full precision: neither TF32 nor autocast.

    All evaluation and all sums that outlive a step run inside it. A version would otherwise be
    measured with other numbers than it predicts with on a CPU. float64 does not change, nor does a
    CPU outside autocast. No training step may run inside it: see `forbid_tf32`.
    """
    with forbid_tf32(), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def forbid_tf32() -> Iterator[None]:
    """Context manager that computes float32 products with all 23 bits of mantissa, without TF32.

    cuDNN's convolutions use TF32 by default, which has 10 bits. Autocast is left as it is, so whole
    jobs can run inside: torch keeps the bfloat16 copies of weights until the outermost autocast
    context ends, and steps inside another one would train on copies of outdated weights.
    """
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = matmul.fp32_precision, conv.fp32_precision
    matmul.fp32_precision = conv.fp32_precision = "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision, conv.fp32_precision = before


def move_network_to_device(network: nn.Module, device: torch.device) -> None:
    """Move a network to its device, in channels_last format when it has a convolution."""
    network.to(device)
    if any(isinstance(module, nn.Conv2d) for module in network.modules()):
        # A memory format is no shape: values and stored bytes stay the same.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class InputNormaliser:
    """Converts uint8 images [N, S, S, C] to network inputs [N, C, S, S]: (v / 255 - mean) / std.

    `normalise` is in units of v / 255; None means a mean of 0.5 and a standard deviation of 0.25.
    Raises ValueError for another number of channels, or a deviation that is not positive.
    """

    def __init__(
        self, normalise: Normalisation | None, channels: int, device: torch.device
    ) -> None:
        mean = list(normalise.mean) if normalise else [DEFAULT_MEAN] * channels
        std = list(normalise.std) if normalise else [DEFAULT_STD] * channels
        if len(mean) != channels or len(std) != channels or min(std) <= 0:
            raise ValueError(f"normalise needs {channels} means and {channels} positive deviations")
        self.device = device
        self.normalise = Normalisation(mean=mean, std=std)
        # One number for all channels is a scalar, which needs no tensor on the device.
        self._uniform = len(set(mean)) == 1 and len(set(std)) == 1
        self._shift: float | Tensor = mean[0] * 255
        self._scale: float | Tensor = 1 / (std[0] * 255)
        if not self._uniform:
            self._shift = torch.tensor([m * 255 for m in mean], device=device)
            self._scale = torch.tensor([1 / (s * 255) for s in std], device=device)

    @property
    def has_known_features(self) -> bool:
        """True if known features replace some images (`core/learning/data/known_features.py`)."""
        return False

    def __call__(self, images: Tensor) -> Tensor:
        """Return inputs of images; features [N, D] in place of images unchanged, on the device."""
        if images.dim() == 2:
            return images.to(self.device)
        # Sent as uint8 and converted there: a quarter of the bytes cross the bus.
        x = images.to(self.device, torch.float32, non_blocking=True)
        # In place on the converted copy; float32 images were not copied, and belong to the caller.
        x = x.sub_(self._shift) if images.dtype != torch.float32 else x - self._shift
        return x.mul_(self._scale).permute(0, 3, 1, 2)
