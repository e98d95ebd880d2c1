"""Check that a process has not opened CUDA, since its forks could not use the GPU then.

`fork` copies neither the driver's threads nor its mappings in a usable form, and every child would
fail with an error that names no cause. PYTORCH_NVML_BASED_CUDA_CHECK=1 lets torch count devices
without opening CUDA; this check shows that nothing else opened it.
"""

import re
from collections.abc import Iterable
from pathlib import Path

# libcudart comes with torch and opens nothing: only the driver's own library counts.
_DRIVER = re.compile(r"/\S*/libcuda\.so[.\d]*(?!\S)")
_DEVICE = re.compile(r"/dev/(nvidia\d+|nvidiactl|nvidia-uvm)")


class CudaAlreadyOpenError(RuntimeError):
    """CUDA is open in a process that is to be forked."""


def require_cuda_not_opened() -> None:
    """Check that this process has neither the CUDA driver mapped nor an NVIDIA device open.

    Raises:
        CudaAlreadyOpenError: it has.
    """
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # not Linux, so there is no NVIDIA driver to protect either
        return
    paths = find_open_cuda(maps, _list_open_files())
    if paths:
        raise CudaAlreadyOpenError(
            f"The process that forks jobs has opened CUDA ({', '.join(paths)}), so no job could "
            "use the GPU. Something that it imports initialises CUDA: look for code that asks for "
            "a device when it is imported, such as a package in PYTHONSTARTUP or sitecustomize, or "
            "another version of torch or triton."
        )


def find_open_cuda(maps: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return the CUDA libraries and devices that are open.

    Args:
        maps: lines of /proc/<pid>/maps.
        files: targets of the links in /proc/<pid>/fd.
    """
    libraries = {match[0].strip() for mapping in maps if (match := _DRIVER.search(mapping))}
    devices = {file for file in files if _DEVICE.fullmatch(file)}
    return sorted(libraries | devices)


def _list_open_files() -> list[str]:
    """Return the targets of this process's open descriptors."""
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(entry.readlink()))
        except OSError:
            continue  # the descriptor of this listing itself, closed meanwhile
    return targets
