"""The kind of a failed run, by which the worker and the experiments decide what to do."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from core.contract.jobs.device_errors import is_device_error_message
from core.learning.data.dataset import DataError
from core.learning.export.graph import ExportFailed
from core.learning.reports.data_report import BatchHeldSignal
from core.learning.training.loop import NonFiniteTrainingError

OUT_OF_MEMORY = (
    # The caching allocator asserts that NVML works before it reports that memory is exhausted.
    "CUDACachingAllocator.cpp",
    "can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    # cuBLAS allocates its workspace on first use: without memory it reports "not initialized".
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_NOT_INITIALIZED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
)
"""Parts of messages of memory errors that have no type of their own."""


class PeakAndFreeMemory(NamedTuple):
    """Peak and free memory of a process that ran out of memory, in bytes."""

    peak: int
    free: int


def classify_job_error(error: Exception) -> str:
    """Classify an exception of a job by its cause: out of memory, invalid data …

    Returns:
        "data", "data-held", "non-finite", "export", "memory", "disk", "device" or "code".
    """
    # First: DataError is a ValueError, and would pass for others below.
    if isinstance(error, DataError):
        return "data"
    if isinstance(error, BatchHeldSignal):
        return "data-held"
    if isinstance(error, NonFiniteTrainingError):
        return "non-finite"
    if isinstance(error, ExportFailed):
        return "export"
    # Before the device: CUDA's memory errors name the device as well.
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        t in str(error) for t in OUT_OF_MEMORY
    ):
        return "memory"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or os.strerror(errno.ENOSPC) in str(error):  # safetensors raises its own error type
        return "disk"
    # choose_torch_device raises ValueError, and a torch without CUDA raises AssertionError.
    if isinstance(error, RuntimeError | ValueError | AssertionError) and is_device_error_message(
        str(error)
    ):
        return "device"
    return "code"


def measure_peak_and_free_memory() -> PeakAndFreeMemory:
    """Measure this process's memory: of its GPU if it has used one, else of the host."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        try:
            free, _ = torch.cuda.mem_get_info()
            # The allocator keeps freed memory for itself, which another job could have.
            unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            return PeakAndFreeMemory(torch.cuda.max_memory_allocated(), free + unused)
        except RuntimeError:
            pass  # such a device may no longer respond: use the host's figures
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # KiB on Linux, bytes on macOS
    return PeakAndFreeMemory(
        peak if sys.platform == "darwin" else peak * 1024, _count_free_host_bytes()
    )


def _count_free_host_bytes() -> int:
    """Return the host's available memory in bytes; 0 if it is unknown."""
    try:
        # MemAvailable counts caches that the kernel can drop; MemFree does not.
        entries = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    kib = [int(entry.split()[1]) for entry in entries if entry.startswith("MemAvailable:")]
    return 1024 * kib[0] if kib else 0
