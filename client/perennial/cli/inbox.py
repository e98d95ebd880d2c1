"""The batches that lie in a folder: which of them are whole, and where each is moved once its job has ended.

No link is followed, and nothing outside the folder is touched.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perennial.errors import ConfigError, PerennialError
from perennial.text import one_line, printable
from perennial.transfer import ARCHIVE_ENDINGS

LEARNED, HELD, FAILED = "learned", "held", "failed"
PLACES = (LEARNED, HELD, FAILED)
MARK = ".done"
"""Inside a folder, or behind the name of an archive: it is whole."""
LOCK = ".watch-folder.lock"


class InUse(PerennialError):
    """Another process has the folder."""


class Unsendable(ConfigError):
    """A batch holds a link, or cannot be read."""


@dataclass(frozen=True)
class Found:
    """A batch in the folder.

    Attributes:
        changed_at: when something in it last changed, in seconds since 1970.
        state: names, sizes and times of all that is in it; equal states: it is unchanged.
        problem: why it cannot be sent: a link or a pipe in it, or a folder that cannot be read.
    """

    path: Path
    changed_at: float
    state: tuple[tuple[str, int, int, int], ...]
    is_marked: bool
    problem: str | None = None

    def is_whole(self, quiet_s: float) -> bool:
        """Return True where it is marked, or was not changed for some seconds."""
        return self.is_marked or time.time() - self.changed_at >= quiet_s


def find_batches(folder: Path) -> list[Found]:
    """Return the folders and archives that lie in a folder, by name, without hidden ones, links and all else."""
    found = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name.startswith(".") or entry.name in PLACES or entry.is_symlink():
                continue
            is_archive = entry.name.lower().endswith(ARCHIVE_ENDINGS) and entry.is_file(follow_symlinks=False)
            if is_archive or entry.is_dir(follow_symlinks=False):
                batch = look_at(Path(entry.path))
                if batch is not None:
                    found.append(batch)
    return found


def look_at(path: Path) -> Found | None:
    """Return a batch as it is now; None: it is gone."""
    state, latest, problem = [], 0.0, None
    try:
        try:
            for name, seen in _walk(path):
                latest = max(latest, seen.st_mtime, seen.st_ctime)
                state.append((name, seen.st_size, seen.st_mtime_ns, seen.st_ino))
                problem = problem or _refuse(one_line(f"{path.name}/{name}"), seen.st_mode)
        except PermissionError as error:
            problem = one_line(f"It cannot be read: {error.filename}: {error.strerror}.")
        mark = path / MARK if path.is_dir() else path.with_name(path.name + MARK)
        is_marked = stat.S_ISREG(mark.lstat().st_mode) if os.path.lexists(mark) else False
    except FileNotFoundError:
        return None
    return Found(path, latest, tuple(sorted(state)), is_marked, problem)


def _refuse(name: str, mode: int) -> str | None:
    """Return why an entry of a batch is not read; None: it is a file or a folder."""
    if stat.S_ISLNK(mode):
        return f"It holds a link, {name}: links are not followed."
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return f"It holds {name}, which is no file: a pipe, a socket or a device is not read."
    return None


def _walk(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield names below a path with their status, the path itself first. Hidden ones are no part of a batch."""
    yield "", path.lstat()
    if not stat.S_ISDIR(path.lstat().st_mode):
        return
    waiting = [""]
    while waiting:
        above = waiting.pop()
        with os.scandir(path / above) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                name = f"{above}{entry.name}"
                yield name, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{name}/")


def put_away(batch: Path, place: str, reason: str | None = None) -> Path:
    """Move a batch to `learned`, `held` or `failed` beside it, with the reason as a text; returns where it is.

    Where the name is taken there, a number is added.

    Raises:
        ConfigError: that place is a link, or no folder.
    """
    folder = batch.parent / place
    folder.mkdir(exist_ok=True)
    if folder.is_symlink() or not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of its own: batches go there.")
    target, number = folder / batch.name, 1
    while os.path.lexists(target) or os.path.lexists(_text_of(target)):
        number += 1
        target = folder / f"{number}-{batch.name}"
    if reason is not None:
        # First: a batch that lies there has its reason, also where the process is killed between the two.
        _text_of(target).write_text(printable(reason.rstrip()) + "\n", encoding="utf-8")
    batch.rename(target)
    batch.with_name(batch.name + MARK).unlink(missing_ok=True)
    return target


def _text_of(target: Path) -> Path:
    return target.with_name(target.name + ".txt")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process until the block or the process ends, also where the process is killed.

    Raises:
        InUse: another living process has it.
        ConfigError: there is no such folder, or it cannot be written.
    """
    path = folder / LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be watched: {error.strerror or error}.") from error
    try:
        if not _take(lock):
            holder = one_line(os.pread(lock, 100, 0).decode("utf-8", "replace")) or "another process"
            raise InUse(f"{folder} is watched already, by {holder}.")
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} of {_machine()}".encode(), 0)
        yield
    finally:
        os.close(lock)  # the system gives it back, as it does of a process that dies


def _take(lock: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return _take_on_windows(lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_on_windows(lock: int) -> bool:
    import msvcrt

    try:
        os.lseek(lock, 1 << 20, os.SEEK_SET)  # behind what it says: a locked byte cannot be read
        msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    return True


def _machine() -> str:
    import platform

    return platform.node() or "this machine"
