"""Limit on the memory of a job process, watched from outside.

The limit counts anonymous memory, also in swap, beyond the process's size at its fork; mapped files
cost nothing, since the machine can take that memory back. On a CPU, the kernel refuses more at once
(`RLIMIT_DATA`, in the zygote). CUDA reserves far more addresses than it uses, so there this watch
is the limit, a tenth of a second late.
"""

import threading
from pathlib import Path
from types import TracebackType

from worker.attempts.child import JobProcess

LOOK_S = 0.1
# Not RssFile: the kernel can drop pages of files at any time, and read them again.
_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


class JobMemoryLimitEnforcer:
    """Kills a job process that exceeds its memory limit, while the `with` block lasts.

    Args:
        limit: bytes beyond the size at the fork; 0 for no limit, and then nothing is watched.
    """

    def __init__(self, child: JobProcess, limit: int) -> None:
        self._child = child
        self._limit = limit
        self._over = threading.Event()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_memory_exceeded(self) -> bool:
        """True if the job process was killed for exceeding its memory limit."""
        return self._over.is_set()

    def __enter__(self) -> "JobMemoryLimitEnforcer":
        start = read_anonymous_memory_bytes(self._child.pid) if self._limit else None
        if start is not None:
            self._thread = threading.Thread(
                target=self._kill_child_when_memory_exceeded,
                args=(start,),
                name="memory",
                daemon=True,
            )
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _kill_child_when_memory_exceeded(self, start: int) -> None:
        while not self._end.wait(LOOK_S):
            now = read_anonymous_memory_bytes(self._child.pid)
            if now is None:
                return
            # Counted from the fork, since the pages shared with the zygote are not the job's.
            if now - start > self._limit:
                # Set before the kill, so that the end of the process finds its reason.
                self._over.set()
                self._child.kill_process()
                return


def read_anonymous_memory_bytes(pid: int) -> int | None:
    """Return the anonymous memory of a process in bytes, in RAM or swap.

    Return None if it cannot be found out.
    """
    try:
        fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    sizes_kib = [int(field.split()[1]) for field in fields if field.startswith(_COUNTED)]
    return 1024 * sum(sizes_kib) if sizes_kib else None
