"""Several runs at once, each in a process forked from this one, which has imported torch and run
nothing.

Each child gets the read end of a pipe whose only write end is here: when this process is gone,
however it went, the pipe closes and the child ends.
"""

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ChildProcessWork:
    """Work for a child process: `do(control_fd)` runs there, `ended(reason)` afterwards here."""

    do: Callable[[int], None]
    ended: Callable[[str | None], None]


def run_work_in_children(todo: Iterable[ChildProcessWork], at_once: int) -> None:
    """Do all work in child processes, up to `at_once` at a time; on an exception end them first."""
    running: dict[int, tuple[ChildProcessWork, int]] = {}
    waiting = iter(todo)
    # Collected garbage would touch, and so copy, the pages that children share with this process.
    gc.collect()
    gc.freeze()
    try:
        more = True
        while more or running:
            while more and len(running) < at_once:
                work = next(waiting, None)
                if work is None:
                    more = False
                else:
                    pid, control = _fork_child_for_work(work, [fd for _, fd in running.values()])
                    running[pid] = work, control
            if running:
                pid, status = os.wait()
                if pid in running:
                    work, control = running.pop(pid)
                    os.close(control)
                    work.ended(_explain_exit_status(os.waitstatus_to_exitcode(status)))
    finally:
        for _, control in running.values():
            os.close(control)  # the children see it and end
        for pid in running:
            os.waitpid(pid, 0)
        gc.unfreeze()


def _fork_child_for_work(work: ChildProcessWork, other_control_fds: list[int]) -> tuple[int, int]:
    """Fork a child process that does the work; return its process id and its control pipe."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(read)
        return pid, write
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
        for fd in (write, *other_control_fds):
            os.close(fd)
        work.do(read)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise  # overtaken by the exit below
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _explain_exit_status(status: int) -> str | None:
    if status == 0:
        return None
    if status < 0:
        return f"ended by {signal.Signals(-status).name}" + (
            " (out of memory?)" if status == -9 else ""
        )
    return f"ended with status {status}"
