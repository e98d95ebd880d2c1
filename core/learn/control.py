"""How whoever holds the control pipe steers a run: a thread reads it, the loop looks at a flag.

Byte `s`: write a snapshot at the next step and go on. Byte `a`: write the best validated state, to be used while
the run goes on. Byte `p`: write a snapshot and stop. A closed pipe means that nobody is there to receive the
result: the process ends at once.
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
    """Requests from a pipe. A stop outranks the others and is not forgotten by them."""

    def __init__(self, fd: int) -> None:
        self.pending = False
        self._stop = False
        self._wanted: set[str] = set()
        self._lock = threading.Lock()
        self._fd = fd
        threading.Thread(target=self._read, name="control", daemon=True).start()

    def take(self) -> str | None:
        """One of the requests at hand, "p", "s" or "a", and clear it; a stop clears the others too."""
        with self._lock:
            if not self.pending:
                return None
            if self._stop:
                self._wanted.clear()
                asked = "p"
            else:
                asked = max(self._wanted)
                self._wanted.remove(asked)
            self.pending = bool(self._wanted)
            return asked

    def _read(self) -> None:
        while True:
            data = os.read(self._fd, 64)
            if not data:
                os._exit(EXIT_ORPHANED)
            with self._lock:
                self._stop = self._stop or b"p" in data
                self._wanted |= {chr(byte) for byte in data} & {"s", "a"}
                self.pending = True
