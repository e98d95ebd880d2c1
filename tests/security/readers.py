"""One call into each reader of untrusted bytes, with what must hold of everything that it lets
pass.

`read(target, data)` returns the outcome as a short text. The only errors that a reader may raise
are typed ones with a 4xx status and a printable message; anything else comes through and is a
finding.
"""

import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from api.predict.form import parse_form_files
from api.strict_json import parse_strict_json
from api.uploads.form import UploadFormParser
from api.uploads.spool_file import SpoolFile
from core.errors import ImageInvalid, PerennialError
from core.files.safetensors_header import parse_safetensors_header
from core.ingest import images
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.inspect import check_archive_size, open_file_read_only
from core.ingest.limits import ArchiveLimits
from core.ingest.members import ArchiveFileUnpackedSizeMismatch, DamagedArchiveMember
from core.ingest.members import read_archive_member as read_archive_member
from core.ingest.reader import ArchiveContents
from core.ingest.readers.registry import get_upload_reader_by_format_name
from core.ingest.sniff import SNIFF_BYTES, detect_upload_format
from core.predictions.helper.decoder import InvalidDecodeRequest, decode_nested_image_arrays
from core.predictions.helper.decoder import parse_json_images as images_of_json
from perennial.reading_rules.entries import BatchReadingOptions, UnreadableBatchError
from perennial.reading_rules.tables import find_label_table, resolve_label_table_images

LIMITS = ArchiveLimits()
_MAX_DETAIL = 600
_VARYING = re.compile(r"“[^”]*”|'[^']*'|\d+")


def read_input(target: str, data: bytes) -> str:
    """Return what the target's reader says: `accepted`, or its typed error's code and wording.

    Raises:
        AssertionError: it let something pass that it must not, or its error is not fit for a
            person.
    """
    try:
        _READERS[target](data)
    except PerennialError as error:
        assert 400 <= error.status < 500, f"status {error.status}"
        assert error.detail.isprintable(), "its message is not printable"
        assert len(error.detail) <= _MAX_DETAIL, f"its message has {len(error.detail)} characters"
        return f"{error.code}: {_VARYING.sub('_', error.detail)[:90]}"
    except (InvalidDecodeRequest, UnreadableBatchError) as error:
        assert str(error).isprintable() and len(str(error)) <= _MAX_DETAIL
        return f"invalid: {_VARYING.sub('_', str(error))[:90]}"
    return "accepted"


def check_archive(data: bytes) -> None:
    """Check container, directory, layout and labels as the API and the worker read them.
    Check also every file in the archive.
    """
    reader = get_upload_reader_by_format_name(detect_upload_format(data[:SNIFF_BYTES], None))
    with _open_memory_file(data) as fd, TemporaryDirectory() as scratch:
        check_archive_size(fd, LIMITS)
        listed, source = reader.open_archive(fd, Path(f"/proc/self/fd/{fd}"), LIMITS, Path(scratch))
        found = listed.with_assigned_classes(LIMITS)
        with open_file_read_only(source) as unpacked:
            _check_contents(found, unpacked)


def _check_contents(found: ArchiveContents, fd: int) -> None:
    members, size = found.members, os.fstat(fd).st_size
    assert len(set(members.names)) == len(members), "a name appears twice"
    assert sum(found.layout.count_images_by_class_and_part()[1:]) >= 1
    for i, name in enumerate(members.names):
        parts = name.split("/")
        fine = ".." not in parts and "" not in parts and name.isprintable()
        assert fine or " " in name or not name.isascii()
        assert members.offsets[i] + members.packed[i] <= size, "an entry lies outside the file"
        if members.sizes[i] > 1 << 20:
            continue
        try:
            unpacked = read_archive_member(fd, members.offsets[i], members.packed[i], members.sizes[i],
                                           members.methods[i], members.crcs[i])  # fmt: skip
        except (DamagedArchiveMember, ArchiveFileUnpackedSizeMismatch):
            continue  # a row of the report, and a refused batch
        assert len(unpacked) == members.sizes[i]


def check_label_table(data: bytes) -> None:
    names = ["cat/0.png", "dog/0.png", "labels.csv"]
    found = find_label_table(names, lambda _: data, BatchReadingOptions(max_bad=1))
    assert found is not None
    for row in found.rows:
        assert row.label.strip() == row.label and 0 < len(row.label) <= 100
    for number, _ in resolve_label_table_images(
        found, names, range(3), BatchReadingOptions(max_bad=1)
    ).placed:
        assert number in (0, 1)


def check_image(data: bytes) -> None:
    picture = images.decode_square_image(data, 32, 3, LIMITS.image_pixels).image
    assert picture.size == (32, 32) and picture.mode == "RGB"


def check_safetensors(data: bytes) -> None:
    tensors = parse_safetensors_header(
        len(data), lambda offset, length: data[offset : offset + length]
    )
    assert len({t.name for t in tensors}) == len(tensors)
    (length,) = struct.unpack_from("<Q", data)
    assert sum(t.end - t.begin for t in tensors) == len(data) - 8 - length


def check_json_text(data: bytes) -> None:
    parse_strict_json(data)


def check_arrays(data: bytes) -> None:
    for found in decode_nested_image_arrays(
        images_of_json(data), 8, 3, LIMITS, SquareResizingSettings()
    ):
        if isinstance(found, ImageInvalid):
            raise found
        assert len(found) == 8 * 8 * 3


def check_form(data: bytes) -> None:
    """Check both readers of forms: that of uploads, in pieces, and that of predictions."""
    errors = []
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"form-{os.getpid()}"
    for take in (_read_upload_form, lambda data, _: parse_form_files(data, b"xx", 4)):
        try:
            take(data, path)
        except PerennialError as error:
            errors.append(error)
        finally:
            path.unlink(missing_ok=True)
    if errors:
        raise errors[0]


def _read_upload_form(data: bytes, path: Path) -> None:
    file = SpoolFile(path, 1 << 20, None, None)
    try:
        reader = UploadFormParser(file, b"xx", ("recipe",))
        for at in range(0, len(data), 61):
            piece = bytearray(data[at : at + 61])
            reader.write(piece, len(piece))
        reader.finish()
    finally:
        file.close()


@contextmanager
def _open_memory_file(data: bytes) -> Iterator[int]:
    fd = os.memfd_create("input")
    try:
        os.write(fd, data)
        yield fd
    finally:
        os.close(fd)


_READERS: dict[str, Callable[[bytes], None]] = {
    **dict.fromkeys(("zip", "tar", "gzip", "npz", "npy"), check_archive),
    "csv": check_label_table,
    "image": check_image,
    "safetensors": check_safetensors,
    "json": check_json_text,
    "arrays": check_arrays,
    "form": check_form,
}
