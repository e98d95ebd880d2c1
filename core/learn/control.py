"""How whoever holds the control pipe steers a run: a thread reads it, the loop looks at a flag.

Byte `s`: write a snapshot at the next step and go on. Byte `p`: write one and stop. A closed pipe means that
nobody is there to receive the result: the process ends at once.
"""

from __future__ import annotations

import os
import threading

EXIT_ORPHANED = 3


class NoControl:
    """Nothing is ever asked for."""

    pending = False

    def take(self) -> str | None:
        """None."""
        return None


class PipeControl:
    """Requests from a pipe. A stop outranks a snapshot and is not forgotten by it."""

    def __init__(self, fd: int) -> None:
        self.pending = False
        self._stop = False
        self._lock = threading.Lock()
        self._fd = fd
        threading.Thread(target=self._read, name="control", daemon=True).start()

    def take(self) -> str | None:
        """The request at hand, "s" or "p", and clear it."""
        with self._lock:
            asked = ("p" if self._stop else "s") if self.pending else None
            self.pending = False
            return asked

    def _read(self) -> None:
        while True:
            data = os.read(self._fd, 64)
            if not data:
                os._exit(EXIT_ORPHANED)
            with self._lock:
                self._stop = self._stop or b"p" in data
                self.pending = True
