"""Error messages of CUDA and its driver: which of them mean that the device, and not the job, is at fault.

Without torch: the job process decides the kind of an error by them, and the worker whether to ask the device again.
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
"""Parts of messages, in lower case, of a device that is missing, broken or does not fit the driver or torch."""
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
"""Parts of messages, in lower case, that a broken device and a wrong kernel both cause: ask the device itself.

A device-side assert is in neither list: the program's own check failed, which is the job's fault.
"""
_OF_CUDA = ("cuda", "cudnn", "cublas", "cusolver", "nvml", "nvidia")


def is_device_error(message: str) -> bool:
    """Tell whether a message is one of a device that is lost, or may be."""
    return _has(message, LOST) or _has(message, SUSPECT)


def is_suspect(message: str) -> bool:
    """Tell whether a wrong program causes this message too, so that the device may be as good as before."""
    return _has(message, SUSPECT) and not _has(message, LOST)


def _has(message: str, parts: tuple[str, ...]) -> bool:
    text = message.lower()
    return any(part in text for part in _OF_CUDA) and any(part in text for part in parts)
