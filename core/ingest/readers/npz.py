"""Reader of npz archives. Every member's npy header is checked before its data is read.

An object array is a pickle, for which the archive is rejected. Headers are matched against the one
form that NumPy writes, instead of being evaluated (format: numpy.lib.format, versions 1.0 to 3.0).
"""

import math
import os
import re
import struct
import zlib
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.errors import ArchiveHostile, ArchiveInvalid, ArchiveTooLarge, LabelsInvalid
from core.ingest import limits as bounds
from core.ingest.layout import ArchiveLayout
from core.ingest.limits import ArchiveLimits
from core.ingest.members import (
    DEFLATED,
    ArchiveFileUnpackedSizeMismatch,
    ArchiveMembers,
    DamagedArchiveMember,
    read_archive_member_at_index,
)
from core.ingest.names import check_and_normalise_class_label, quote_name
from core.ingest.reader import ArchiveContents, NpzImageArrayLocation, UploadReader
from core.ingest.readers import npz_remedies
from core.ingest.readers.zip import list_regular_zip_files

_HEADER = re.compile(
    r"\{'descr': '([^'\\]{1,16})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,15}, "
    r"?)*\d{0,15})\),? ?\}\s*"
)
_KNOWN = ("images", "labels", "test_images", "test_labels", "classes")
_NOT_READ = f"no array that is read: these are {', '.join(_KNOWN[:-1])} and {_KNOWN[-1]}"
_MAX_LABEL_BYTES = 32 << 20
"""Largest array of labels: 64 KiB could unpack to it, since labels are exempt from the ratio."""
_MAX_SIDE = 1 << 15


class NpzReader(UploadReader):
    """Reader of npz files, which are zips of NumPy arrays."""

    name = "npz"
    media_types = ("application/x-npz",)
    endings = (".npz",)
    special_of = "zip"

    def recognises_format(self, first: bytes) -> bool:
        """Return True if the first file of a zip is a NumPy array outside of any folder."""
        # The fixed part of a zip's local header has 30 bytes; the name follows.
        if len(first) < 30:
            return False
        (name_bytes,) = struct.unpack_from("<H", first, 26)
        name = first[30 : 30 + name_bytes]
        return first.startswith(b"PK\x03\x04") and name.endswith(b".npy") and b"/" not in name

    def list_contents(self, fd: int, limits: ArchiveLimits) -> ArchiveContents:
        """Check the arrays of an npz by their headers, and read its labels."""
        return _check_npz_arrays_and_read_labels(
            fd, list_regular_zip_files(fd, limits, check_ratio=False), limits
        )


@dataclass(frozen=True)
class _NpyMemberHeader:
    """An array in an npz: dtype, shape and the offset of its elements within the unpacked file."""

    name: str
    index: int
    dtype: "np.dtype[np.generic]"
    shape: tuple[int, ...]
    header_bytes: int


def _check_npz_arrays_and_read_labels(
    fd: int, members: ArchiveMembers, limits: ArchiveLimits
) -> ArchiveContents:
    """Check the arrays of an npz and read its labels, but not its images.

    Raises ArchiveHostile (pickle, ratio, wrong size), ArchiveInvalid (arrays of another form),
    ArchiveTooLarge, LabelsInvalid.
    """
    layout = ArchiveLayout("npz", of=array("l", bytes(0)))
    arrays = _find_known_npz_arrays(fd, members, layout)
    images, test = arrays["images"], arrays.get("test_images")
    for item in (images, test):
        if item is not None:
            _check_npz_image_array(item, members, limits)
    if test is not None and test.shape[1:] != images.shape[1:]:
        raise ArchiveInvalid("The arrays “images” and “test_images” have different image shapes.")
    total = images.shape[0] + (test.shape[0] if test else 0)
    if total > limits.entries:
        raise ArchiveTooLarge(f"The npz has {total} images; at most {limits.entries} are accepted.")
    names = (
        _decode_label_values(_read_npz_label_array(fd, members, arrays["classes"], limits))
        if "classes" in arrays
        else None
    )
    numbers: dict[str, int] = {}
    for part, pictures in (("labels", images), ("test_labels", test)):
        if pictures is not None:
            item = arrays[part]
            if item.shape != pictures.shape[:1]:
                remedy = ""
                if item.shape[:1] == pictures.shape[:1]:
                    remedy = npz_remedies.advise_on_npz_label_array(
                        part, item.dtype.kind, item.shape
                    )
                raise LabelsInvalid(
                    f"The array “{part}” has the shape {item.shape}, not "
                    f"{pictures.shape[:1]}.{_format_remedy_sentence(remedy)}"
                )
            _assign_npz_label_classes(
                layout, numbers, _read_npz_label_array(fd, members, item, limits), names, part
            )
    layout.check_class_count_and_training_images(limits)
    return ArchiveContents(
        members,
        layout,
        tuple(_build_npz_image_array(item) for item in (images, test) if item is not None),
    )


def _find_known_npz_arrays(
    fd: int, members: ArchiveMembers, layout: ArchiveLayout
) -> dict[str, _NpyMemberHeader]:
    """Return the npz arrays with known names, at least images and labels.

    Ignored members are counted in `layout`.
    """
    arrays: dict[str, _NpyMemberHeader] = {}
    for i, name in enumerate(members.names):
        stem = name.removesuffix(".npy")
        # Read for every member: an object array anywhere is a pickle.
        header = _read_npy_header(fd, members, i)
        if stem == name or stem not in _KNOWN:
            layout.ignored += 1
            if layout.ignored <= bounds.REPORT_FILES:
                layout.ignored_files.append({"path": name, "reason": _NOT_READ})
            continue
        if header is None:
            raise ArchiveInvalid(f"The member {quote_name(name)} is not an npy array.")
        arrays[stem] = header
    if "images" not in arrays or "labels" not in arrays:
        array_names = [name.removesuffix(".npy") for name in members.names]
        remedy = _format_remedy_sentence(npz_remedies.advise_on_npz_array_names(array_names))
        raise ArchiveInvalid(
            f"The npz must have the arrays “images” and “labels”; it has "
            f"{', '.join(map(quote_name, array_names[:10])) or 'none'}.{remedy}"
        )
    if ("test_images" in arrays) != ("test_labels" in arrays):
        raise ArchiveInvalid("The npz must have both “test_images” and “test_labels”, or neither.")
    return arrays


def _format_remedy_sentence(remedy: str) -> str:
    return f" {remedy}." if remedy else ""


def _build_npz_image_array(item: _NpyMemberHeader) -> NpzImageArrayLocation:
    return NpzImageArrayLocation(
        item.name.removesuffix(".npy"), item.index, item.header_bytes, item.shape
    )


def _assign_npz_label_classes(
    layout: ArchiveLayout,
    numbers: dict[str, int],
    values: npt.NDArray[np.generic],
    names: list[str] | None,
    part: str,
) -> None:
    distinct, inverse = np.unique(values, return_inverse=True)
    lookup = np.empty(len(distinct), np.int64)
    # Each distinct value is checked once, not each of a million labels.
    for at, value in enumerate(distinct.tolist()):
        if isinstance(value, int) and names is not None:
            if not 0 <= value < len(names):
                raise LabelsInvalid(
                    f"“{part}” has the label {value}, but “classes” has {len(names)} names."
                )
            text = names[value]
        else:
            text = _decode_label_value(value)
        label = check_and_normalise_class_label(text, f"“{part}”")
        number = numbers.setdefault(label, len(numbers))
        if number == len(layout.classes):
            layout.classes.append(label)
        lookup[at] = number
    layout.of.extend(lookup[inverse].tolist())
    layout.test.extend(bytes([part == "test_labels"]) * len(values))


def _decode_label_value(value: int | str | bytes) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise LabelsInvalid(f"The label {quote_name(value)} is not UTF-8.") from error
    return str(value)


def _decode_label_values(values: npt.NDArray[np.generic]) -> list[str]:
    return [_decode_label_value(value) for value in values.tolist()]


def _read_npy_header(fd: int, members: ArchiveMembers, i: int) -> _NpyMemberHeader | None:
    """Return the header of an npz's file i as a NumPy array, or None if it is none."""
    name = members.names[i]
    head = _read_npy_header_bytes(fd, members, i)
    if not head.startswith(b"\x93NUMPY") or len(head) < 12:
        if name.endswith(".npy"):
            raise ArchiveHostile(
                f"The member {quote_name(name)} is not an npy array (a bare pickle is refused)."
            )
        return None
    # Version 1 has two bytes for the header's length, later versions have four.
    wide = head[6] >= 2
    (length,) = struct.unpack_from("<I" if wide else "<H", head, 8)
    begin = 12 if wide else 10
    if (
        head[6] not in (1, 2, 3)
        or length > bounds.MAX_NPY_HEADER_BYTES
        or len(head) < begin + length
    ):
        raise ArchiveInvalid(
            f"The member {quote_name(name)} has a header of {length} bytes; that is no plain array."
        )
    text = head[begin : begin + length].decode("latin-1")
    # Before the whole form is matched, so that fields of objects get this message as well.
    if re.search(r"'\|?[<>=]?O", text):
        remedy = npz_remedies.advise_on_npz_object_array(name.removesuffix(".npy"))
        raise ArchiveHostile(
            f"The member {quote_name(name)} is an object array, a pickle; no pickle is ever "
            f"read.{_format_remedy_sentence(remedy)}"
        )
    match = _HEADER.fullmatch(text)
    if match is None:
        raise ArchiveInvalid(
            f"The member {quote_name(name)} is not a plain array of numbers or strings."
        )
    descr, fortran, shape_text = match.groups()
    shape = tuple(int(n) for n in shape_text.split(",") if n.strip())
    if not re.fullmatch(r"[|<>=]?[iufbUS]\d{1,6}", descr):
        raise ArchiveInvalid(
            f"The member {quote_name(name)} has the type {quote_name(descr)}; use integers or strings."
        )
    # With one dimension, both orders have the same bytes.
    if fortran == "True" and len(shape) > 1:
        remedy = npz_remedies.advise_on_npz_fortran_order_array(name.removesuffix(".npy"))
        raise ArchiveInvalid(
            f"The member {quote_name(name)} is in Fortran order.{_format_remedy_sentence(remedy)}"
        )
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError) as error:
        raise ArchiveInvalid(
            f"The member {quote_name(name)} has the type {quote_name(descr)}."
        ) from error
    # Otherwise rows would be read beyond the member, from other data of the archive.
    if math.prod(shape) * dtype.itemsize != members.sizes[i] - begin - length:
        raise ArchiveHostile(
            f"The member {quote_name(name)} declares the shape {shape}, which is not the size it has."
        )
    return _NpyMemberHeader(name, i, dtype, shape, begin + length)


def _read_npy_header_bytes(fd: int, members: ArchiveMembers, i: int) -> bytes:
    count = bounds.MAX_NPY_HEADER_BYTES + 12
    data = os.pread(fd, min(count, members.packed[i]), members.offsets[i])
    if members.methods[i] == DEFLATED:
        try:
            return zlib.decompressobj(-15).decompress(data, count)
        except zlib.error as error:
            raise ArchiveInvalid(
                f"The member {quote_name(members.names[i])} is damaged."
            ) from error
    return data


def _check_npz_image_array(
    item: _NpyMemberHeader, members: ArchiveMembers, limits: ArchiveLimits
) -> None:
    shape = item.shape
    if (
        item.dtype != np.uint8
        or len(shape) not in (3, 4)
        or (len(shape) == 4 and shape[3] not in (1, 3, 4))
    ):
        remedy = npz_remedies.advise_on_npz_image_array(
            item.name.removesuffix(".npy"), item.dtype.kind, shape
        )
        raise ArchiveInvalid(
            f"The array {quote_name(item.name)} is {item.dtype} {shape}; it must be uint8 N×H×W or "
            f"N×H×W×C, C in 1, 3, 4.{_format_remedy_sentence(remedy)}"
        )
    if (
        not shape[1]
        or not shape[2]
        or max(shape[1:3]) > _MAX_SIDE
        or shape[1] * shape[2] > limits.image_pixels
    ):
        raise ArchiveTooLarge(
            f"The images of {quote_name(item.name)} are {shape[2]}×{shape[1]} pixels."
        )
    size, packed = members.sizes[item.index], members.packed[item.index]
    if size > max(limits.ratio * packed, bounds.RATIO_FLOOR_BYTES):
        raise ArchiveHostile(
            f"The member {quote_name(item.name)} unpacks {packed} bytes to {size}, more than "
            f"{limits.ratio}:1."
        )


def _read_npz_label_array(
    fd: int, members: ArchiveMembers, item: _NpyMemberHeader, limits: ArchiveLimits
) -> npt.NDArray[np.generic]:
    """Read a one-dimensional array of labels from an npz, of limited size."""
    i = item.index
    # NumPy cannot read items without bytes, such as `S0`.
    if len(item.shape) != 1 or item.dtype.kind not in "iuUS" or not item.dtype.itemsize:
        remedy = npz_remedies.advise_on_npz_label_array(
            item.name.removesuffix(".npy"), item.dtype.kind, item.shape
        )
        raise LabelsInvalid(
            f"The array {quote_name(item.name)} is {item.dtype} {item.shape}; labels are N integers or "
            f"strings.{_format_remedy_sentence(remedy)}"
        )
    if item.shape[0] > limits.entries or members.sizes[i] > _MAX_LABEL_BYTES:
        raise ArchiveTooLarge(
            f"The array {quote_name(item.name)} has {item.shape[0]} rows of {item.dtype.itemsize} bytes."
        )
    if item.dtype.kind in "US" and item.dtype.itemsize > 16 * bounds.MAX_LABEL_CHARS:
        raise LabelsInvalid(
            f"The labels of {quote_name(item.name)} are longer than {bounds.MAX_LABEL_CHARS} characters."
        )
    try:
        data = read_archive_member_at_index(fd, members, i)
    except ArchiveFileUnpackedSizeMismatch as error:
        raise ArchiveHostile(
            f"The member {quote_name(item.name)} does not unpack to its declared size."
        ) from error
    except DamagedArchiveMember as error:
        raise ArchiveInvalid(
            f"The member {quote_name(item.name)} is unreadable: {error}."
        ) from error
    if item.dtype.kind == "U":
        codes = np.frombuffer(
            data, np.dtype("u4").newbyteorder(item.dtype.byteorder), offset=item.header_bytes
        )
        if codes.size and codes.max() > 0x10FFFF:  # such codes make NumPy fail with a SystemError
            raise LabelsInvalid(f"The labels of {quote_name(item.name)} are not valid text.")
    return np.frombuffer(data, item.dtype, offset=item.header_bytes)
