"""What a reader of uploaded archives is, and what it finds.

A reader gets bytes that a stranger sent. It believes nothing that it has not checked, keeps within the
limits, opens no path that the archive names, and raises nothing but typed errors that name the entry.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from core.errors import ArchiveHostile
from core.ingest.layout import USUAL, Layout, Reading, arrange
from core.ingest.limits import Limits
from core.ingest.members import Damaged, Members, SizeMismatch, read, read_begin, unpacked
from core.ingest.names import show
from core.ingest.rules.entries import RuleError
from core.ingest.rules.tables import MAX_TABLE_BYTES


@dataclass(frozen=True)
class ImageArray:
    """Images as one array: uint8 [N, height, width] or [N, height, width, channels], in C order.

    name: of the array in reports; member: number of the member that holds it; begin: bytes of the unpacked
    member before the first pixel.
    """

    name: str
    member: int
    begin: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Contents:
    """The checked files of an archive, and which images of which class they are.

    The rows of `layout` are the files of `members`; where there are `arrays`, they are the rows of all arrays
    in turn. `read`: the bytes of a small file among them, by its number; None where the layout is whole already.
    """

    members: Members
    layout: Layout
    arrays: tuple[ImageArray, ...] = ()
    read: Callable[[int], bytes] | None = None

    def laid_out(self, limits: Limits, reading: Reading = USUAL) -> "Contents":
        """The same with the classes of its files, while its archive is open. Raises as `core.ingest.layout.arrange`."""
        if self.read is None:
            return self
        layout = arrange(self.members.names, limits, self.read, reading)
        layout.notes += self.members.notes
        return replace(self, layout=layout, read=None)


class Reader:
    """One upload format.

    name: what a task keeps of it, at most 32 characters; media_types: accepted as Content-Type, the one to
    send first; special_of: name of the format that this one is a special case of, as an npz is a zip:
    declaring either is right.
    """

    name: ClassVar[str]
    media_types: ClassVar[tuple[str, ...]]
    special_of: ClassVar[str | None] = None
    is_packed_whole: ClassVar[bool] = False
    """True where files can only be read from front to back."""

    def sniff(self, first: bytes) -> bool:
        """Whether an upload that begins with these bytes (up to 1024) is of this format."""
        raise NotImplementedError

    def with_names(self, encoding: str) -> "Reader":
        """The reader that takes names which do not say their encoding for this one; itself where the format says it."""
        del encoding
        return self

    def list(self, fd: int, limits: Limits) -> Contents:
        """What the archive at descriptor `fd` holds, by its directory: no image is decoded.

        Raises ArchiveHostile, ArchiveTooLarge, ArchiveInvalid, LabelsInvalid. Memory is bounded by the limits.
        """
        raise NotImplementedError

    def fetch(self, fd: int, contents: Contents, limits: Limits) -> Callable[[int, int], bytes]:
        """Read files of `list`: a function of a file's number, and of how many bytes are wanted at most.

        Where the archive is packed as a whole, numbers must rise. The function raises Damaged and SizeMismatch.
        """
        del limits
        return lambda number, most: read_begin(fd, contents.members, number, most)

    def blocks(self, fd: int, contents: Contents, limits: Limits) -> Callable[[int], Iterator[bytes]]:
        """Unpack files of `list` whole: a function of a file's number that gives its bytes in blocks.

        Where the archive is packed as a whole, numbers must rise. Its iterators raise Unpackable.
        """
        del limits
        return lambda number: unpacked(fd, contents.members, number)

    def open(self, fd: int, path: Path, limits: Limits, scratch: Path) -> tuple[Contents, Path]:
        """The same contents, and the file in which their offsets count.

        That is the archive itself (`path`), or one that is made of it in the folder `scratch`. Raises as `list`.
        """
        del scratch
        return self.list(fd, limits), path


def arranged(fd: int, members: Members, limits: Limits) -> Contents:
    """The files of an archive, whose classes their names and label tables will say (`Contents.laid_out`)."""
    del limits
    return Contents(members, Layout("folders"), read=lambda i: small_file(fd, members, i))


def small_file(fd: int, members: Members, i: int) -> bytes:
    """The bytes of a file that may be a label table. Raises RuleError, and ArchiveHostile for a false size."""
    name = members.names[i]
    if members.sizes[i] > MAX_TABLE_BYTES:
        raise RuleError(f"The entry {show(name)} is larger than {MAX_TABLE_BYTES} bytes.", "too_large")
    try:
        return read(
            fd, members.offsets[i], members.packed[i], members.sizes[i], members.methods[i], members.crcs[i]
        )
    except SizeMismatch as error:
        raise ArchiveHostile(f"The entry {show(name)} does not unpack to its declared size.") from error
    except Damaged as error:
        raise RuleError(f"The entry {show(name)} is unreadable: {error}.") from error
