"""Check that a process has not opened CUDA, since its forks could not use the GPU then.

`fork` copies neither the driver's threads nor its mappings in a usable form, and every child would
fail with an error that names no cause. PYTORCH_NVML_BASED_CUDA_CHECK=1 lets torch count devices
without opening CUDA; this check shows that nothing else opened it.
"""

import re
from collections.abc import Iterable
from pathlib import Path

# The driver opens these when CUDA is initialised. Its library, libcuda.so, may be mapped before: torch
# 2.11 for CUDA 13 maps it on import, and children open CUDA all the same.
_DEVICE = re.compile(r"/dev/(nvidia\d+|nvidiactl|nvidia-uvm|dxg)")


class CudaAlreadyOpenError(RuntimeError):
    """CUDA is already open in a process that must not use it before forking."""


def require_cuda_not_opened() -> None:
    """Raise an error if this process has an NVIDIA device open, since it could then not fork
    safely.

    Raises:
        CudaAlreadyOpenError: it has.
    """
    try:
        files = _list_open_files()
    except OSError:  # not Linux, so there is no NVIDIA driver to protect either
        return
    if devices := find_open_nvidia_devices(files):
        raise CudaAlreadyOpenError(
            f"The process that forks jobs has opened CUDA ({', '.join(devices)}), so no job could "
            "use the GPU. Something that it imports initialises CUDA: look for code that asks for "
            "a device when it is imported, such as a package in PYTHONSTARTUP or sitecustomize, or "
            "another version of torch or triton."
        )


def find_open_nvidia_devices(files: Iterable[str]) -> list[str]:
    """Return the NVIDIA device files among the paths of open files, sorted.

    Args:
        files: targets of the links in /proc/<pid>/fd.
    """
    return sorted({file for file in files if _DEVICE.fullmatch(file)})


def _list_open_files() -> list[str]:
    """Return the paths of all files that this process has open."""
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(entry.readlink()))
        except OSError:
            continue  # the descriptor of this listing itself, closed meanwhile
    return targets
