"""A lock that lets only one service use a data directory, and names the process that holds it.

Only the standard library is used, as in the launcher.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "serve.lock"
PATIENCE_S = 2.0
"""Seconds within which a service that was asked to stop has marked that in the lock."""
LOOK_S = 0.2
ENDING = "ending"


class DataInUse(RuntimeError):
    """Another service uses the data directory; the message says which one and what to do."""


class Lock:
    """The lock on a data directory."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._write(str(os.getpid()))

    def end(self) -> None:
        """Mark that the service is stopping, so that one started meanwhile waits for it."""
        self._write(f"{os.getpid()} {ENDING}")

    def _write(self, text: str) -> None:
        # always the same length, so a reader never sees half of it
        os.pwrite(self._file, text.encode().ljust(32), 0)


@contextmanager
def held(data_dir: Path) -> Iterator[Lock | None]:
    """Hold a data directory while the block runs; yield None if its file system has no locks.

    Raises:
        DataInUse: another service holds it and is not stopping.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        file = os.open(data_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # the preparation reports the problem with the folder
        yield None
        return
    try:
        yield Lock(file) if _take(file, data_dir) else None
    finally:
        os.close(file)


def _take(file: int, data_dir: Path) -> bool:
    """Wait for the lock while its holder is stopping; return False if there are no locks.

    Raises:
        DataInUse: the holder is not stopping.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        except OSError:
            return False
        pid, _, state = os.pread(file, 32, 0).decode().strip().partition(" ")
        if state != ENDING and time.monotonic() > until:
            raise DataInUse(
                f"The data directory {data_dir} is in use by another service, process {pid or 'unknown'}. Stop it "
                f"(kill {pid or 'PID'}), or choose another directory: PERENNIAL_DATA_DIR=other-data perennial serve."
            )
        time.sleep(LOOK_S)
