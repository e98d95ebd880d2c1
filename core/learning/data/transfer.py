"""Asynchronous copies from the CPU to an accelerator, for which the host does not wait."""

from __future__ import annotations

import torch
from torch import Tensor


def copy_tensor_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to a device; a tensor already there is returned.

    On CUDA it goes through pinned memory: a copy from other memory makes the host wait for all
    pending work.
    """
    if tensor.device.type == device.type:
        return tensor
    assert tensor.device.type == "cpu", "only a copy to a device may go on without waiting"
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def copy_rows_to_device(source: Tensor, rows: Tensor, device: torch.device) -> Tensor:
    """Copy selected rows int64 [B] of a CPU tensor [N, …] to a device."""
    if device.type != "cuda":
        return copy_tensor_to_device(source.index_select(0, rows), device)
    # Gathered straight into pinned memory: a second copy would cost as much as the gathering.
    picked = source.new_empty((rows.numel(), *source.shape[1:]), pin_memory=True)
    torch.index_select(source, 0, rows, out=picked)
    return picked.to(device, non_blocking=True)


def count_free_device_bytes(device: torch.device) -> int:
    """Return the free memory of an accelerator, in bytes."""
    # Of the device and not of this process: others may use it too.
    return int(torch.get_device_module(device).mem_get_info(device)[0])
