"""Files of a source: confined to its folder, and checked for changes when they are read."""

import os
import stat
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

from perennial.pack.errors import PackError, PathOutsideFolder, SourceChanged
from perennial.pack.images import ImageSource
from perennial.pack.text import quote_name

_PIECE = 1 << 20
_MOST_HIDDEN = 20


class SourceFolder:
    """A source's folder, which lists its files and refuses paths that lead out of it.

    Args:
        allow_outside: follow paths and links that leave the folder.
    """

    def __init__(self, folder: Path, allow_outside: bool = False) -> None:
        self.folder, self.allow_outside = folder, allow_outside
        self._real = os.path.realpath(folder)
        self._real_of: dict[str, str] = {}  # folder → real path; most files share one
        self.hidden: list[str] = []  # the first hidden folders left out by a walk

    def resolve_named_path(self, relative: str, said_by: str = "") -> str:
        """Resolve a path named in a source's file against the folder. Raises PathOutsideFolder.

        Args:
            said_by: the place that names it, for the message.

        Raises:
            PathOutsideFolder: it leads out of the folder.
        """
        path = os.path.join(self.folder, relative)  # noqa: PTH118  # pathlib adds 5 µs per file
        if not self.allow_outside and not self.is_inside_root(path):
            link = "a link that leads" if not said_by and os.path.lexists(path) else "which lies"
            raise PathOutsideFolder(
                f"{said_by or 'The source'} has {quote_name(relative)}, {link} out of the folder "
                f"{quote_name(self.folder)}."
            )
        return path

    def is_inside_root(self, path: str) -> bool:
        """Return True if a path lies in the source's folder after links are followed."""
        # Each folder is resolved once, because most files share one and realpath is slow.
        above, name = os.path.split(path)
        if name in ("", ".", "..") or os.path.islink(path):  # noqa: PTH114
            real = os.path.realpath(path)
        else:
            if above not in self._real_of:
                self._real_of[above] = os.path.realpath(above)
            real = os.path.join(self._real_of[above], name)  # noqa: PTH118
        # With a separator, because /data-secret also begins with /data.
        return real == self._real or real.startswith(self._real.rstrip(os.sep) + os.sep)

    def list_files(self, below: str = "") -> Iterator[str]:
        """Yield the files below a folder as sorted relative paths, without hidden ones.

        Links are followed if they stay in the folder. Hidden files and folders are left out;
        `hidden` lists the folders.

        Raises:
            PackError: a link leaves the folder, is broken, or leads to a folder that contains it.
        """
        top = self.resolve_named_path(below)
        yield from self._walk_folder_tree(
            top, f"{below}/" if below else "", (os.path.realpath(top),)
        )

    def _walk_folder_tree(self, folder: str, prefix: str, above: tuple[str, ...]) -> Iterator[str]:
        try:
            with os.scandir(folder) as scan:
                # Sort a folder by its name with a slash, as it appears in its files' paths.
                entries = sorted((e.name + "/" if e.is_dir() else e.name, e) for e in scan)
        except OSError as error:
            raise PackError(
                f"The folder {quote_name(folder)} cannot be read: {error.strerror}."
            ) from error
        for name, entry in entries:
            if name[0] == ".":
                if name.endswith("/") and len(self.hidden) < _MOST_HIDDEN:
                    self.hidden.append(prefix + entry.name)
                continue
            if entry.is_symlink():
                self.resolve_named_path(prefix + entry.name)
            if name.endswith("/"):
                # Below a resolved folder, an entry that is no link needs no
                # realpath, which is slow.
                real = (
                    os.path.realpath(entry.path)
                    if entry.is_symlink()
                    else f"{above[-1]}{os.sep}{entry.name}"
                )
                # Links may form a circle, and the walk would never end.
                if real in above:
                    raise PackError(
                        f"The link {quote_name(entry.path)} leads to a folder that it lies in; "
                        f"remove it."
                    )
                yield from self._walk_folder_tree(entry.path, prefix + name, (*above, real))
            else:
                yield prefix + name


class ListedFileStates:
    """Sizes and modification times of files when they were listed, to detect later changes."""

    def __init__(self) -> None:
        self.sizes = array("q")
        self._times = array("q")

    def record_file_state(self, path: str) -> None:
        """Record size and modification time of the next file. Raises PackError if it is no regular
        file.
        """
        try:
            status = os.stat(path)  # noqa: PTH116  # as above
        except OSError as error:
            raise PackError(
                f"The file {quote_name(path)} cannot be read: {error.strerror}."
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise PackError(f"{quote_name(path)} is not a file.")
        self.sizes.append(status.st_size)
        self._times.append(status.st_mtime_ns)

    def require_file_unchanged(self, number: int, path: str, fd: int) -> None:
        """Raise SourceChanged if an open file differs from its recorded size and time."""
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (self.sizes[number], self._times[number]):
            was = f"{self.sizes[number]:,} bytes, and now it has {now.st_size:,}"
            raise SourceChanged(
                f"The file {quote_name(path)} has changed since it was listed: it had {was}. Let "
                f"it settle, and open the "
                "batch again."
            )

    def read_pieces(self, number: int, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a listed file from `start` on. Raises SourceChanged if it has changed."""
        try:
            # O_NONBLOCK: opening a pipe that has replaced the file would wait for a writer.
            fd = os.open(
                path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
            )
        except OSError as error:
            raise SourceChanged(
                f"The file {quote_name(path)} was there when it was listed, and cannot be read "
                f"now: {error.strerror}. Open "
                "the batch again."
            ) from error
        try:
            # On the descriptor, since the path may be replaced between a look and the reading.
            self.require_file_unchanged(number, path, fd)
            os.lseek(fd, start, os.SEEK_SET)
            while piece := os.read(fd, _PIECE):
                yield piece
            # Again at the end, for a file that is written to while it is read.
            self.require_file_unchanged(number, path, fd)
        finally:
            os.close(fd)


class FileImages(ImageSource):
    """Images that are separate files on disk, with the sizes recorded when listed.

    Args:
        folder: base of relative file paths.
    """

    def __init__(self, origin: str, folder: Path) -> None:
        super().__init__(origin)
        self._folder = folder
        self._paths: list[str] = []  # usually the same strings as the rows' names
        self._seen = ListedFileStates()

    def add_image_file(self, path: str) -> None:
        """Add the file of the next image, with its size. Raises PackError."""
        self._seen.record_file_state(os.path.join(self._folder, path))  # noqa: PTH118  # as above
        self._paths.append(path)

    def collect_image_byte_sizes(self) -> "array[int]":
        """Return the sizes of the image files, as recorded when they were listed."""
        return self._seen.sizes

    def iterate_image_contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Yield the bytes of each image file in pieces of 1 MiB."""
        for number in range(first, len(self._paths)):
            yield self._seen.read_pieces(number, os.path.join(self._folder, self._paths[number]))  # noqa: PTH118
