"""Reader of tar, plain or gzipped, in one pass from front to back with limits on everything.

Only regular files and folders are accepted; links, devices and sparse files make it reject the
archive. Long names come from GNU `L` records and pax headers (both limited). The standard library's
reader is not used, because it reads pax headers of any size into memory and follows wrong offsets
(CVE-2025-8194). POSIX.1-2017, pax interchange format; GNU tar manual, "Basic Tar Format".
"""

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from core.errors import ArchiveHostile, ArchiveInvalid, ArchiveTooLarge
from core.ingest.layout import ArchiveLayout
from core.ingest.limits import ArchiveLimits
from core.ingest.members import (
    NO_CRC,
    STORED,
    ArchiveMembers,
    ArchiveMemberUnpackError,
    write_all_bytes_to_descriptor,
)
from core.ingest.names import (
    MAGIC_BYTES,
    check_and_normalise_entry_path,
    quote_name,
    refuse_nested_archive,
)
from core.ingest.reader import ArchiveContents, UploadReader, read_label_table_candidate
from core.ingest.readers.tar_header import (
    BLOCK,
    decode_entry_name,
    is_tar_header,
    parse_pax_header,
    parse_pax_size,
    parse_tar_size_field,
    read_tar_entry_name,
)
from core.ingest.retained_tables import RetainedLabelTables
from perennial.reading_rules.foreign import FIRST_BYTES, find_unsupported_file_kind

_READ = 1 << 18
_SLACK_BYTES = 1 << 20
"""Bytes by which a gzip may exceed the ratio: tar pads every file with zeros."""
_PAX_BYTES = 64 << 10
_GZIP = b"\x1f\x8b\x08"  # with the method deflate (RFC 1952, 2.3.1)


class TarReader(UploadReader):
    """Reader of tar archives that are not compressed."""

    name = "tar"
    media_types = ("application/x-tar",)
    endings = (".tar",)
    marks = ((257, b"ustar"),)

    def recognises_format(self, first: bytes) -> bool:
        """Return True if the first tar header has a valid checksum, since older tars have no mark."""
        return len(first) >= BLOCK and is_tar_header(first[:BLOCK]) and not first.startswith(_GZIP)

    def list_contents(self, fd: int, limits: ArchiveLimits) -> ArchiveContents:
        """Read all headers of a tar, which are spread over the whole file, and list its files."""
        members = _scan_tar_files_and_label_tables(PlainTarByteSource(fd), limits).members
        return ArchiveContents(
            members,
            ArchiveLayout("folders"),
            read=lambda i: read_label_table_candidate(fd, members, i),
        )


class GzippedTarReader(UploadReader):
    """Reader of tar archives that are compressed by gzip."""

    name = "gzip"
    media_types = ("application/gzip", "application/x-gzip")
    endings = (".tar.gz", ".tgz")
    marks = ((0, _GZIP),)
    is_packed_whole = True

    def list_contents(self, fd: int, limits: ArchiveLimits) -> ArchiveContents:
        """Unpack a compressed tar once, without storing it, and list its files."""
        return _list_gzipped_tar_contents(GzippedTarSource(fd, limits), limits)

    def make_file_start_reader(
        self, fd: int, contents: ArchiveContents, limits: ArchiveLimits
    ) -> Callable[[int, int], bytes]:
        """Return a function that reads a file's beginning, unpacking the compressed tar again."""
        source, members = GzippedTarSource(fd, limits), contents.members

        def read_file_start(number: int, max_bytes: int) -> bytes:
            source.skip_bytes(members.offsets[number] - source.position)
            return source.read_bytes(min(members.sizes[number], max_bytes))

        return read_file_start

    def make_file_block_reader(
        self, fd: int, contents: ArchiveContents, limits: ArchiveLimits
    ) -> Callable[[int], Iterator[bytes]]:
        """Return a function that reads a file in blocks, unpacking the compressed tar again in one
        pass.
        """
        source, members = GzippedTarSource(fd, limits), contents.members

        def read_file_blocks(number: int) -> Iterator[bytes]:
            source.skip_bytes(members.offsets[number] - source.position)
            bytes_left = members.sizes[number]
            while bytes_left:
                block = source.read_bytes(min(bytes_left, _READ))
                if not block:
                    raise ArchiveMemberUnpackError
                bytes_left -= len(block)
                yield block

        return read_file_blocks

    def open_archive(
        self, fd: int, path: Path, limits: ArchiveLimits, scratch: Path
    ) -> tuple[ArchiveContents, Path]:
        """Unpack the compressed tar into the folder `scratch`, because images are read in any
        order.

        A gzip can only be read from front to back.
        """
        unpacked = scratch / "unpacked"
        copy = os.open(unpacked, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            return _list_gzipped_tar_contents(GzippedTarSource(fd, limits, copy), limits), unpacked
        finally:
            os.close(copy)


class ForwardOnlyTarStream(Protocol):
    """Base class of byte sources for scanning a tar from front to back."""

    position: int

    def read_bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of a tar; fewer at the end."""
        ...

    def skip_bytes(self, count: int) -> None:
        """Skip `count` bytes of a tar, but not beyond its end."""
        ...

    def skip_zero_blocks(self) -> None:
        """Move to the next block of a tar that is not all zeros, or to the end."""
        ...


class PlainTarByteSource:
    """Byte source of an uncompressed tar file; skipping does not read."""

    def __init__(self, fd: int) -> None:
        self.position = 0
        self._fd = fd
        self._bytes = os.fstat(fd).st_size

    def read_bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of a tar file; fewer at the end."""
        data = os.pread(self._fd, count, self.position)
        self.position += len(data)
        return data

    def skip_bytes(self, count: int) -> None:
        """Skip `count` bytes of a tar, but not beyond its end."""
        self.position = min(self._bytes, self.position + count)

    def skip_zero_blocks(self) -> None:
        """Move to the next block of a tar file that is not all zeros, or to the end."""
        while data := os.pread(self._fd, _READ, self.position):
            zeros = _count_leading_zero_block_bytes(data)
            self.position += zeros
            if zeros < len(data):
                return


class GzippedTarSource:
    """Byte source of a gzip file, unpacked only as far as requested and within the limits.

    `copy_to` is a descriptor that receives every unpacked byte. Raises ArchiveHostile beyond the
    ratio, ArchiveTooLarge beyond the unpacked bytes, ArchiveInvalid for damage.
    """

    def __init__(self, fd: int, limits: ArchiveLimits, copy_to: int | None = None) -> None:
        self.position = 0
        self.current = ""
        self._fd, self._limits, self._copy_to = fd, limits, copy_to
        self._offset = 0
        self._streams = 1
        # 31: a gzip header, and the largest window.
        self._unpacker = zlib.decompressobj(31)
        self._packed = b""
        self._ready = b""

    def read_bytes(self, count: int) -> bytes:
        """Return the next `count` unpacked bytes of a gzip file; fewer at the end."""
        pieces, missing = [], count
        while missing:
            if not self._ready:
                self._ready = self._unpack_next_bytes()
                if not self._ready:
                    break
            pieces.append(self._ready[:missing])
            self._ready = self._ready[missing:]
            missing -= len(pieces[-1])
        self.position += count - missing
        return b"".join(pieces)

    def skip_bytes(self, count: int) -> None:
        """Unpack and drop the next `count` bytes of a gzip file, but not beyond its end."""
        while count:
            skipped = len(self.read_bytes(min(count, _READ)))
            if not skipped:
                return
            count -= skipped

    def skip_zero_blocks(self) -> None:
        """Unpack a gzip file to the next block that is not all zeros, or to the end."""
        while data := self.read_bytes(_READ):
            remainder = data[_count_leading_zero_block_bytes(data) :]
            if remainder:
                self._ready = remainder + self._ready
                self.position -= len(remainder)
                return

    def _unpack_next_bytes(self) -> bytes:
        data = b""
        while not data:
            if not self._packed:
                self._packed = os.pread(self._fd, _READ, self._offset)
                self._offset += len(self._packed)
                if not self._packed:
                    if not self._unpacker.eof:
                        raise ArchiveInvalid(
                            f"The gzip stream ends early{self._describe_current_entry()}."
                        )
                    return b""
            if self._unpacker.eof:
                if not self._packed.strip(b"\0"):  # padding after the last member
                    self._packed = b""
                    continue
                self._streams += 1
                # Each new stream copies the rest of the block, so thousands of tiny ones are an
                # attack.
                if self._streams > 64 + self.position // 1024:
                    raise ArchiveHostile(
                        f"The gzip consists of thousands of tiny "
                        f"streams{self._describe_current_entry()}."
                    )
                self._unpacker = zlib.decompressobj(31)
            try:
                data = self._unpacker.decompress(self._packed, _READ)
            except zlib.error as error:
                raise ArchiveInvalid(
                    f"The gzip stream is damaged{self._describe_current_entry()}."
                ) from error
            self._packed = (
                self._unpacker.unused_data if self._unpacker.eof else self._unpacker.unconsumed_tail
            )
        total = self.position + len(data)
        # By the packed bytes read so far, so that a bomb ends early.
        if total > self._limits.ratio * self._offset + _SLACK_BYTES:
            raise ArchiveHostile(
                f"The gzip unpacks to more than {self._limits.ratio}:1"
                f"{self._describe_current_entry()}."
            )
        # Headers and padding do not count as unpacked bytes.
        if total > self._limits.unpacked_bytes + BLOCK * (2 * self._limits.entries + 20):
            raise ArchiveTooLarge(
                f"The archive unpacks to more than {self._limits.unpacked_bytes} "
                f"bytes{self._describe_current_entry()}."
            )
        if self._copy_to is not None:
            write_all_bytes_to_descriptor(self._copy_to, data)
        return data

    def _describe_current_entry(self) -> str:
        return f" (at the entry {quote_name(self.current)})" if self.current else ""


def _count_leading_zero_block_bytes(data: bytes) -> int:
    """Return the number of bytes in the blocks of zeros with which `data` starts."""
    without_zeros = data.lstrip(b"\0")
    return len(data) if not without_zeros else (len(data) - len(without_zeros)) // BLOCK * BLOCK


def _scan_tar_files_and_label_tables(
    source: ForwardOnlyTarStream, limits: ArchiveLimits
) -> "_TarScan":
    scan = _TarScan(source, limits)
    scan.collect_regular_tar_files()
    return scan


def _list_gzipped_tar_contents(source: GzippedTarSource, limits: ArchiveLimits) -> ArchiveContents:
    """List the files of a compressed tar, which cannot be read twice, and retain possible label
    tables.
    """
    scan = _scan_tar_files_and_label_tables(source, limits)
    return ArchiveContents(
        scan.members, ArchiveLayout("folders"), read=scan.tables.read_retained_file
    )


class _TarScan:
    """One pass over a tar that lists its regular files and retains possible label tables of a gzip.

    Offsets are positions in the (unpacked) tar. Raises ArchiveHostile, ArchiveTooLarge,
    ArchiveInvalid.
    """

    def __init__(self, source: ForwardOnlyTarStream, limits: ArchiveLimits) -> None:
        self.members = ArchiveMembers()
        self.tables = RetainedLabelTables()
        self._source, self._limits = source, limits
        self._names: set[str] = set()
        self._headers = self._unpacked = 0
        self._long_name: str | None = None  # these two describe the entry that follows their header
        self._pax: dict[str, str] = {}

    def collect_regular_tar_files(self) -> None:
        while (block := self._read_next_header()) is not None:
            kind, size = block[156:157], parse_tar_size_field(block[124:136])
            # K, a long name of a link's target, is read past: the link itself is rejected.
            if kind in b"LKxg":
                self._read_tar_extension_header(kind, size)
            else:
                self._check_and_add_tar_entry(block, kind, size)
        if len(self.members) > self._limits.entries:
            raise self._make_too_many_tar_entries_error()

    def _read_next_header(self) -> bytes | None:
        """Return the next header block of a tar, or None at the end.

        Some writers omit the two closing blocks. After the closing blocks of one tar another may
        follow, as written by `cat one.tar two.tar`.
        """
        block = self._source.read_bytes(BLOCK)
        has_ended = block == bytes(BLOCK)
        if has_ended:
            # After the end of a tar, nothing of it applies to the next.
            self._long_name, self._pax = None, {}
            self._source.skip_zero_blocks()
            block = self._source.read_bytes(BLOCK)
        if not block:
            return None
        if len(block) != BLOCK or not is_tar_header(block):
            names = self.members.names
            after = f" after the entry {quote_name(names[-1])}" if names else ""
            kind = None if names else find_unsupported_file_kind(first=block[:FIRST_BYTES])
            if kind is not None:
                raise ArchiveInvalid(
                    f"What the gzip holds is no tar but {kind.description}. {kind.conversion_advice}."
                )
            if has_ended:
                raise ArchiveInvalid(
                    f"Bytes that are no tar follow the end of the tar{after}: send it without them."
                )
            raise ArchiveInvalid(f"The tar is damaged or cut off{after}.")
        # Headers of long names count as well: an archive of them alone would have no entries to
        # limit.
        self._headers += 1
        if (
            self._headers > 2 * self._limits.entries + 16
            or len(self.members) > self._limits.entries
        ):
            raise self._make_too_many_tar_entries_error()
        return block

    def _make_too_many_tar_entries_error(self) -> ArchiveTooLarge:
        return ArchiveTooLarge(f"The tar has more than {self._limits.entries} entries.")

    def _read_tar_extension_header(self, kind: bytes, size: int) -> None:
        """Read a tar's GNU long-name or pax header, and keep its name or records for the next
        entry.

        Raises ArchiveHostile if it is too large, or global with a path or a size.
        """
        if size > _PAX_BYTES:
            raise ArchiveHostile(
                f"A header of the tar takes {size} bytes; at most {_PAX_BYTES} are accepted."
            )
        body = _read_tar_bytes_exactly(self._source, size)
        # The content of an entry is padded to whole blocks.
        self._source.skip_bytes(-size % BLOCK)
        if kind == b"L":
            self._long_name = decode_entry_name(body.split(b"\0", 1)[0])
        elif kind == b"x":
            self._pax = parse_pax_header(body)
        elif kind == b"g" and parse_pax_header(body).keys() & {"path", "size", "linkpath"}:
            raise ArchiveHostile(
                "A global header of the tar names a path or a size for all entries."
            )

    def _check_and_add_tar_entry(self, block: bytes, kind: bytes, size: int) -> None:
        pax = self._pax
        raw = pax.get("path") or self._long_name or read_tar_entry_name(block)
        if "size" in pax:
            size = parse_pax_size(pax["size"], raw)
        # The bytes at a sparse file's offset are not its content alone.
        if any(key.startswith("GNU.sparse") for key in pax):
            raise ArchiveHostile(f"The entry {quote_name(raw)} is a sparse file.")
        self._long_name, self._pax = None, {}
        name = check_and_normalise_entry_path(raw)
        if isinstance(self._source, GzippedTarSource):
            self._source.current = name
        _check_tar_entry_type(kind, name, raw, size)
        # The oldest tars mark a folder by its slash alone.
        if kind == b"5" or raw.endswith("/"):
            self._source.skip_bytes(size + -size % BLOCK)
        else:
            self._add_tar_file(name, size)

    def _add_tar_file(self, name: str, size: int) -> None:
        if name in self._names:
            raise ArchiveHostile(f"The name {quote_name(name)} appears twice in the archive.")
        self._names.add(name)
        self._unpacked += size
        if self._unpacked > self._limits.unpacked_bytes:
            raise ArchiveTooLarge(
                f"The archive unpacks to more than {self._limits.unpacked_bytes} bytes "
                f"(reached at {quote_name(name)})."
            )
        offset = self._source.position
        is_gone = isinstance(self._source, GzippedTarSource)  # a gzip cannot go back to it
        if is_gone and self.tables.can_retain_table(name, size):
            data = _read_tar_bytes_exactly(self._source, size)
            self.tables.retain_file(len(self.members), name, data)
        else:
            data = self._source.read_bytes(min(size, MAGIC_BYTES))
        self._source.skip_bytes(size - len(data) + -size % BLOCK)
        # Skipping stops at the end of the archive, so a false size shows only here.
        if self._source.position < offset + size:
            raise ArchiveHostile(
                f"The entry {quote_name(name)} declares {size} bytes, more than the archive has."
            )
        refuse_nested_archive(name, data[:MAGIC_BYTES])
        self.members.append_archive_member(name, offset, size, size, STORED, NO_CRC)


def _check_tar_entry_type(kind: bytes, name: str, raw: str, size: int) -> None:
    if kind in (b"1", b"2"):
        raise ArchiveHostile(f"The entry {quote_name(name)} is a link.")
    if kind in (b"3", b"4", b"6"):
        raise ArchiveHostile(f"The entry {quote_name(name)} is a device or pipe.")
    # NUL is a file in the oldest form, 7 a contiguous file.
    if kind not in (b"0", b"\0", b"7", b"5"):
        raise ArchiveHostile(
            f"The entry {quote_name(name)} is of the unsupported tar type {quote_name(kind)}."
        )
    if (kind == b"5" or raw.endswith("/")) and size:
        raise ArchiveHostile(f"The folder {quote_name(name)} claims to hold bytes of its own.")
    if kind != b"5" and not raw.endswith("/") and not name:
        raise ArchiveHostile(f"The entry {quote_name(raw)} has no name.")


def _read_tar_bytes_exactly(source: ForwardOnlyTarStream, count: int) -> bytes:
    data = source.read_bytes(count)
    if len(data) != count:
        raise ArchiveInvalid("The tar is cut off within an entry.")
    return data
