"""Classification of error messages of CUDA and its driver: is the device at fault, or the job?

The job process uses it to choose the kind of an error, and the worker to decide whether to check
the device. It does not need torch.
"""

LOST = (
    "cuda is not available",
    "not compiled with cuda",
    "no nvidia driver",
    "no cuda gpus are available",
    "no cuda-capable device",
    "devices are busy or unavailable",
    "device(s) is/are busy or unavailable",
    "cuda driver version is insufficient",
    "cuda driver initialization failed",
    "unsupported display driver",
    "cuda error: initialization error",
    "cuda error: system not yet initialized",
    "cuda unknown error",
    "cuda error: unknown error",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "ecc error",
    "xid",
    "fallen off the bus",
    "gpu is lost",
    "device is lost",
    "cuda error: device not ready",
    "failed to initialize nvml",
)
"""Parts of messages, in lower case, of a device that is missing, broken or incompatible.

The incompatibility can be with the driver or with torch.
"""
SUSPECT = (
    "invalid device ordinal",
    "no kernel image is available",
    "nvml",
    "illegal memory access",
    "illegal instruction",
    "unspecified launch failure",
    "misaligned address",
    "invalid program counter",
    "invalid address space",
    "hardware stack error",
    "launch timed out",
    "cublas_status_execution_failed",
    "cudnn_status_execution_failed",
)
"""Parts of messages, in lower case, that a broken device and a faulty kernel both cause.

After them, the device must be checked. A device-side assert is in neither list: the program's own
check failed, which is the job's fault.
"""
_OF_CUDA = ("cuda", "cudnn", "cublas", "cusolver", "nvml", "nvidia")


def is_device_error_message(message: str) -> bool:
    """Return whether an error message means that the GPU is or may be lost."""
    return _is_cuda_error_mentioning_any(message, LOST) or _is_cuda_error_mentioning_any(
        message, SUSPECT
    )


def may_device_error_be_program_fault(message: str) -> bool:
    """Return whether the cause of an error message may be a lost GPU or a faulty program."""
    return _is_cuda_error_mentioning_any(message, SUSPECT) and not _is_cuda_error_mentioning_any(
        message, LOST
    )


def _is_cuda_error_mentioning_any(message: str, parts: tuple[str, ...]) -> bool:
    text = message.lower()
    # Words such as "xid" also occur in messages that have nothing to do with a GPU.
    return any(part in text for part in _OF_CUDA) and any(part in text for part in parts)
