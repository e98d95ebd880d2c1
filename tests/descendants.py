"""The processes below one, found quickly.

psutil looks at every process of the machine for that, which takes milliseconds: too long for a test
that looks again and again.
"""

import os
from contextlib import suppress
from pathlib import Path

import psutil

IS_LISTED = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""True on Linux whose kernel lists the children of a thread, as those of all distributions do."""


def list_descendants(root: int) -> list[psutil.Process]:
    """Return the processes that run below `root`; none where it has ended.
    One that ends meanwhile may be missing.
    """
    if not IS_LISTED:
        return (
            list(psutil.Process(root).children(recursive=True)) if psutil.pid_exists(root) else []
        )
    found, parents = [], [root]
    while parents:
        for pid in _read_children(parents.pop()):
            try:
                found.append(psutil.Process(pid))
            except psutil.Error:
                continue
            parents.append(pid)
    return found


def _read_children(pid: int) -> list[int]:
    """Return the children of all threads of a process, from Linux's own list."""
    children: list[int] = []
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # this thread has
                children += map(int, (task / "children").read_text().split())
    return children
