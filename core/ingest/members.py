"""The checked list of an archive's files, in columns, with functions to read one of them.

Columns are used instead of objects: half a million entries take tens of megabytes, and a decoder
process can read them from a file without parsing.
"""

import os
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.errors import ArchiveHostile, ArchiveInvalid
from core.ingest.names import quote_name

# Packing methods by their numbers in a zip.
STORED = 0
DEFLATED = 8
# No CRC-32 has this value, and the column has room for it.
NO_CRC = 1 << 32
_BLOCK = 1 << 20


@dataclass
class ArchiveMembers:
    """Table of an archive's regular files, with columns for offsets and sizes, in archive order.

    Attributes:
        names: checked paths.
        offsets: position of the data's first byte.
        packed, sizes: bytes as stored and unpacked.
        methods: STORED or DEFLATED.
        crcs: CRC-32 of the unpacked bytes; NO_CRC if the format has none.
        notes: remarks for the report on how the names were read.
    """

    names: list[str] = field(default_factory=list)
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    packed: "array[int]" = field(default_factory=lambda: array("Q"))
    sizes: "array[int]" = field(default_factory=lambda: array("Q"))
    methods: bytearray = field(default_factory=bytearray)
    crcs: "array[int]" = field(default_factory=lambda: array("Q"))
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    def append_archive_member(
        self, name: str, offset: int, packed: int, size: int, method: int, crc: int
    ) -> None:
        """Add a file of an archive to the table; `packed` and `size` are bytes."""
        self.names.append(name)
        self.offsets.append(offset)
        self.packed.append(packed)
        self.sizes.append(size)
        self.methods.append(method)
        self.crcs.append(crc)


class DamagedArchiveMember(Exception):
    """Error: a file of an archive has unreadable bytes; the message is a reason for the report."""


class ArchiveFileUnpackedSizeMismatch(Exception):
    """Error: a file unpacks to another size than its archive declares."""


class ArchiveMemberUnpackError(Exception):
    """Error: a file of an archive does not unpack to what the archive declares."""


def read_archive_member(
    fd: int, offset: int, packed: int, size: int, method: int, crc: int
) -> bytes:
    """Unpack a file of an archive in memory; at most `size` + 1 bytes of it are held.

    Raises DamagedArchiveMember for a broken stream or checksum, ArchiveFileUnpackedSizeMismatch if
    the size is not the declared one.
    """
    data = os.pread(fd, packed, offset)
    if len(data) != packed:
        raise DamagedArchiveMember("the archive ends within this file")
    if method == DEFLATED:
        # -15: zips hold raw deflate, without zlib's header.
        unpacker = zlib.decompressobj(-15)
        try:
            # One byte more than declared reveals a false size without unpacking a bomb.
            data = unpacker.decompress(data, size + 1)
        except zlib.error as error:
            raise DamagedArchiveMember("its compressed data is damaged") from error
        if len(data) > size or (unpacker.eof and len(data) != size) or unpacker.unused_data:
            raise ArchiveFileUnpackedSizeMismatch
        if not unpacker.eof and (unpacker.unconsumed_tail or len(data) < size):
            raise DamagedArchiveMember("its compressed data ends early")
    if crc != NO_CRC and zlib.crc32(data) != crc:
        raise DamagedArchiveMember("its checksum does not match")
    return data


def read_archive_member_at_index(fd: int, members: ArchiveMembers, i: int) -> bytes:
    """Unpack the archive's file in row `i` in memory.

    Raises as `read_archive_member` does.
    """
    packed, size, method = members.packed[i], members.sizes[i], members.methods[i]
    return read_archive_member(fd, members.offsets[i], packed, size, method, members.crcs[i])


def read_start_of_archive_member(fd: int, members: ArchiveMembers, i: int, max_bytes: int) -> bytes:
    """Return the first `max_bytes` unpacked bytes of an archive's file, checked if these are all.

    Raises as `read_archive_member` does.
    """
    packed, size, method = members.packed[i], members.sizes[i], members.methods[i]
    if size <= max_bytes:
        return read_archive_member_at_index(fd, members, i)
    data = os.pread(fd, min(packed, max_bytes), members.offsets[i])
    if method != DEFLATED:
        return data
    try:
        return zlib.decompressobj(-15).decompress(data, max_bytes)
    except zlib.error as error:
        raise DamagedArchiveMember("its compressed data is damaged") from error


def unpack_archive_member_blocks(fd: int, members: ArchiveMembers, i: int) -> Iterator[bytes]:
    """Yield the unpacked bytes of an archive's file in blocks, checked against its size and
    checksum.

    Raises ArchiveMemberUnpackError if the bytes are not as the archive declares.
    """
    size, crc, total = members.sizes[i], 0, 0
    for block in (
        _read_packed_blocks_of_member(fd, members, i)
        if members.methods[i] != DEFLATED
        else _inflate_archive_member_blocks(fd, members, i)
    ):
        total += len(block)
        # Checked in the loop, so that a bomb is not unpacked to its end.
        if total > size:
            raise ArchiveMemberUnpackError
        crc = zlib.crc32(block, crc)
        yield block
    if total != size or members.crcs[i] not in (NO_CRC, crc):
        raise ArchiveMemberUnpackError


def _read_packed_blocks_of_member(fd: int, members: ArchiveMembers, i: int) -> Iterator[bytes]:
    at, end = members.offsets[i], members.offsets[i] + members.packed[i]
    while at < end:
        block = os.pread(fd, min(_BLOCK, end - at), at)
        if not block:
            raise ArchiveMemberUnpackError
        at += len(block)
        yield block


def _inflate_archive_member_blocks(fd: int, members: ArchiveMembers, i: int) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(-15)
    try:
        for packed in _read_packed_blocks_of_member(fd, members, i):
            remaining = packed
            while remaining:
                # Bounded, since a block of deflate may unpack to a thousand times its size.
                yield unpacker.decompress(remaining, _BLOCK)
                remaining = unpacker.unconsumed_tail
                if unpacker.unused_data:
                    raise ArchiveMemberUnpackError
        yield unpacker.flush()
    except zlib.error as error:
        raise ArchiveMemberUnpackError from error


def copy_unpacked_archive_member(fd: int, members: ArchiveMembers, i: int, out: int) -> None:
    """Copy an archive file's unpacked bytes to the descriptor `out` in blocks of 1 MiB.

    Raises ArchiveHostile if the size is not the declared one, ArchiveInvalid if the file is
    damaged.
    """
    name, size, offset = members.names[i], members.sizes[i], members.offsets[i]
    unpacker = zlib.decompressobj(-15) if members.methods[i] == DEFLATED else None
    end, written = offset + members.packed[i], 0
    while offset < end:
        block = os.pread(fd, min(_BLOCK, end - offset), offset)
        if not block:
            raise ArchiveInvalid(f"The archive ends within the entry {quote_name(name)}.")
        offset += len(block)
        while block:
            if unpacker is None:
                piece, block = block, b""
            else:
                try:
                    piece = unpacker.decompress(block, _BLOCK)
                except zlib.error as error:
                    raise ArchiveInvalid(
                        f"The compressed data of {quote_name(name)} is damaged."
                    ) from error
                block = unpacker.unconsumed_tail
            written += len(piece)
            # Checked before the piece is written, so that a bomb does not fill the disk.
            if written > size or (unpacker is not None and unpacker.unused_data):
                raise ArchiveHostile(
                    f"The entry {quote_name(name)} unpacks to more than its declared {size} bytes."
                )
            write_all_bytes_to_descriptor(out, piece)
            if unpacker is not None and not piece and not block:
                break
    if unpacker is not None:
        tail = unpacker.flush()
        written += len(tail)
        if written <= size:
            write_all_bytes_to_descriptor(out, tail)
    if written != size:
        raise ArchiveHostile(
            f"The entry {quote_name(name)} does not unpack to its declared {size} bytes."
        )


def write_all_bytes_to_descriptor(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data` to a file descriptor at its position."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
