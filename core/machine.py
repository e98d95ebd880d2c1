"""Resources of the machine: the memory and the CPUs that this process and its children may use, and its GPUs."""

import os
import re
from pathlib import Path

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_DEV = Path("/dev")
_GPU = re.compile(r"nvidia\d+")


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


def usable_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the CPUs that this process may use, at least 1: its affinity, or its container's quota if less.

    Args:
        cgroup: where the control groups of this process are mounted, of version 2 or 1.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota(cgroup)
    return max(1, cpus if quota is None else min(cpus, int(quota)))


def _cpu_quota(cgroup: Path) -> float | None:
    """Return the CPUs that a container's quota is worth; None: it has no quota."""
    try:
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


def with_cuda() -> bool:
    """Whether a process here could open CUDA; asked without loading torch."""
    return Path("/dev/nvidiactl").exists()


def count_gpus(dev: Path = _DEV) -> int:
    """Return the GPUs that a process here sees: those of the machine, or those that CUDA_VISIBLE_DEVICES names."""
    try:
        there = sum(1 for entry in dev.iterdir() if _GPU.fullmatch(entry.name))
    except OSError:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return there
    named = 0
    for name in visible.split(","):  # CUDA reads up to the first that is not there, such as -1
        if not name.strip() or name.strip().startswith("-"):
            break
        named += 1
    # One GPU may be cut into several MIG devices, each of which counts.
    return named if "MIG-" in visible else min(named, there)
