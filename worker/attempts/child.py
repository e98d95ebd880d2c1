"""The worker's side of a job process: start it through the zygote, communicate with it, end it.

The worker holds the only write end of the control pipe. When the worker dies, in whatever way, the
pipe closes and the child exits. Events arrive as JSON lines; the end of that pipe is the end of the
child.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import structlog

from core.contract.jobs.control_request import JobControlRequest
from core.contract.jobs.job_event import JobEvent, parse_job_event_line
from core.processes import helper_process

log = structlog.get_logger(__name__)


class ForkServerMessage(TypedDict, total=False):
    """A line from the fork server: it is `ready`, has forked `pid`, `pid` has ended, or an `error`."""

    ready: bool
    pid: int
    status: int
    error: str


ROOT = Path(__file__).resolve().parents[2]

READY_S = 120.0
"""Seconds to wait for the zygote's imports, which may take long on a cold disk."""
SPAWN_S = 20.0
CLOSE_S = 0.3
"""Seconds to wait for the zygote to end.

While it still imports, it does not notice that its socket closed.
"""
LINE_BYTES = 64 << 20
"""Maximum size of an event line; a child that sends a longer one is ended."""

MALLOC = {
    # Otherwise, glibc returns large blocks at every step and faults them in again; measured
    # 1.13-1.15 x.
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
CUBLAS = {
    # Read when CUDA starts. With buffers of a fixed size, products have the same bits each time.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
NO_CUDA = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Makes torch count devices by NVML, which leaves CUDA closed.

A fork of a process with CUDA open could not use it. See `worker.devices.cuda_free`.
"""
COMMAND = (sys.executable, "-m", "worker.attempts.zygote")


class ForkServerDied(Exception):
    """The process that forks job processes ended, or did not answer in time."""


class ForkServer:
    """Client of the process (the zygote) that has imported torch and forks a child for each job.

    Args:
        command: command that starts it; the number of an inherited socket is appended.
        inherited: descriptors that it and its children keep open.
    """

    def __init__(self, command: Sequence[str] = COMMAND, inherited: Sequence[int] = ()) -> None:
        # A socket and not a pipe: descriptors travel over it, and its closing ends the zygote.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *inherited],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_fileno(sys.stderr) else None,
                env=helper_process.build_helper_environment(
                    **MALLOC,
                    **CUBLAS,
                    **NO_CUDA,
                    # OpenBLAS would start threads at its import, and threads do not survive a fork.
                    OPENBLAS_NUM_THREADS="1",
                ),
                start_new_session=True,  # a terminal's Ctrl-C is for the worker alone
            )
        self._socket = ours
        self._buffer = b""
        self._statuses: dict[int, int] = {}
        self._ready = False

    @property
    def pid(self) -> int:
        """Process id of the fork server."""
        return self._process.pid

    def wait_until_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until the fork server has imported everything and can fork children at once.

        Raises:
            ForkServerDied: the zygote ended or took longer.
        """
        deadline = time.monotonic() + timeout_s
        while not self._ready:
            self._ready = bool(self._read_fork_server_message(deadline).get("ready"))

    def is_alive(self) -> bool:
        """Return True if the fork server is still running."""
        return self._process.poll() is None

    def fork_child(self, spec: Path, data_bytes: int = 0) -> "JobProcess":
        """Fork a child process that runs the job described by the file `spec`.

        Args:
            data_bytes: bytes that it may allocate beyond its size at the fork (`RLIMIT_DATA`); 0
                for no limit.

        Raises:
            ForkServerDied: no child could be started.
        """
        self.wait_until_ready()
        # Other processes of this worker must not inherit the ends, or the pipes would never close;
        # Python's pipes are not inherited.
        event_read, event_write = os.pipe()
        control_read, control_write = os.pipe()
        try:
            request = json.dumps({"spec": str(spec), "data_bytes": data_bytes}).encode()
            socket.send_fds(self._socket, [request], [event_write, control_read])
            pid = self._wait_for_child_pid(time.monotonic() + SPAWN_S)
        except (OSError, ForkServerDied) as error:
            os.close(event_read)
            os.close(control_write)
            raise ForkServerDied(str(error)) from error
        finally:
            # The child has copies; with this one open, the pipe's end would never be seen.
            os.close(event_write)
            os.close(control_read)
        return JobProcess(self, pid, event_read, control_write)

    def wait_for_child_status(self, pid: int, timeout_s: float) -> int | None:
        """Return a job process's exit code (negative: its signal), or None if it cannot be found
        out.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while pid not in self._statuses:
                self._read_fork_server_message(deadline)
        except ForkServerDied:
            return None
        return self._statuses.pop(pid)

    def end_fork_server(self) -> None:
        """End the fork server and wait for it; this does not end its running children."""
        # A closed socket is the request to end.
        self._socket.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_for_child_pid(self, deadline: float) -> int:
        while True:
            message = self._read_fork_server_message(deadline)
            # Earlier children may end at any moment, and their statuses come in between.
            if "pid" in message and "status" not in message:
                return int(message["pid"])

    def _read_fork_server_message(self, deadline: float) -> ForkServerMessage:
        """Read the fork server's next message, and record the exit statuses of ended children.

        Raises:
            ForkServerDied: the zygote ended or did not answer until the deadline.
        """
        while b"\n" not in self._buffer:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0 or not select.select([self._socket], [], [], remaining_s)[0]:
                raise ForkServerDied("The zygote did not answer in time.")
            try:
                data = self._socket.recv(4096)
            except OSError as error:
                raise ForkServerDied(f"The zygote's socket failed: {error}.") from error
            if not data:
                raise ForkServerDied("The zygote ended.")
            self._buffer += data
        # The rest may be the beginning of the next message.
        message_line, self._buffer = self._buffer.split(b"\n", 1)
        message: ForkServerMessage = json.loads(message_line)
        if "error" in message:
            raise ForkServerDied(message["error"])
        # A child may end while its parent waits for another message.
        if "status" in message:
            self._statuses[int(message["pid"])] = int(message["status"])
        return message


class JobProcess:
    """A running job process, created by `ForkServer.fork_child`."""

    def __init__(self, zygote: ForkServer, pid: int, event_fd: int, control_fd: int) -> None:
        self.pid = pid
        self._zygote = zygote
        self._event_fd = event_fd
        self._control_fd: int | None = control_fd
        self._buffer = b""
        self.ended = False
        # With a process descriptor, a signal never reaches another process that got the same
        # number. Only Linux has them.
        self._pidfd: int | None = None
        if hasattr(os, "pidfd_open"):
            # It may have ended and been reaped already; its status still comes from the zygote.
            with contextlib.suppress(ProcessLookupError):
                self._pidfd = os.pidfd_open(pid)

    def fileno(self) -> int:
        """Return the descriptor of the event pipe, for `select`."""
        return self._event_fd

    def read_child_events(self, timeout_s: float) -> list[JobEvent]:
        """Return the events that the job process sends within `timeout_s` seconds.

        Sets `ended` at the end of the pipe.
        """
        if self.ended or not select.select([self._event_fd], [], [], timeout_s)[0]:
            return []
        data = os.read(self._event_fd, 1 << 20)
        if not data:
            self.ended = True
            return []
        *event_lines, self._buffer = (self._buffer + data).split(b"\n")
        # A line without an end would otherwise fill the worker's memory.
        if len(self._buffer) > LINE_BYTES:
            self.kill_process()
            self._buffer = b""
        return [
            event
            for event_line in event_lines
            if (event := _parse_event_line(event_line)) is not None
        ]

    def request_snapshot(self) -> None:
        """Ask the job process to write a snapshot at the next step and to continue training."""
        self._send_control_request(JobControlRequest.SNAPSHOT)

    def request_best_state_now(self) -> None:
        """Ask the job process to write its best validated state at the next step and to continue
        training.
        """
        self._send_control_request(JobControlRequest.ANYTIME)

    def request_stop(self) -> None:
        """Ask the job process to write a snapshot at the next step and to end."""
        self._send_control_request(JobControlRequest.STOP)

    def kill_process(self) -> None:
        """Kill the job process at once."""
        # The process may have ended by itself meanwhile.
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            elif not hasattr(os, "pidfd_open") and not self.ended:
                # Until its pipe has ended, the process has its number for certain.
                os.kill(self.pid, signal.SIGKILL)

    def close_and_wait(self, timeout_s: float = 5.0) -> int | None:
        """Close the pipes and wait for the job process, killing it after `timeout_s`; return its
        exit code.
        """
        deadline = time.monotonic() + timeout_s
        while not self.ended and time.monotonic() < deadline:
            self.read_child_events(max(0.0, deadline - time.monotonic()))
        self._close_control_pipe()  # a child that still runs exits now
        if not self.ended:
            self.kill_process()
        status = self._zygote.wait_for_child_status(self.pid, 5.0)
        os.close(self._event_fd)
        if self._pidfd is not None:
            # The zygote cannot tell, so the process descriptor has to show the end.
            if status is None:
                self.kill_process()
                select.select([self._pidfd], [], [], 5.0)  # readable when the process is gone
            os.close(self._pidfd)
            self._pidfd = None
        return status

    def _send_control_request(self, request: JobControlRequest) -> None:
        if self._control_fd is not None:
            # it has just ended, and the event pipe tells how
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control_fd, request.value.encode())

    def _close_control_pipe(self) -> None:
        if self._control_fd is not None:
            os.close(self._control_fd)
            self._control_fd = None


def _parse_event_line(line: bytes) -> JobEvent | None:
    """Parse a line of output of a job process as an event; None if it is not one."""
    try:
        return parse_job_event_line(line)
    except ValueError:
        log.warning("not an event", line=line[:200].decode(errors="replace"))
        return None


def _has_fileno(stream: Any) -> bool:
    try:
        return int(stream.fileno()) >= 0
    except (AttributeError, OSError, ValueError):
        return False
