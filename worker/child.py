"""The worker's side of a job process: start it through the zygote, talk to it, end it.

The worker holds the only write end of the control pipe: when the worker dies, however it dies, the pipe
closes and the child exits. Events come back as JSON lines; the end of that pipe is the end of the child.
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

from core import helper_process
from core.protocol.control_request import ControlRequest
from core.protocol.job_event import JobEvent, event_of

log = structlog.get_logger(__name__)


class ZygoteMessage(TypedDict, total=False):
    """A line of the zygote: it is `ready`; it has forked `pid`; `pid` has ended with `status`; it ends for `error`."""

    ready: bool
    pid: int
    status: int
    error: str


ROOT = Path(__file__).resolve().parent.parent

READY_S = 120.0
"""A cold disk may need long for the zygote's imports."""
SPAWN_S = 20.0
CLOSE_S = 0.3
"""A zygote that still imports does not notice that its socket closed."""
LINE_BYTES = 64 << 20
"""A longer event line is not ours; the child is ended."""

MALLOC = {
    # glibc gives large blocks back at every step and faults them in again; measured 1.13-1.15 x.
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
CUBLAS = {
    # Read when CUDA starts. With buffers of a fixed size, products give the same bits each time.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
NO_CUDA = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""torch counts devices by NVML, which leaves CUDA closed: a fork could not use it, see `worker.cuda_free`."""
COMMAND = (sys.executable, "-m", "worker.zygote")


class ZygoteDied(Exception):
    """The zygote ended, or did not answer in time: start another for the next attempt."""


class Zygote:
    """A running zygote process.

    Args:
        command: how to start it; the number of an inherited socket is appended.
        inherited: descriptors that it and its children keep open.
    """

    def __init__(self, command: Sequence[str] = COMMAND, inherited: Sequence[int] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *inherited],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_fileno(sys.stderr) else None,
                env=helper_process.environment(**MALLOC, **CUBLAS, **NO_CUDA, OPENBLAS_NUM_THREADS="1"),
                start_new_session=True,  # a terminal's Ctrl-C is for the worker alone
            )
        self._socket = ours
        self._buffer = b""
        self._statuses: dict[int, int] = {}
        self._ready = False

    @property
    def pid(self) -> int:
        """Of the process that children are forked from."""
        return self._process.pid

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Return when children can be forked at once.

        Raises:
            ZygoteDied: it ended or took longer.
        """
        deadline = time.monotonic() + timeout_s
        while not self._ready:
            self._ready = bool(self._message(deadline).get("ready"))

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def spawn(self, spec: Path, data_bytes: int = 0) -> "Child":
        """Fork a child that runs the job described by the file `spec`.

        Args:
            data_bytes: that it may allocate beyond what it is forked with (`RLIMIT_DATA`); 0: no limit.

        Raises:
            ZygoteDied: no child could be started.
        """
        self.wait_ready()
        event_read, event_write = os.pipe2(os.O_CLOEXEC)
        control_read, control_write = os.pipe2(os.O_CLOEXEC)
        try:
            request = json.dumps({"spec": str(spec), "data_bytes": data_bytes}).encode()
            socket.send_fds(self._socket, [request], [event_write, control_read])
            pid = self._started(time.monotonic() + SPAWN_S)
        except (OSError, ZygoteDied) as error:
            os.close(event_read)
            os.close(control_write)
            raise ZygoteDied(str(error)) from error
        finally:
            os.close(event_write)
            os.close(control_read)
        return Child(self, pid, event_read, control_write)

    def status(self, pid: int, timeout_s: float) -> int | None:
        """A child's exit code (negative: the signal that ended it); None when nobody can tell."""
        deadline = time.monotonic() + timeout_s
        try:
            while pid not in self._statuses:
                self._message(deadline)
        except ZygoteDied:
            return None
        return self._statuses.pop(pid)

    def close(self) -> None:
        """End it and wait; a child in work ends by its control pipe, not by this."""
        self._socket.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _started(self, deadline: float) -> int:
        while True:
            message = self._message(deadline)
            if "pid" in message and "status" not in message:
                return int(message["pid"])

    def _message(self, deadline: float) -> ZygoteMessage:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                raise ZygoteDied("The zygote did not answer in time.")
            try:
                data = self._socket.recv(4096)
            except OSError as error:
                raise ZygoteDied(f"The zygote's socket failed: {error}.") from error
            if not data:
                raise ZygoteDied("The zygote ended.")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: ZygoteMessage = json.loads(line)
        if "error" in message:
            raise ZygoteDied(message["error"])
        if "status" in message:
            self._statuses[int(message["pid"])] = int(message["status"])
        return message


class Child:
    """A running job process; made by `Zygote.spawn`."""

    def __init__(self, zygote: Zygote, pid: int, event_fd: int, control_fd: int) -> None:
        self.pid = pid
        self._zygote = zygote
        self._event_fd = event_fd
        self._control_fd: int | None = control_fd
        self._buffer = b""
        self.ended = False
        # A process descriptor: a signal never reaches another process that got the same number.
        try:
            self._pidfd: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._pidfd = None

    def fileno(self) -> int:
        """The event pipe, for `select`."""
        return self._event_fd

    def events(self, timeout_s: float) -> list[JobEvent]:
        """The events that arrive within `timeout_s` seconds; sets `ended` at the end of the pipe."""
        if self.ended or not select.select([self._event_fd], [], [], timeout_s)[0]:
            return []
        data = os.read(self._event_fd, 1 << 20)
        if not data:
            self.ended = True
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > LINE_BYTES:
            self.kill()
            self._buffer = b""
        return [event for line in lines if (event := _parsed(line)) is not None]

    def snapshot(self) -> None:
        """Ask for a snapshot at the next step; training goes on."""
        self._control(ControlRequest.SNAPSHOT)

    def anytime(self) -> None:
        """Ask for the best validated state at the next step; training goes on."""
        self._control(ControlRequest.ANYTIME)

    def stop(self) -> None:
        """Ask for a snapshot at the next step and an orderly end."""
        self._control(ControlRequest.STOP)

    def kill(self) -> None:
        """End it at once."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def finish(self, timeout_s: float = 5.0) -> int | None:
        """Close the pipes, wait for the end (by force after `timeout_s`) and return the exit code."""
        deadline = time.monotonic() + timeout_s
        while not self.ended and time.monotonic() < deadline:
            self.events(max(0.0, deadline - time.monotonic()))
        self._close_control()  # a child that still runs exits now
        if not self.ended:
            self.kill()
        status = self._zygote.status(self.pid, 5.0)
        os.close(self._event_fd)
        if self._pidfd is not None:
            if status is None:
                self.kill()
                select.select([self._pidfd], [], [], 5.0)  # readable when the process is gone
            os.close(self._pidfd)
            self._pidfd = None
        return status

    def _control(self, request: ControlRequest) -> None:
        if self._control_fd is not None:
            with contextlib.suppress(BrokenPipeError):  # it has just ended: the event pipe tells how
                os.write(self._control_fd, request.value.encode())

    def _close_control(self) -> None:
        if self._control_fd is not None:
            os.close(self._control_fd)
            self._control_fd = None


def _parsed(line: bytes) -> JobEvent | None:
    try:
        return event_of(line)
    except ValueError:
        log.warning("not an event", line=line[:200].decode(errors="replace"))
        return None


def _has_fileno(stream: Any) -> bool:
    try:
        return int(stream.fileno()) >= 0
    except (AttributeError, OSError, ValueError):
        return False
