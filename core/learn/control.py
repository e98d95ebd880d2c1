"""How whoever holds the control pipe steers a run: a thread reads it, the loop looks at a flag.

A closed pipe means that nobody is there to receive the result: the process ends at once.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

from core.protocol.control_request import ControlRequest

EXIT_ORPHANED = 3
_GOES_ON = (ControlRequest.SNAPSHOT, ControlRequest.ANYTIME)


class Control(Protocol):
    """Where the loop gets requests between steps. `pending` is cheap."""

    pending: bool

    def take(self) -> ControlRequest | None:
        """One pending request, which is cleared; None when there is none."""


class NoControl:
    """Nothing is ever asked for."""

    pending = False

    def take(self) -> ControlRequest | None:
        """None."""
        return None


class PipeControl:
    """Requests from a pipe, a byte each. A stop outranks the others and is not forgotten by them."""

    def __init__(self, fd: int) -> None:
        self.pending = False
        self._stop = False
        self._wanted: set[ControlRequest] = set()
        self._lock = threading.Lock()
        self._fd = fd
        threading.Thread(target=self._read, name="control", daemon=True).start()

    def take(self) -> ControlRequest | None:
        """One of the requests at hand, and clear it; a stop clears the others too."""
        with self._lock:
            if not self.pending:
                return None
            if self._stop:
                self._wanted.clear()
                asked = ControlRequest.STOP
            else:
                asked = next(request for request in _GOES_ON if request in self._wanted)
                self._wanted.remove(asked)
            self.pending = bool(self._wanted)
            return asked

    def _read(self) -> None:
        while True:
            data = os.read(self._fd, 64)
            if not data:
                os._exit(EXIT_ORPHANED)
            with self._lock:
                self._stop = self._stop or ControlRequest.STOP.value.encode() in data
                self._wanted |= {request for request in _GOES_ON if request.value.encode() in data}
                self.pending = True
