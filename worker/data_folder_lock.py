"""A lock that lets only one service use a data directory, and names the process that holds it.

Only the standard library is used, as in the launcher.
"""

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "serve.lock"
PATIENCE_S = 2.0
"""Seconds within which a service that was asked to stop has marked that in the lock."""
ENDING_PATIENCE_S = 60.0
"""Seconds within which a service that is stopping has ended, beyond those that its jobs may take.
"""
LOOK_S = 0.2
SERVING = "serving"
ENDING = "ending"
LENGTH = 512
"""Bytes of the lock file: a process id, a state, and an address or a grace period. Earlier releases
wrote 32.
"""


class DataDirectoryInUse(RuntimeError):
    """Another running service uses the data directory.

    Attributes:
        holder: the sentence that names the service, with its address once it has one.
        stop: the command that stops it.
    """

    def __init__(self, data_dir: Path, pid: str, url: str, waited_s: float | None = None) -> None:
        self.stop = f"kill {pid}"
        if waited_s is not None:
            self.holder = (
                f"Perennial (process {pid}) is stopping, but still uses the data directory "
                f"{data_dir} after {waited_s:.0f} seconds."
            )
            self.stop = f"kill -9 {pid}"
            super().__init__(
                f"{self.holder} Wait until it has ended, or end it now: {self.stop}. Then start "
                f"again."
            )
            return
        if url:
            self.holder = (
                f"Perennial already serves {url} with the data directory {data_dir} "
                f"(process {pid})."
            )
        else:
            self.holder = (
                f"Perennial already runs with the data directory {data_dir} (process {pid})."
            )
        super().__init__(
            f"{self.holder} Use that one. To run a second one beside it, give it a data directory "
            f"and a port of its own: PERENNIAL_DATA_DIR=other-data PERENNIAL_PORT=8001 perennial "
            f"serve. To start again with this directory, stop the first: {self.stop}."
        )


class DataDirectoryLock:
    """Lock on a data directory, so that only one service uses it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._write_lock_state(str(os.getpid()))

    def store_service_address(self, url: str) -> None:
        """Store the service's URL beside the lock, to be shown when a second service is started."""
        self._write_lock_state(f"{os.getpid()} {SERVING} {url}")

    def mark_stopping(self, grace_s: float) -> None:
        """Mark in the lock file that the service is stopping, so that a new one waits for it.

        Args:
            grace_s: seconds that its jobs may take to stop.
        """
        self._write_lock_state(f"{os.getpid()} {ENDING} {grace_s:.0f}")

    def _write_lock_state(self, text: str) -> None:
        # always the same length, so a reader never sees half of it
        os.pwrite(self._file, text.encode().ljust(LENGTH), 0)


@contextmanager
def lock_data_directory(data_dir: Path) -> Iterator[DataDirectoryLock | None]:
    """Lock a data directory within the block; yield None if its file system has no locks.

    Raises:
        DataDirectoryInUse: another service holds it and is not stopping, or does not end.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        file = os.open(data_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # the preparation reports the problem with the folder
        yield None
        return
    try:
        yield DataDirectoryLock(file) if _acquire_data_directory_lock(file, data_dir) else None
    finally:
        # The file stays: removing it would let two services hold locks on two files of one name.
        os.close(file)


def _acquire_data_directory_lock(file: int, data_dir: Path) -> bool:
    """Wait for the lock while its holder is stopping; return False if there are no locks.

    Raises:
        DataDirectoryInUse: the holder is not stopping, or has not ended `ENDING_PATIENCE_S` after its grace
            period.
    """
    start = time.monotonic()
    is_announced = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        # Some network file systems have no locks; a service there must still start.
        except OSError:
            return False
        # a damaged file must not hide that the directory is in use
        content = os.pread(file, LENGTH, 0).decode("utf-8", "replace")
        pid, state, detail, *_ = [*content.split(), "", "", ""]
        is_ending = state == ENDING
        # earlier releases store no grace period
        grace_s = int(detail) if is_ending and detail.isdecimal() else 0
        waited_s = time.monotonic() - start
        if is_ending and waited_s - ENDING_PATIENCE_S > grace_s:
            raise DataDirectoryInUse(data_dir, pid, "", waited_s)
        if not is_ending and waited_s > PATIENCE_S:
            # The holder may not have written its process id yet.
            raise DataDirectoryInUse(data_dir, pid or "PID", detail)
        if is_ending and not is_announced:
            is_announced = True
            print(
                f"Waiting for Perennial (process {pid}) to stop using {data_dir} …",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(LOOK_S)
