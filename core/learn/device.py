"""The device of a job process, opened according to its spec with a share of its memory."""

from __future__ import annotations

import torch

from core.learn.precision import choose_device


def open_device(name: str, memory_share: float = 1.0) -> torch.device:
    """Return the device of that name; limit this process to a share of a GPU's memory.

    Later allocations beyond the share fail.

    Args:
        name: `auto` (CUDA where there is one), `cpu`, `cuda` or `cuda:N`.
        memory_share: in (0, 1]; two workers on one GPU take half each.

    Raises:
        ValueError: a CUDA device is requested by name and there is none.
    """
    device = choose_device(name)
    if device.type == "cuda" and memory_share < 1:
        # torch requires a device index; cuda without one is the current device.
        torch.cuda.set_per_process_memory_fraction(memory_share, device.index or 0)
    return device
