"""One service of a data directory: a lock that names the process which holds it.

Standard library only, as the launcher that uses it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "serve.lock"
PATIENCE_S = 2.0
"""A service that was asked to stop has said so by then."""
LOOK_S = 0.2
ENDING = "ending"


class DataInUse(RuntimeError):
    """Another service uses the data directory; the message says which, and what to do."""


class Lock:
    """A data directory that is held."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._write(str(os.getpid()))

    def end(self) -> None:
        """Say that the service stops: one that is started meanwhile waits for it."""
        self._write(f"{os.getpid()} {ENDING}")

    def _write(self, text: str) -> None:
        os.pwrite(self._file, text.encode().ljust(32), 0)  # always as long, so never half of it is read


@contextmanager
def held(data_dir: Path) -> Iterator[Lock | None]:
    """Hold a data directory while the block runs; None where its file system has no locks.

    Raises:
        DataInUse: another service holds it, and does not stop.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        file = os.open(data_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # the preparation says what is wrong with the folder
        yield None
        return
    try:
        yield Lock(file) if _take(file, data_dir) else None
    finally:
        os.close(file)


def _take(file: int, data_dir: Path) -> bool:
    """Wait for the lock where its holder stops. Returns False where there are no locks. Raises DataInUse."""
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
