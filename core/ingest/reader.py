"""The interface of archive readers, and the contents that they find.

A reader gets bytes from a stranger. It trusts nothing that it has not checked, stays within the
limits, opens no path that the archive names, and raises only typed errors that name the entry.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from core.errors import ArchiveHostile
from core.ingest.layout import USUAL, ArchiveLayout, BatchReadingSettings, build_archive_layout
from core.ingest.limits import ArchiveLimits
from core.ingest.members import (
    ArchiveFileUnpackedSizeMismatch,
    ArchiveMembers,
    DamagedArchiveMember,
    read_archive_member_at_index,
    read_start_of_archive_member,
    unpack_archive_member_blocks,
)
from core.ingest.names import quote_name
from perennial.formats import UploadFormat
from perennial.reading_rules.entries import UnreadableBatchError
from perennial.reading_rules.tables import MAX_TABLE_BYTES


@dataclass(frozen=True)
class NpzImageArrayLocation:
    """Array of images in an npz: uint8 [N, height, width] or [N, height, width, channels], in C
    order.

    Attributes:
        name: name of the array in reports.
        member: number of the member that contains it.
        begin: bytes of the unpacked member before the first pixel.
        shape: shape of the array.
    """

    name: str
    member: int
    begin: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ArchiveContents:
    """Contents of an uploaded archive: its checked files, and the class of each image.

    Attributes:
        members: the files.
        layout: classes of the files in `members`, or of the rows of all `arrays` in turn.
        arrays: the arrays, if the archive has them instead of image files.
        read: returns the bytes of a small file by its number; None if the layout is complete.
    """

    members: ArchiveMembers
    layout: ArchiveLayout
    arrays: tuple[NpzImageArrayLocation, ...] = ()
    read: Callable[[int], bytes] | None = None

    def with_assigned_classes(
        self, limits: ArchiveLimits, reading: BatchReadingSettings = USUAL
    ) -> "ArchiveContents":
        """Return the archive's contents with a class for each file, by the rules for reading a
        batch.

        Raises as `core.ingest.layout.build_archive_layout`.
        """
        if self.read is None:
            return self
        layout = build_archive_layout(self.members.names, limits, self.read, reading)
        layout.notes += self.members.notes
        # `read` needs the open archive, so it must not outlive this call.
        return replace(self, layout=layout, read=None)


class UploadReader:
    """Base class of readers of one upload format, such as zip.

    Attributes:
        name: name stored with a task, at most 32 characters.
        media_types: types accepted as Content-Type, the preferred one first.
        endings, marks: see `perennial.formats.UploadFormat`; the client and the pages know its files by
            them.
        special_of: name of the format that this one is a special case of, as an npz is a zip.
            Either may be declared.
    """

    name: ClassVar[str]
    media_types: ClassVar[tuple[str, ...]]
    endings: ClassVar[tuple[str, ...]]
    marks: ClassVar[tuple[tuple[int, bytes], ...]] = ()
    special_of: ClassVar[str | None] = None
    is_packed_whole: ClassVar[bool] = False
    """True if files can only be read from front to back."""

    @property
    def format(self) -> UploadFormat:
        """The archive format that the reader reads, with its endings and first bytes."""
        return UploadFormat(self.endings, self.marks)

    def recognises_format(self, first: bytes) -> bool:
        """Return True if an upload's first bytes (up to 1024) show the reader's format."""
        return self.format.has_format_signature(first)

    def with_fallback_name_encoding(self, encoding: str) -> "UploadReader":
        """Return a reader that decodes entry names of unstated encoding by the given one.

        The reader itself is returned if names of the format always state it.
        """
        del encoding
        return self

    def list_contents(self, fd: int, limits: ArchiveLimits) -> ArchiveContents:
        """Read the directory of the archive open at descriptor `fd`; no image is decoded.

        Raises ArchiveHostile, ArchiveTooLarge, ArchiveInvalid, LabelsInvalid. Memory is bounded by
        the limits.
        """
        raise NotImplementedError

    def make_file_start_reader(
        self, fd: int, contents: ArchiveContents, limits: ArchiveLimits
    ) -> Callable[[int, int], bytes]:
        """Return a function that reads the beginning of an archive's file, by its number and the
        most bytes.

        If the archive is packed as a whole, numbers must rise. It raises DamagedArchiveMember and
        ArchiveFileUnpackedSizeMismatch.
        """
        del limits
        return lambda number, most: read_start_of_archive_member(fd, contents.members, number, most)

    def make_file_block_reader(
        self, fd: int, contents: ArchiveContents, limits: ArchiveLimits
    ) -> Callable[[int], Iterator[bytes]]:
        """Return a function that yields the unpacked bytes of an archive's file in blocks, by its
        number.

        If the archive is packed as a whole, numbers must rise. Its iterators raise
        ArchiveMemberUnpackError.
        """
        del limits
        return lambda number: unpack_archive_member_blocks(fd, contents.members, number)

    def open_archive(
        self, fd: int, path: Path, limits: ArchiveLimits, scratch: Path
    ) -> tuple[ArchiveContents, Path]:
        """Open an archive for decoding; return its contents, and the file in which their offsets
        are valid.

        That is the archive itself (`path`), or one made from it in the folder `scratch`. Raises as
        `list_contents`.
        """
        del scratch
        return self.list_contents(fd, limits), path


def build_unlabelled_archive_contents(
    fd: int, members: ArchiveMembers, limits: ArchiveLimits
) -> ArchiveContents:
    """Return an archive's files without classes, which `ArchiveContents.with_assigned_classes` adds."""
    del limits
    return ArchiveContents(
        members, ArchiveLayout("folders"), read=lambda i: read_label_table_candidate(fd, members, i)
    )


def read_label_table_candidate(fd: int, members: ArchiveMembers, i: int) -> bytes:
    """Read a small file of the archive that may be a label table.

    Raises UnreadableBatchError, and ArchiveHostile for a false size.
    """
    name = members.names[i]
    # Before it is unpacked into memory.
    if members.sizes[i] > MAX_TABLE_BYTES:
        raise UnreadableBatchError(
            f"The entry {quote_name(name)} is larger than {MAX_TABLE_BYTES} bytes.", "too_large"
        )
    try:
        return read_archive_member_at_index(fd, members, i)
    except ArchiveFileUnpackedSizeMismatch as error:
        raise ArchiveHostile(
            f"The entry {quote_name(name)} does not unpack to its declared size."
        ) from error
    except DamagedArchiveMember as error:
        raise UnreadableBatchError(
            f"The entry {quote_name(name)} is unreadable: {error}."
        ) from error
