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
SERVING = "serving"
ENDING = "ending"
LENGTH = 512
"""Bytes of the lock file; it holds a process id, a state and an address. Earlier releases wrote 32."""


class DataInUse(RuntimeError):
    """Another service uses the data directory.

    Attributes:
        holder: the sentence that names the service, with its address once it has one.
        stop: the command that stops it.
    """

    def __init__(self, data_dir: Path, pid: str, url: str) -> None:
        if url:
            self.holder = (
                f"Perennial already serves {url} with the data directory {data_dir} (process {pid})."
            )
        else:
            self.holder = f"Perennial already runs with the data directory {data_dir} (process {pid})."
        self.stop = f"kill {pid}"
        super().__init__(
            f"{self.holder} Use that one. To run a second one beside it, give it a data directory and a port of its "
            f"own: PERENNIAL_DATA_DIR=other-data PERENNIAL_PORT=8001 perennial serve. To start again with this "
            f"directory, stop the first: {self.stop}."
        )


class Lock:
    """The lock on a data directory."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._write(str(os.getpid()))

    def serve(self, url: str) -> None:
        """Store the address of the service, for a second service that is started."""
        self._write(f"{os.getpid()} {SERVING} {url}")

    def end(self) -> None:
        """Mark that the service is stopping, so that one started meanwhile waits for it."""
        self._write(f"{os.getpid()} {ENDING}")

    def _write(self, text: str) -> None:
        # always the same length, so a reader never sees half of it
        os.pwrite(self._file, text.encode().ljust(LENGTH), 0)


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
        pid, state, url, *_ = [*os.pread(file, LENGTH, 0).decode().split(), "", "", ""]
        if state != ENDING and time.monotonic() > until:
            raise DataInUse(data_dir, pid or "PID", url)
        time.sleep(LOOK_S)
