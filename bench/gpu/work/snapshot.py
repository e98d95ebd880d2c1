"""Seconds of a snapshot of 1 GB: the copy to the host, and the file with its sync."""

from __future__ import annotations

import time

import torch

from bench.gpu.kit import open_torch_device, wait_for_device
from bench.gpu.step_run import GpuCheckStepRun
from core.learning.state import save_tensors, sync_path_to_disk

TENSORS, ELEMENTS = 100, 2_500_000  # of float32: 1 GB
TINY_ELEMENTS = 1_000


def record_snapshot_write_rate(run: GpuCheckStepRun) -> None:
    """Record the time to copy and write a training snapshot of a gigabyte."""
    device = open_torch_device(run.device)
    count = TINY_ELEMENTS if run.tiny else ELEMENTS
    tensors = {str(number): torch.rand(count, device=device) for number in range(TENSORS)}
    wait_for_device(device)
    start = time.perf_counter()
    copies = {name: tensor.cpu() for name, tensor in tensors.items()}
    copied = time.perf_counter()
    save_tensors(copies, run.folder / "snapshot.safetensors")
    sync_path_to_disk(run.folder)
    written = time.perf_counter()
    run.record_measurement("bytes", sum(tensor.nbytes for tensor in copies.values()))
    run.record_measurement("copy s", round(copied - start, 3))
    run.record_measurement("file s", round(written - copied, 3))
