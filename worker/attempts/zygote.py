"""The process that forks job children: it imports torch once and never runs it.

A child forked from it takes its first optimizer step within hundredths of a second instead of
seconds. It runs no operation and never opens CUDA, since neither survives a fork. The worker
communicates with it over one socket. A request is a JSON line (`{"spec", "data_bytes"}`) with two
descriptors (the write end of the event pipe, the read end of the control pipe). Responses are JSON
lines `{"ready"}`, `{"pid"}` and `{"pid", "status"}`, or `{"error"}` if it cannot serve. The zygote
ends when the socket closes, since the worker is gone then.

Run it as `python -m worker.attempts.zygote FD`. Where a process that has loaded torch may not fork
(macOS), the zygote does not load it, and each child starts a Python of its own, which takes seconds.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypedDict

from core.platforms import can_platform_fork_with_torch
from worker.attempts.job_failpoints import hit_event_failpoint
from worker.devices.cuda_free import CudaAlreadyOpenError, require_cuda_not_opened

ChildMain = Callable[[str, int, int], int]
"""Function `main(spec_path, out_fd, control_fd)` that a job child runs; it returns the exit status.
"""

PRELOADED = (
    "torch",
    "core.learning.training.job",
    "core.learning.training.patch",
    "core.learning.export.job",
    "core.learning.evaluation.measuring",
)
REQUEST_BYTES = 65_536
OOM_SCORE = 500
"""Added to a child's OOM score, so that a machine short of memory ends a job before a service."""
CHILD_CRASHED = 70
JOB = "--job"
"""Argument before those of one job, which this process runs itself."""


class ForkRequest(TypedDict):
    """A request to the fork server to run the job in a specification file.

    `data_bytes` limits its allocations, and 0 means no limit.
    """

    spec: str
    data_bytes: int


def import_job_modules_and_get_runner() -> ChildMain:
    """Import everything that jobs need, and return the function that runs a job."""
    # Imports make many objects and no garbage: collecting takes a fifth of their time.
    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    from core.learning.evaluation import measuring
    from core.learning.export import job as export_job
    from core.learning.training import job, patch
    from worker.attempts import ranks

    def run_job_by_spec(spec_path: str, out_fd: int, control_fd: int) -> int:
        """Run the job in a specification file: train a task, or export, measure or patch a version."""
        spec = json.loads(Path(spec_path).read_text())
        entry_points = {"export": export_job.main, "measure": measuring.main, "patch": patch.main}
        work = entry_points.get(spec.get("work"), job.main)
        if work is job.main and (count := ranks.choose_process_count_of_job(spec)) > 1:
            ranks.replace_process_by_torchrun(count, spec_path, out_fd, control_fd)
        return work(spec_path, out_fd, control_fd, before=hit_event_failpoint)

    return run_job_by_spec


def replace_process_by_job_process(spec_path: str, out_fd: int, control_fd: int) -> NoReturn:
    """Replace the forked process by a fresh one that imports torch itself and runs the job."""
    for fd in (out_fd, control_fd):
        os.set_inheritable(fd, True)
    job = ("-m", "worker.attempts.zygote", JOB, spec_path, str(out_fd), str(control_fd))
    os.execv(sys.executable, [sys.executable, *job])


def fork_jobs_on_request(server: socket.socket, child_main: ChildMain) -> None:
    """Fork a job process for each request of the worker until the worker closes the socket."""
    # `set_wakeup_fd` takes no descriptor that could block.
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    # a handler must exist for the wake-up to work
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles Ctrl-C
    # Garbage collection would touch, and therefore copy, the pages that children share with this
    # process.
    gc.collect()
    gc.disable()
    gc.freeze()
    _send_message_to_worker_or_exit(server, {"ready": True, "pid": os.getpid()})
    sources: list[socket.socket | int] = [server, wake_read]
    while True:
        readable, _, _ = select.select(sources, [], [])
        if wake_read in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
            _report_ended_children(server)
        if server in readable:
            try:
                data, fds, _flags, _address = socket.recv_fds(server, REQUEST_BYTES, 2)
            except ConnectionResetError:  # closed while a message of ours was unread
                return
            if not data:
                return
            pid = os.fork()
            if pid == 0:
                # The pipe is shared after the fork: the child's signals must not wake the zygote.
                signal.set_wakeup_fd(-1)
                for fd in (wake_read, wake_write):
                    os.close(fd)
                _run_forked_job_and_exit(server, child_main, json.loads(data), fds)
            # Only the child uses them; open here, they would hide its end from the worker.
            for fd in fds:
                os.close(fd)
            _send_message_to_worker_or_exit(server, {"pid": pid})


def _run_forked_job_and_exit(
    server: socket.socket, child_main: ChildMain, request: ForkRequest, fds: list[int]
) -> None:
    """Run one job in the forked process, and exit without the parent's clean-up."""
    status = CHILD_CRASHED
    try:
        # Open in a job, the socket would hide the zygote's end from the worker.
        server.close()
        # A fork inherits the zygote's handlers, which are not meant for a job.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Only a preference: other systems than Linux have no such file, and a job runs without it.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
        _limit_memory_allocations(request["data_bytes"])
        # It was off so that the zygote's memory stays shared with its forks; a job needs it.
        gc.enable()
        out_fd, control_fd = fds
        status = child_main(request["spec"], out_fd, control_fd)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()  # the job reports through its event pipe; this is the last resort
        raise  # has no effect, since the exit below comes first
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        # Without the exit handlers registered before the fork, which belong to the parent process.
        os._exit(status)


def _limit_memory_allocations(data_bytes: int) -> None:
    """Limit the memory that this process may allocate, so that an excess fails with a clear error."""
    statm = Path("/proc/self/statm")
    # Other systems than Linux neither tell the present size nor keep the limit.
    if data_bytes and statm.exists():
        pages = int(statm.read_text().split()[5])  # data and stack at the fork
        limit = pages * resource.getpagesize() + data_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _report_ended_children(server: socket.socket) -> None:
    """Report the ended child processes and their exit statuses to the worker."""
    # One signal may stand for several children that have ended.
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _send_message_to_worker_or_exit(
            server, {"pid": pid, "status": os.waitstatus_to_exitcode(status)}
        )


def _send_message_to_worker_or_exit(server: socket.socket, message: dict[str, object]) -> None:
    """Send a message to the worker; exit if the worker is gone."""
    try:
        server.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        os._exit(0)  # the worker is gone


def run_fork_server_or_job(arguments: list[str]) -> None:
    """Serve fork requests on an inherited socket, or run one job, as the arguments say."""
    if arguments[0] == JOB:
        spec_path, out_fd, control_fd = arguments[1:]
        sys.exit(import_job_modules_and_get_runner()(spec_path, int(out_fd), int(control_fd)))
    server = socket.socket(fileno=int(arguments[0]))
    # Programs that a job starts must not hold the worker's socket.
    server.set_inheritable(False)
    child_main = (
        import_job_modules_and_get_runner()
        if can_platform_fork_with_torch()
        else replace_process_by_job_process
    )
    try:
        require_cuda_not_opened()
    except CudaAlreadyOpenError as error:
        _send_message_to_worker_or_exit(server, {"error": str(error)})
        raise SystemExit(str(error)) from error
    fork_jobs_on_request(server, child_main)


if __name__ == "__main__":
    run_fork_server_or_job(sys.argv[1:])
