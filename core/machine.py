"""Resources of the machine: its GPUs, and the memory and CPUs that this process may use."""

import os
import re
from pathlib import Path

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_DEV = Path("/dev")
# The driver's other devices, such as nvidiactl and nvidia-uvm, are no GPUs.
_GPU = re.compile(r"nvidia\d+")


def measure_machine_memory() -> int:
    """Return the memory of the machine, or of the container if it has less, in bytes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUPS:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        # `max` stands for no limit.
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


def count_usable_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of CPUs that this process may use, at least 1.

    The number is the process's affinity, or its container's quota if that is less.

    Args:
        cgroup: mount point of the control groups of this process, of version 2 or 1.
    """
    # Not every system has affinities: macOS lacks them.
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read_cpu_quota(cgroup)
    return max(1, cpus if quota is None else min(cpus, int(quota)))


def _read_cpu_quota(cgroup: Path) -> float | None:
    """Return the container's CPU quota in CPUs, or None if it has none."""
    try:
        # Control groups of version 2; the other files are those of version 1.
        text = (cgroup / "cpu.max").read_text()
    except OSError:
        try:
            text = " ".join(
                (cgroup / "cpu" / name).read_text().strip()
                for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            )
        except OSError:
            return None
    quota, _, period = text.strip().partition(" ")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:  # "max", or -1: no quota
        return None
    return int(quota) / int(period)


def can_open_cuda() -> bool:
    """Return True if a process on this machine could open CUDA, without loading torch."""
    return Path("/dev/nvidiactl").exists()


def count_gpus(dev: Path = _DEV) -> int:
    """Count the GPUs that a process sees: all, or those in CUDA_VISIBLE_DEVICES."""
    try:
        installed = sum(1 for entry in dev.iterdir() if _GPU.fullmatch(entry.name))
    # A system without this folder has no device files of a GPU driver.
    except OSError:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return installed
    named = 0
    for name in visible.split(","):  # CUDA stops reading at the first invalid entry, such as -1
        if not name.strip() or name.strip().startswith("-"):
            break
        named += 1
    # A GPU may be divided into several MIG devices, each of which counts.
    return named if "MIG-" in visible else min(named, installed)
