"""What the machine has: the memory that this process and its children may use."""

import os
from pathlib import Path

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """Memory in bytes: the machine's, or the container's where that is less."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUPS:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found = min(found, int(text))
    return found


def with_cuda() -> bool:
    """Whether a process here could open CUDA; asked without loading torch."""
    return Path("/dev/nvidiactl").exists()
