"""Of what kind a failed run is."""

import errno

import pytest
import torch
from safetensors import SafetensorError

from core.learn.failures import kind_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"), "memory"),
        (RuntimeError("CUDA error: out of memory"), "memory"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "memory",
        ),
        (RuntimeError("CUDA error: device-side assert triggered"), "code"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "disk"),
        (OSError(errno.EIO, "Input/output error"), "code"),
    ],
)
def test_an_error_for_want_of_memory_or_disk_is_one_whatever_its_type(error, kind) -> None:
    assert kind_of(error) == kind
