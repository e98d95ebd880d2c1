"""Batches in a watched folder: which of them are complete, and where each moves after its job.

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

from perennial._formats import FORMATS
from perennial.errors import ConfigError, PerennialError
from perennial.text import escape_control_characters, make_text_one_line

LEARNED, HELD, FAILED = "learned", "held", "failed"
PLACES = (LEARNED, HELD, FAILED)
MARK = ".done"
"""Marks a batch as complete: the name of a file in its folder, or a suffix to an archive's name."""
LOCK = ".watch-folder.lock"


class WatchedFolderInUseError(PerennialError):
    """Another process watches the same folder for batches."""


class UnsendableBatchError(ConfigError):
    """A batch in the watched folder has a link or special file, or cannot be read."""


@dataclass(frozen=True)
class FoundBatch:
    """A batch found in the watched folder, with the state of its files.

    Attributes:
        changed_at: time of the last change of anything in it, in seconds since 1970.
        state: names, sizes and times of all its entries; an equal state means that it has not
            changed.
        problem: reason why it cannot be sent, such as a link, a pipe or an unreadable folder.
    """

    path: Path
    changed_at: float
    state: tuple[tuple[str, int, int, int], ...]
    is_marked: bool
    problem: str | None = None

    def is_batch_complete(self, quiet_s: float) -> bool:
        """Return True if the batch seems complete: marked, or unchanged for `quiet_s` seconds."""
        return self.is_marked or time.time() - self.changed_at >= quiet_s


def find_batches_in_folder(folder: Path) -> list[FoundBatch]:
    """Return the batches (folders and archives) in the watched folder, sorted by name."""
    batches = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name.startswith(".") or entry.name in PLACES or entry.is_symlink():
                continue
            is_archive = FORMATS.has_archive_ending(entry.name) and entry.is_file(
                follow_symlinks=False
            )
            if is_archive or entry.is_dir(follow_symlinks=False):
                batch = read_present_state_of_batch_files(Path(entry.path))
                if batch is not None:
                    batches.append(batch)
    return batches


def read_present_state_of_batch_files(path: Path) -> FoundBatch | None:
    """Read the present state of a batch's files in the watched folder; None if it has disappeared."""
    state, latest, problem = [], 0.0, None
    try:
        try:
            for name, status in _iterate_batch_files(path):
                # Also ctime: a copy that preserves times looks old while it is still being written.
                latest = max(latest, status.st_mtime, status.st_ctime)
                state.append((name, status.st_size, status.st_mtime_ns, status.st_ino))
                problem = problem or _explain_link_or_special_file(
                    make_text_one_line(f"{path.name}/{name}"), status.st_mode
                )
        except FileNotFoundError:
            return None
        except OSError as error:  # no permission, a name that is too long, a share that is gone
            problem = make_text_one_line(f"It cannot be read: {error.filename}: {error.strerror}.")
        mark = path / MARK if path.is_dir() else path.with_name(path.name + MARK)
        is_marked = stat.S_ISREG(mark.lstat().st_mode) if os.path.lexists(mark) else False
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FoundBatch(path, latest, tuple(sorted(state)), is_marked, problem)


def _explain_link_or_special_file(name: str, mode: int) -> str | None:
    """Explain why a link or special file in a batch is refused; None for a file or a folder."""
    if stat.S_ISLNK(mode):
        return f"It holds a link, {name}: links are not followed."
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return f"It holds {name}, which is no file: a pipe, a socket or a device is not read."
    return None


def _iterate_batch_files(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the relative path and status of each file of a batch in the watched folder.

    Hidden ones are left out.
    """
    yield "", path.lstat()
    if not stat.S_ISDIR(path.lstat().st_mode):
        return
    # A stack instead of recursion, so that deeply nested folders raise no RecursionError.
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


def move_batch_to_outcome_folder(batch: Path, outcome: str, reason: str | None = None) -> Path:
    """Move a finished batch to the folder `learned`, `held` or `failed`, with the reason in a file.

    If the name is taken there, a number is appended.

    Returns:
        The new path of the batch.

    Raises:
        ConfigError: the destination is a link, or no folder.
    """
    folder = batch.parent / outcome
    folder.mkdir(exist_ok=True)
    # Behind a link, batches would leave the watched folder.
    if folder.is_symlink() or not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of its own: batches go there.")
    target, number = folder / batch.name, 1
    # lexists, because a broken link takes the name as well.
    while os.path.lexists(target) or os.path.lexists(_get_reason_file_path(target)):
        number += 1
        target = folder / f"{number}-{batch.name}"
    if reason is not None:
        # The reason is written first, so that a moved batch has it even if the process is killed
        # between the two steps.
        _get_reason_file_path(target).write_text(
            escape_control_characters(reason.rstrip()) + "\n", encoding="utf-8"
        )
    is_archive = not batch.is_dir()
    batch.rename(target)
    if is_archive:  # the mark of a folder lies in it
        batch.with_name(batch.name + MARK).unlink(missing_ok=True)
    return target


def _get_reason_file_path(target: Path) -> Path:
    return target.with_name(target.name + ".txt")


@contextmanager
def lock_watched_folder(folder: Path) -> Iterator[None]:
    """Lock the watched folder for this process until the block ends or the process dies.

    Raises:
        WatchedFolderInUseError: another living process holds the lock.
        ConfigError: the folder does not exist, or is not writable.
    """
    path = folder / LOCK
    try:
        # O_NOFOLLOW: with a link, somebody else could choose the file that is overwritten.
        lock = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be watched: {error.strerror or error}.") from error
    try:
        if not _try_take_lock(lock):
            holder = (
                make_text_one_line(os.pread(lock, 100, 0).decode("utf-8", "replace"))
                or "another process"
            )
            raise WatchedFolderInUseError(f"{folder} is watched already, by {holder}.")
        os.ftruncate(lock, 0)
        # The text is for the error message of a process that finds the folder locked.
        os.pwrite(lock, f"process {os.getpid()} of {_get_host_name()}".encode(), 0)
        yield
    finally:
        os.close(lock)  # closing releases the lock, as the end of the process does


def _try_take_lock(lock: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return _try_take_windows_lock(lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConfigError(
            f"The folder cannot be locked ({error.strerror or error}): watch one on a disk of this "
            f"machine."
        ) from error
    return True


def _try_take_windows_lock(lock: int) -> bool:
    import msvcrt

    try:
        # past the text of the file: Windows does not let others read a locked byte
        os.lseek(lock, 1 << 20, os.SEEK_SET)
        msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    return True


def _get_host_name() -> str:
    import platform

    return platform.node() or "this machine"
