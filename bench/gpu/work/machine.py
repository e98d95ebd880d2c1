"""The ceilings of the machine: copies and matrix products, beside which other figures are read."""

from __future__ import annotations

import importlib.metadata
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from bench.gpu.kit import open_torch_device, wait_for_device
from bench.gpu.step_run import GpuCheckStepRun

PACKAGES = (
    "numpy",
    "pydantic",
    "safetensors",
    "scikit-learn",
    "timm",
    "torch",
    "torchvision",
    "triton",
)
ROUNDS = 20


def record_machine_description_and_rates(run: GpuCheckStepRun) -> None:
    """Record versions, memory, copy rates and matrix-product rates of the GPU machine."""
    device = open_torch_device(run.device)
    run.record_measurement("packages", {name: _get_package_version(name) for name in PACKAGES})
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        run.record_measurement("memory GB", round(properties.total_memory / 1e9, 1))
        run.record_measurement("multiprocessors", properties.multi_processor_count)
        run.record_measurement("compute capability", f"{properties.major}.{properties.minor}")
    _record_copy_rates(run, device)
    _record_matmul_rates(run, device)


def _record_copy_rates(run: GpuCheckStepRun, device: torch.device) -> None:
    """Record GB/s of memory copies on the device and from the host."""
    count, rounds = (1 << 16, 2) if run.tiny else (1 << 30, ROUNDS)  # float32
    source = torch.rand(count, device=device)
    target = torch.empty_like(source)
    seconds = measure_median_seconds(lambda: target.copy_(source), device, rounds)
    run.record_measurement("copy on the device GB/s", round(2 * source.nbytes / seconds / 1e9, 1))
    part, host = target[: count // 4], torch.empty(count // 4)
    memories = {"pageable": host} | ({"pinned": host.pin_memory()} if run.device == "cuda" else {})
    for name, memory in memories.items():
        seconds = measure_median_seconds(partial(part.copy_, memory), device, rounds // 2)
        run.record_measurement(
            f"copy from the host, {name}, GB/s", round(memory.nbytes / seconds / 1e9, 2)
        )


def _record_matmul_rates(run: GpuCheckStepRun, device: torch.device) -> None:
    """Record TFLOP/s of matrix products in several number formats."""
    side, rounds = (64, 2) if run.tiny else (8192, ROUNDS)
    for dtype in (torch.bfloat16, torch.float32):
        a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        seconds = measure_median_seconds(partial(torch.matmul, a, b), device, rounds)
        name = str(dtype).removeprefix("torch.")
        run.record_measurement(f"product {name} TFLOP/s", round(2 * side**3 / seconds / 1e12, 3))


def measure_median_seconds(work: Callable[[], object], device: torch.device, rounds: int) -> float:
    """Measure the median duration of a function on the device, after two warm-up runs."""
    durations = []
    for number in range(rounds + 2):
        wait_for_device(device)
        start = time.perf_counter()
        work()
        wait_for_device(device)
        if number >= 2:
            durations.append(time.perf_counter() - start)
    return statistics.median(durations)


def _get_package_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
