"""Files of a source: found without leaving its folder, and read only while they are what they were when found."""

import os
import stat
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

from perennial.pack.errors import LeavesFolder, PackError, SourceChanged
from perennial.pack.images import Images
from perennial.pack.text import show

_PIECE = 1 << 20
_MOST_HIDDEN = 20


class Root:
    """The folder that the files of a source must lie in.

    allow_outside: follow paths and links that leave it all the same.
    """

    def __init__(self, folder: Path, allow_outside: bool = False) -> None:
        self.folder, self.allow_outside = folder, allow_outside
        self._real = os.path.realpath(folder)
        self._real_of: dict[str, str] = {}  # folder → where its links lead: most files share one
        self.hidden: list[str] = []  # the first hidden folders that a walk has left out

    def path(self, relative: str, said_by: str = "") -> str:
        """The path of a file or folder that a source names, relative to the folder or absolute.

        `said_by`: where it is named, for the message. Raises LeavesFolder where it leaves the folder.
        """
        path = os.path.join(self.folder, relative)  # noqa: PTH118  # pathlib would cost a million times 5 µs
        if not self.allow_outside and not self.holds(path):
            link = "a link that leads" if not said_by and os.path.lexists(path) else "which lies"
            raise LeavesFolder(
                f"{said_by or 'The source'} has {show(relative)}, {link} out of the folder {show(self.folder)}."
            )
        return path

    def holds(self, path: str) -> bool:
        """Whether a path, its links followed, lies in the folder."""
        above, name = os.path.split(path)
        if name in ("", ".", "..") or os.path.islink(path):  # noqa: PTH114
            real = os.path.realpath(path)
        else:
            if above not in self._real_of:
                self._real_of[above] = os.path.realpath(above)
            real = os.path.join(self._real_of[above], name)  # noqa: PTH118
        return real == self._real or real.startswith(self._real.rstrip(os.sep) + os.sep)

    def walk(self, below: str = "") -> Iterator[str]:
        """The files in the folder as sorted paths from it, with `/`; links are followed where they stay in it.

        Hidden files and folders are left out; `hidden` has the folders. Raises PackError for a link that leaves the
        folder or leads to nothing, and for a folder that contains itself by a link.
        """
        top = self.path(below)
        yield from self._walk(top, f"{below}/" if below else "", (os.path.realpath(top),))

    def _walk(self, folder: str, prefix: str, above: tuple[str, ...]) -> Iterator[str]:
        try:
            with os.scandir(folder) as found:
                # A folder sorts as its files do: with the slash that follows its name in their paths.
                entries = sorted((e.name + "/" if e.is_dir() else e.name, e) for e in found)
        except OSError as error:
            raise PackError(f"The folder {show(folder)} cannot be read: {error.strerror}.") from error
        for name, entry in entries:
            if name[0] == ".":
                if name.endswith("/") and len(self.hidden) < _MOST_HIDDEN:
                    self.hidden.append(prefix + entry.name)
                continue
            if entry.is_symlink():
                self.path(prefix + entry.name)
            if name.endswith("/"):
                real = (
                    os.path.realpath(entry.path) if entry.is_symlink() else f"{above[-1]}{os.sep}{entry.name}"
                )
                if real in above:
                    raise PackError(
                        f"The link {show(entry.path)} leads to a folder that it lies in; remove it."
                    )
                yield from self._walk(entry.path, prefix + name, (*above, real))
            else:
                yield prefix + name


class Seen:
    """Sizes and times of files when they were found, to notice a change: 16 bytes a file."""

    def __init__(self) -> None:
        self.sizes = array("q")
        self._times = array("q")

    def add(self, path: str) -> None:
        """Look at the next file. Raises PackError where there is none, or something else."""
        try:
            found = os.stat(path)  # noqa: PTH116  # as above
        except OSError as error:
            raise PackError(f"The file {show(path)} cannot be read: {error.strerror}.") from error
        if not stat.S_ISREG(found.st_mode):
            raise PackError(f"{show(path)} is not a file.")
        self.sizes.append(found.st_size)
        self._times.append(found.st_mtime_ns)

    def check(self, number: int, path: str, fd: int) -> None:
        """Raise SourceChanged unless the open file `fd` is as file `number` was."""
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (self.sizes[number], self._times[number]):
            was = f"{self.sizes[number]:,} bytes, and now it has {now.st_size:,}"
            raise SourceChanged(
                f"The file {show(path)} has changed since it was listed: it had {was}. Let it settle, and open the "
                "batch again."
            )

    def pieces(self, number: int, path: str, start: int = 0) -> Iterator[bytes]:
        """The bytes of file `number` from `start` on. Raises SourceChanged where size or time are others."""
        try:
            fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            raise SourceChanged(
                f"The file {show(path)} was there when it was listed, and cannot be read now: {error.strerror}. Open "
                "the batch again."
            ) from error
        try:
            self.check(number, path, fd)
            os.lseek(fd, start, os.SEEK_SET)
            while piece := os.read(fd, _PIECE):
                yield piece
            self.check(number, path, fd)
        finally:
            os.close(fd)


class FileImages(Images):
    """Images that are files of their own: sizes are known without reading them.

    folder: what relative paths of files are relative to.
    """

    def __init__(self, origin: str, folder: Path) -> None:
        super().__init__(origin)
        self._folder = folder
        self._paths: list[str] = []  # most often the very texts that are the rows' names
        self._seen = Seen()

    def add_file(self, path: str) -> None:
        """The file of the next row. Raises PackError."""
        self._seen.add(os.path.join(self._folder, path))  # noqa: PTH118  # as above
        self._paths.append(path)

    def sizes(self) -> "array[int]":
        """As they were listed."""
        return self._seen.sizes

    def contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """File by file, in pieces of 1 MiB."""
        for number in range(first, len(self._paths)):
            yield self._seen.pieces(number, os.path.join(self._folder, self._paths[number]))  # noqa: PTH118
