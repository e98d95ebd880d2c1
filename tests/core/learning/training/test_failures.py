"""Of what kind a failed run is."""

import errno

import pytest
import torch
from safetensors import SafetensorError

from core.learning.precision import open_device_with_limit
from core.learning.training.failures import classify_job_error, measure_peak_and_free_memory


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
            "memory",
        ),
        (RuntimeError("CUDA error: out of memory"), "memory"),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            "memory",
        ),
        *(
            (RuntimeError(text), "memory")
            for text in (
                "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
                "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
                "NVML_SUCCESS == r INTERNAL ASSERT FAILED at "
                '"c10/cuda/CUDACachingAllocator.cpp":1090',
                "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling "
                "`cusolverDnCreate(handle)`",
            )
        ),
        *(
            (RuntimeError(text), "device")
            for text in (
                "CUDA error: uncorrectable ECC error encountered",
                "CUDA error: an illegal memory access was encountered",
                "CUDA error: unspecified launch failure",
                "CUDA error: no kernel image is available for execution on the device",
                "No CUDA GPUs are available",
                "Found no NVIDIA driver on your system.",
                "CUDA driver version is insufficient for CUDA runtime version",
                "Can't initialize NVML",
            )
        ),
        (AssertionError("Torch not compiled with CUDA enabled"), "device"),
        (RuntimeError("CUDA error: device-side assert triggered"), "code"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5), cuda:0"), "code"),
        (KeyError("a class named nvidia xid"), "code"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "disk"),
        (OSError(errno.EIO, "Input/output error"), "code"),
    ],
)
def test_an_error_for_want_of_memory_disk_or_device_is_one_whatever_its_type(error, kind) -> None:
    assert classify_job_error(error) == kind


def test_a_device_that_is_asked_for_and_missing_is_no_fault_of_the_code() -> None:
    with pytest.raises(ValueError) as raised:
        open_device_with_limit("cuda")
    assert classify_job_error(raised.value) == "device"


def test_a_run_out_of_memory_reports_its_peak_and_what_was_free() -> None:
    figures = measure_peak_and_free_memory()
    assert figures.peak > 1_000_000 and figures.free > 0
