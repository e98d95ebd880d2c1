"""Control of a run through a pipe: a thread reads requests, and the loop checks a flag.

A closed pipe means that no process is left to receive the result: this process ends at once.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

from core.contract.jobs.control_request import JobControlRequest

EXIT_ORPHANED = 3
_GOES_ON = (JobControlRequest.SNAPSHOT, JobControlRequest.ANYTIME)


class ControlRequestSource(Protocol):
    """Interface for control requests (stop, snapshot …) that the training loop checks between
    steps.
    """

    @property
    def has_pending_request(self) -> bool:
        """True if a control request is waiting."""

    def take_control_request(self) -> JobControlRequest | None:
        """Return one pending control request, and clear it; None if there is none."""


class EmptyControlRequestSource:
    """A source of control requests that never has one."""

    has_pending_request = False

    def take_control_request(self) -> JobControlRequest | None:
        """Return None, since there are no control requests."""
        return None


class PipeControlRequestSource:
    """A source of control requests that reads them from a pipe, a byte each.

    A stop outranks the others and is never dropped for them.
    """

    def __init__(self, fd: int) -> None:
        self.has_pending_request = False
        self._stop = False
        self._wanted: set[JobControlRequest] = set()
        self._lock = (
            threading.Lock()
        )  # the reading thread and `take_control_request` change the same fields
        self._fd = fd
        # A daemon thread does not hold up the exit of the process.
        threading.Thread(
            target=self._read_requests_and_exit_when_pipe_closes, name="control", daemon=True
        ).start()

    def take_control_request(self) -> JobControlRequest | None:
        """Return one of the pending control requests, and clear it; a stop clears the others
        too.
        """
        with self._lock:
            if not self.has_pending_request:
                return None
            if self._stop:
                # The stop takes a snapshot anyway, and a best state would delay it.
                self._wanted.clear()
                next_request = JobControlRequest.STOP
            else:
                next_request = next(request for request in _GOES_ON if request in self._wanted)
                self._wanted.remove(next_request)
            self.has_pending_request = bool(self._wanted)
            return next_request

    def _read_requests_and_exit_when_pipe_closes(self) -> None:
        while True:
            # Blocks until a request comes; several may arrive in one read.
            data = os.read(self._fd, 64)
            if not data:
                # Not `sys.exit`, which would end this thread alone.
                os._exit(EXIT_ORPHANED)
            with self._lock:
                self._stop = self._stop or JobControlRequest.STOP.value.encode() in data
                self._wanted |= {request for request in _GOES_ON if request.value.encode() in data}
                self.has_pending_request = True
