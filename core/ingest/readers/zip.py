"""Reader of zips, which trusts the directory only where every copy of a value agrees.

The end-of-directory record is checked first: it limits the number of entries and the bytes of the
directory before any of it is read. Every entry is then compared with its local header. The extents
of all entries must precede the directory and must not overlap (as in overlapping-file bombs,
CVE-2024-0450). zip64 records must be exactly where their locator says (CVE-2025-8291). Written
after PKWARE's APPNOTE 6.3.10, sections 4.3 to 4.5; the standard library's reader is not used on
uploads.
"""

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.errors import ArchiveHostile, ArchiveInvalid, ArchiveTooLarge
from core.ingest import limits as bounds
from core.ingest.limits import ArchiveLimits
from core.ingest.members import (
    DEFLATED,
    NO_CRC,
    STORED,
    ArchiveFileUnpackedSizeMismatch,
    ArchiveMembers,
    DamagedArchiveMember,
    read_archive_member,
)
from core.ingest.names import (
    MAGIC_BYTES,
    check_and_normalise_entry_path,
    quote_name,
    refuse_nested_archive,
)
from core.ingest.reader import ArchiveContents, UploadReader, build_unlabelled_archive_contents
from core.ingest.zip_names import ZipNameDecoder, read_unicode_path_of_zip_entry

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
# A field with this value does not hold a size: the Zip64 record has it.
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
# APPNOTE 6.3.10, 4.4.4: encrypted, strongly encrypted, and a masked local header.
_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
# Flags of an entry: its sizes follow its data; its name is UTF-8.
_DESCRIPTOR = 1 << 3
_UTF8 = 1 << 11
_LOCAL_READ = 256
"""Bytes read at once at a local header: header, most names and the first bytes of the data."""
_DEFLATE_RATIO = 1032
"""Largest ratio of deflate (RFC 1951: 258 bytes in 2 bits)."""
_TRIAL_BYTES = 32 << 20
"""Declared bytes up to which deflated entries are unpacked on trial."""
_READ_BLOCK = 1 << 20
_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "xz"}
"""Packing methods by number (APPNOTE 6.3.10, 4.4.5)."""


class ZipReader(UploadReader):
    """Reader of zip archives with images in folders or beside a label table."""

    name = "zip"
    media_types = ("application/zip", "application/x-zip-compressed")
    endings = (".zip",)
    # A file's header, or the end record of an empty archive.
    marks = ((0, b"PK\x03\x04"), (0, b"PK\x05\x06"))

    def __init__(self, names: str = "") -> None:
        """Initialise the reader.

        `names` is the encoding of names that do not state theirs; "" chooses by the names.
        """
        self._names = names

    def with_fallback_name_encoding(self, encoding: str) -> UploadReader:
        """Return a zip reader that decodes entry names of unstated encoding by the given one."""
        return ZipReader(encoding)

    def list_contents(self, fd: int, limits: ArchiveLimits) -> ArchiveContents:
        """Read the directory at the end of a zip, and list its files."""
        return build_unlabelled_archive_contents(
            fd, list_regular_zip_files(fd, limits, names=self._names), limits
        )


@dataclass(frozen=True)
class _ZipEndRecord:
    entries: int
    directory_bytes: int
    directory_offset: int


@dataclass(slots=True)
class _ZipEntry:
    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    header_offset: int
    mode: int
    extra: bytes


def list_regular_zip_files(
    fd: int, limits: ArchiveLimits, *, check_ratio: bool = True, names: str = ""
) -> ArchiveMembers:
    """List the regular files of the zip at descriptor `fd`; folders are checked and left out.

    Args:
        fd: descriptor of the zip.
        limits: bounds on the archive.
        check_ratio: False leaves ratios to the caller, as labels of an npz are packed far more than
            images.
        names: encoding of names that do not state theirs; "" chooses by the names.
    """
    file_bytes = os.fstat(fd).st_size
    end = _read_zip_end_record(fd, file_bytes, limits)
    members = ArchiveMembers()
    file_names: set[str] = set()
    starts = np.empty(end.entries, np.int64)
    stops = np.empty(end.entries, np.int64)
    unpacked, trial = 0, _TRIAL_BYTES
    encoded = ZipNameDecoder(names)
    for index, entry in enumerate(_read_central_directory(fd, end)):
        is_utf8 = bool(entry.flags & _UTF8)
        name = check_and_normalise_entry_path(
            encoded.decode_entry_name(
                entry.raw_name,
                is_utf8,
                entry.extra,
                lambda: _iterate_zip_names_of_unknown_encoding(fd, end),
            )
        )
        is_folder = _check_entry_kind_and_detect_folder(entry, name)
        # Programs differ in which of two equal names they read.
        if name in file_names and not is_folder:
            raise ArchiveHostile(f"The name {quote_name(name)} appears twice in the archive.")
        # Of folders as well, since their headers must not overlap files either.
        data_offset, first = _check_local_header_and_locate_data(fd, entry, end.directory_offset)
        starts[index] = entry.header_offset
        stops[index] = data_offset + entry.packed
        if is_folder:
            continue
        file_names.add(name)
        _check_declared_zip_entry_sizes(entry, name, limits, check_ratio)
        unpacked += entry.size
        if unpacked > limits.unpacked_bytes:
            raise ArchiveTooLarge(
                f"The archive unpacks to more than {limits.unpacked_bytes} bytes (reached at "
                f"{quote_name(name)})."
            )
        if entry.method == DEFLATED:
            first = _inflate_start_of_zip_entry(fd, entry, data_offset)
            # A false size is found before the batch is accepted; the sum is limited because this
            # takes time.
            if entry.size <= trial:
                # An empty entry takes time, too.
                trial -= max(entry.size, 64)
                _check_zip_entry_unpacks_to_declared_size(fd, entry, data_offset, name)
        refuse_nested_archive(name, first)
        members.append_archive_member(
            name, data_offset, entry.packed, entry.size, entry.method, entry.crc
        )
    _require_no_overlapping_entries(fd, starts, stops)
    if check_ratio:
        _check_compression_ratio(unpacked, file_bytes, limits)
    members.notes += filter(None, [encoded.build_encoding_note()])
    return members


def _iterate_zip_names_of_unknown_encoding(fd: int, end: _ZipEndRecord) -> Iterator[bytes]:
    """Yield a zip's non-ASCII entry names that do not state their encoding."""
    for entry in _read_central_directory(fd, end):
        name = entry.raw_name
        if not (
            name.isascii()
            or entry.flags & _UTF8
            or read_unicode_path_of_zip_entry(entry.extra, name)
        ):
            yield name


def _check_compression_ratio(unpacked: int, file_bytes: int, limits: ArchiveLimits) -> None:
    if unpacked > max(limits.ratio * file_bytes, bounds.RATIO_FLOOR_BYTES):
        too_tight = f"{unpacked} unpacked bytes, more than {limits.ratio}:1"
        raise ArchiveHostile(f"The archive of {file_bytes} bytes declares {too_tight}.")


def _read_zip_end_record(fd: int, file_bytes: int, limits: ArchiveLimits) -> _ZipEndRecord:
    tail_offset = max(0, file_bytes - _END.size - _MAX16)
    tail = os.pread(fd, _END.size + _MAX16, tail_offset)
    # The archive's comment may contain the signature: a record must end where the file ends.
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0:
        if at + _END.size <= len(tail):
            fields = _END.unpack_from(tail, at)
            if at + _END.size + fields[7] == len(tail):
                break
        at = tail.rfind(b"PK\x05\x06", 0, at)
    if at < 0:
        raise ArchiveInvalid(
            "The zip has no end-of-directory record: it is cut off or something follows it."
        )
    # Readers would differ in which one they believe.
    if tail.find(b"PK\x05\x06", at + 4) >= 0:
        raise ArchiveHostile("The zip has two end-of-directory records.")
    _, disk, start_disk, entries_on_disk, total, size, offset, _ = fields
    end_offset = tail_offset + at
    where = end_offset
    locator = (
        os.pread(fd, _LOCATOR.size, end_offset - _LOCATOR.size)
        if end_offset >= _LOCATOR.size
        else b""
    )
    if locator.startswith(b"PK\x06\x07"):
        where, (disk, start_disk, entries_on_disk, total, size, offset) = _read_zip64_end_record(
            fd, locator, end_offset, fields
        )
    if disk or start_disk or entries_on_disk != total:
        raise ArchiveInvalid("The zip is one part of several; send it as one file.")
    if total > limits.entries:
        raise ArchiveTooLarge(
            f"The zip has {total} entries; at most {limits.entries} are accepted."
        )
    # Name, extra field and comment have at most 65,535 bytes each.
    if size > total * (_CENTRAL.size + 3 * _MAX16) or size < total * _CENTRAL.size:
        raise ArchiveHostile(
            f"The zip's directory of {size} bytes cannot hold its {total} entries."
        )
    # With a floor, because a few entries may have long names.
    if size > (64 << 10) + total * bounds.DIRECTORY_BYTES_PER_ENTRY:
        raise ArchiveTooLarge(
            f"The zip's directory takes {size} bytes for {total} entries; shorten the names."
        )
    if offset + size != where:
        raise ArchiveHostile(
            "The zip's directory does not lie right before its end-of-directory record."
        )
    return _ZipEndRecord(total, size, offset)


def _read_zip64_end_record(
    fd: int, locator: bytes, end_offset: int, fields: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Return the position and the numbers of a zip's zip64 end record.

    They must not contradict `fields`, which come from the other end record.
    """
    _, disk64, where, disks = _LOCATOR.unpack(locator)
    record = os.pread(fd, _END64.size, where) if where < end_offset else b""
    if len(record) != _END64.size or not record.startswith(b"PK\x06\x06") or disk64 or disks > 1:
        raise ArchiveHostile("The zip64 locator does not point at a zip64 end-of-directory record.")
    _, record_bytes, _, _, *wide = _END64.unpack(record)
    # 12: the record's own size does not count its signature and itself (APPNOTE 4.3.14.1).
    if where + 12 + record_bytes != end_offset - _LOCATOR.size:
        raise ArchiveHostile(
            "The zip64 end-of-directory record does not end where its locator begins."
        )
    # All ones stand for a value that only the zip64 record can hold.
    tops = (_MAX16, _MAX16, _MAX16, _MAX16, _MAX32, _MAX32)
    if any(
        short not in (long, top) for short, long, top in zip(fields[1:7], wide, tops, strict=True)
    ):
        raise ArchiveHostile("The zip's two end-of-directory records contradict each other.")
    return where, tuple(wide)


def _read_central_directory(fd: int, end: _ZipEndRecord) -> Iterator[_ZipEntry]:
    """Yield the entries of a zip's directory in order; it must have exactly the declared number."""
    # In blocks, because a directory of many entries may have a hundred megabytes.
    buffer, at = b"", 0
    offset, remaining_bytes = end.directory_offset, end.directory_bytes

    def fill_directory_buffer(count: int) -> None:
        nonlocal buffer, at, offset, remaining_bytes
        if len(buffer) - at >= count:
            return
        block = os.pread(fd, min(remaining_bytes, max(_READ_BLOCK, count)), offset)
        buffer, at = buffer[at:] + block, 0
        offset, remaining_bytes = offset + len(block), remaining_bytes - len(block)
        if len(buffer) < count:
            raise ArchiveHostile(
                "The zip's directory ends within an entry: it lies about its entries."
            )

    for _ in range(end.entries):
        fill_directory_buffer(_CENTRAL.size)
        (signature, _, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes, comment_bytes, disk,
         _, attributes, header_offset) = _CENTRAL.unpack_from(buffer, at)  # fmt: skip
        if signature != b"PK\x01\x02":
            raise ArchiveHostile("The zip's directory holds something that is not an entry.")
        record_bytes = _CENTRAL.size + name_bytes + extra_bytes + comment_bytes
        fill_directory_buffer(record_bytes)
        name_end = at + _CENTRAL.size + name_bytes
        raw_name = buffer[at + _CENTRAL.size : name_end]
        extra = buffer[name_end : name_end + extra_bytes]
        if extra:
            wide = _find_zip64_extra(extra, raw_name)
            if wide is not None:
                values = [wide[i : i + 8] for i in range(0, len(wide), 8)]
                size, packed, header_offset, disk = _apply_zip64_fields(
                    values, size, packed, header_offset, disk, raw_name
                )
        if disk:
            raise ArchiveInvalid(
                f"The entry {quote_name(raw_name)} lies in another part of a divided zip."
            )
        yield _ZipEntry(
            raw_name, flags, method, crc, packed, size, header_offset, attributes >> 16, extra
        )
        at += record_bytes
    if remaining_bytes or at != len(buffer):
        raise ArchiveHostile("The zip's directory holds more entries than its end record declares.")


def _find_zip64_extra(extra: bytes, raw_name: bytes) -> bytes | None:
    """Return the body of a zip entry's zip64 extra field, or None; the whole extra field must be
    valid.
    """
    body, at = None, 0
    while at + 4 <= len(extra):
        kind, count = struct.unpack_from("<HH", extra, at)
        if at + 4 + count > len(extra):
            raise ArchiveHostile(
                f"The extra field of {quote_name(raw_name)} is longer than the space it has."
            )
        if kind == 1:
            if body is not None:
                raise ArchiveHostile(f"The entry {quote_name(raw_name)} has two zip64 fields.")
            body = extra[at + 4 : at + 4 + count]
        at += 4 + count
    return body  # up to three bytes of padding are tolerated, because alignment tools write them


def _apply_zip64_fields(
    values: list[bytes], size: int, packed: int, header_offset: int, disk: int, raw_name: bytes
) -> tuple[int, int, int, int]:
    """Replace a zip entry's size and offset fields that are all ones by those of the zip64 field."""

    def take_next_header_value(bits: int) -> int:
        if not values or len(values[0]) < bits // 8:
            raise ArchiveHostile(
                f"The zip64 field of {quote_name(raw_name)} lacks a value that it should hold."
            )
        return int.from_bytes(values.pop(0)[: bits // 8], "little")

    size = take_next_header_value(64) if size == _MAX32 else size
    packed = take_next_header_value(64) if packed == _MAX32 else packed
    header_offset = take_next_header_value(64) if header_offset == _MAX32 else header_offset
    disk = take_next_header_value(32) if disk == _MAX16 else disk
    return size, packed, header_offset, disk


def _check_entry_kind_and_detect_folder(entry: _ZipEntry, name: str) -> bool:
    """Return True if a zip entry is a folder; reject entries that are neither plain files nor
    folders.
    """
    if not entry.raw_name:
        raise ArchiveHostile("An entry has an empty name.")
    kind = stat.S_IFMT(entry.mode)
    if kind == stat.S_IFLNK:
        raise ArchiveHostile(f"The entry {quote_name(name)} is a symbolic link.")
    # 0: archives made on Windows have no Unix mode.
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveHostile(f"The entry {quote_name(name)} is a device, pipe or socket.")
    if entry.flags & _ENCRYPTED:
        raise ArchiveHostile(
            f"The entry {quote_name(name)} is encrypted; send the archive without a password."
        )
    if entry.method not in (STORED, DEFLATED):
        method = _METHODS.get(entry.method, f"method {entry.method}")
        raise ArchiveHostile(
            f"The entry {quote_name(name)} is packed with {method}; only stored and deflated are "
            "accepted. Unpack it, and send the folder (perennial submit MODEL FOLDER), or pack it "
            "with zip -r."
        )
    is_folder = entry.raw_name.endswith(b"/") or kind == stat.S_IFDIR
    # An empty stream of deflate has two bytes.
    if is_folder and (entry.size or entry.packed > 2):
        raise ArchiveHostile(f"The folder {quote_name(name)} claims to hold bytes of its own.")
    if not is_folder and not name:
        raise ArchiveHostile(f"The entry {quote_name(entry.raw_name)} has no name.")
    return is_folder


def _check_declared_zip_entry_sizes(
    entry: _ZipEntry, name: str, limits: ArchiveLimits, check_ratio: bool
) -> None:
    if entry.method == STORED:
        if entry.packed != entry.size:
            raise ArchiveHostile(
                f"The stored entry {quote_name(name)} declares two different sizes."
            )
        return
    # Deflate adds at most 5 bytes per 16 KiB block. Weak packers are allowed twice that and a
    # margin.
    if (
        entry.packed > entry.size + entry.size // 1000 + 128
        or entry.size > entry.packed * _DEFLATE_RATIO
    ):
        raise ArchiveHostile(
            f"The entry {quote_name(name)} lies about its size: {entry.packed} packed bytes, "
            f"{entry.size} unpacked."
        )
    if check_ratio and entry.size > max(limits.ratio * entry.packed, bounds.RATIO_FLOOR_BYTES):
        raise ArchiveHostile(
            f"The entry {quote_name(name)} unpacks {entry.packed} bytes to {entry.size}, more than "
            f"{limits.ratio}:1."
        )


def _check_local_header_and_locate_data(
    fd: int, entry: _ZipEntry, directory_offset: int
) -> tuple[int, bytes]:
    """Compare a zip entry's local header with the directory; return its data's offset and first
    bytes.
    """
    name = entry.raw_name
    start = entry.header_offset
    if start + _LOCAL.size + len(name) > directory_offset:
        raise ArchiveHostile(f"The entry {quote_name(name)} points outside the archive's data.")
    head = os.pread(fd, _LOCAL_READ, start)
    if len(head) < _LOCAL.size or not head.startswith(b"PK\x03\x04"):
        raise ArchiveHostile(
            f"The entry {quote_name(name)} points at something that is not an entry."
        )
    _, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL.unpack_from(head)
    data_offset = start + _LOCAL.size + name_bytes + extra_bytes
    if data_offset + entry.packed > directory_offset:
        raise ArchiveHostile(f"The entry {quote_name(name)} reaches beyond the archive's data.")
    if len(head) < _LOCAL.size + name_bytes + extra_bytes:
        head = os.pread(fd, data_offset - start, start)
    # Other readers trust the local header and would see another file.
    if head[_LOCAL.size : _LOCAL.size + name_bytes] != name:
        raise ArchiveHostile(f"The entry {quote_name(name)} has another name in its local header.")
    if method != entry.method or (flags ^ entry.flags) & (_ENCRYPTED | _DESCRIPTOR | _UTF8):
        raise ArchiveHostile(
            f"The entry {quote_name(name)} has other flags or packing in its local header."
        )
    if _MAX32 in (packed, size):
        wide = _find_zip64_extra(
            head[_LOCAL.size + name_bytes : _LOCAL.size + name_bytes + extra_bytes], name
        )
        values = [(wide or b"")[i : i + 8] for i in range(0, len(wide or b""), 8)]
        size, packed, _, _ = _apply_zip64_fields(values, size, packed, 0, 0, name)
    local, central = (crc, packed, size), (entry.crc, entry.packed, entry.size)
    # With a data descriptor, the local header may have zeros for these three: they follow the data.
    if any(
        a != b and not (flags & _DESCRIPTOR and a == 0) for a, b in zip(local, central, strict=True)
    ):
        raise ArchiveHostile(
            f"The entry {quote_name(name)} declares other sizes or another checksum in its local header."
        )
    if entry.method == STORED:
        at = data_offset - start
        first = head[at : at + min(MAGIC_BYTES, entry.packed)]
        if len(first) < min(MAGIC_BYTES, entry.packed):
            first = os.pread(fd, min(MAGIC_BYTES, entry.packed), data_offset)
        return data_offset, first
    return data_offset, b""


def _inflate_start_of_zip_entry(fd: int, entry: _ZipEntry, data_offset: int) -> bytes:
    """Return the first unpacked bytes of a deflated zip entry.

    The result is empty if its stream is damaged, which becomes a row of the report later.
    """
    try:
        return zlib.decompressobj(-15).decompress(
            os.pread(fd, min(entry.packed, 1024), data_offset), MAGIC_BYTES
        )
    except zlib.error:
        return b""


def _check_zip_entry_unpacks_to_declared_size(
    fd: int, entry: _ZipEntry, data_offset: int, name: str
) -> None:
    """Unpack a zip entry to at most one byte more than declared, and check its size."""
    try:
        read_archive_member(fd, data_offset, entry.packed, entry.size, entry.method, NO_CRC)
    except ArchiveFileUnpackedSizeMismatch as error:
        raise ArchiveHostile(
            f"The entry {quote_name(name)} does not unpack to its declared {entry.size} bytes."
        ) from error
    except DamagedArchiveMember:
        return


def _require_no_overlapping_entries(
    fd: int, starts: "np.ndarray[Any, Any]", stops: "np.ndarray[Any, Any]"
) -> None:
    order = np.argsort(starts, kind="stable")
    bad = np.flatnonzero(starts[order][1:] < stops[order][:-1])
    if not bad.size:
        return
    at = int(starts[order][bad[0] + 1])
    head = os.pread(fd, _LOCAL.size + bounds.MAX_NAME_BYTES, at)
    name = head[_LOCAL.size : _LOCAL.size + _LOCAL.unpack_from(head)[9]]
    raise ArchiveHostile(f"The entry {quote_name(name)} overlaps another entry.")
