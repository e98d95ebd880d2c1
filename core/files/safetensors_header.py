"""Reader of the header of a safetensors file, without torch.

A file has 8 bytes of header length (little endian), a JSON header `{name: {"dtype", "shape",
"data_offsets": [begin, end]}}` and the tensors' bytes. An uploaded file is checked here before any
other reader opens it, because the format's own readers accept headers of 100 MB and hide duplicate
names.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import BaseInvalid

MAX_HEADER_BYTES = 1 << 20
MAX_DIMENSIONS = 8
MAX_NAME_CHARS = 300
COPY_BYTES = 1 << 20

# Bytes per value. The order is the rank by which the format's own writer sorts, largest first.
DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class TensorHeader:
    """Header of a tensor in a safetensors file: name, type, shape and position.

    `begin` and `end` are byte offsets in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_safetensors_header(path: Path) -> list[TensorHeader]:
    """Check the header of a safetensors file; return its tensors in the order of their bytes.

    Raises:
        BaseInvalid: the header is longer than 1 MiB or not JSON, has a duplicate name, an unknown
            dtype, or a size that contradicts shape and dtype; or the tensors have gaps, overlap, or
            lie outside the file.
    """
    with path.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        return parse_safetensors_header(path.stat().st_size, read)


def parse_safetensors_header(size: int, read: Callable[[int, int], bytes]) -> list[TensorHeader]:
    """Parse the header of a safetensors file from its bytes; see `read_safetensors_header`.

    Args:
        size: bytes of the file.
        read: `read(offset, length)` returns a range of its bytes.

    Raises:
        BaseInvalid: see `read_safetensors_header`.
    """
    start = read(0, 8)
    if len(start) < 8:
        raise BaseInvalid(f"The file has {size} bytes: too short for a safetensors file.")
    (length,) = struct.unpack("<Q", start)
    kind = _identify_other_file_format(start)
    # Both, because a sound file's length may begin with the same bytes.
    if kind is not None and length > MAX_HEADER_BYTES:
        raise BaseInvalid(
            f"This is {kind}, and a base is a safetensors file: other formats are never read, "
            "since they can hold code or lead to other files. Save the state dict of its backbone "
            "by safetensors.torch.save_file."
        )
    if length > MAX_HEADER_BYTES:
        raise BaseInvalid(
            f"The safetensors header claims {length} bytes; {MAX_HEADER_BYTES} are allowed."
        )
    # Checked before the header is read: the length is a stranger's number.
    if 8 + length > size:
        raise BaseInvalid(f"The safetensors header claims {length} bytes; the file has {size}.")
    header = _parse_header_json(read(8, length))
    tensors = sorted(
        (
            _parse_tensor_header(name, entry, 8 + length)
            for name, entry in header.items()
            # Texts of the writer, which nothing of the service reads.
            if name != "__metadata__"
        ),
        # An empty tensor begins where its successor does, and must precede it.
        key=lambda t: (t.begin, t.end),
    )
    position = 8 + length
    for tensor in tensors:
        if tensor.begin != position:
            raise BaseInvalid(
                f"Tensor {tensor.name!r} starts at byte {tensor.begin} instead of {position}: "
                "tensors must lie one after another without gaps or overlaps."
            )
        position = tensor.end
    if position != size:
        raise BaseInvalid(f"The tensors end at byte {position}, the file at {size}.")
    return tensors


def _identify_other_file_format(start: bytes) -> str | None:
    """Return which other file format the first eight bytes indicate, or None."""
    if start[:4] == b"PK\x03\x04":
        return "a zip, such as PyTorch's pickles"
    if start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05":
        return "a pickle"
    if start[:4] == b"\x89HDF":
        return "an HDF5 file, such as Keras' weights"
    if start[:1] == b"\x08" and start[2:3] in b"\x12\x1a":
        return "an ONNX file"
    return None


def check_expected_tensors(
    tensors: Sequence[TensorHeader], expected: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check that tensors have the expected types and shapes (`{name: {"dtype": "F32", "shape": [64,
    3, 3, 3]}}`).

    Raises:
        BaseInvalid: a name is missing or unknown, or a shape or dtype differs; `fields` lists up to
            20.
    """
    tensors_by_name = {t.name: t for t in tensors}
    mismatches = [
        {"field": name, "message": "is missing"} for name in expected if name not in tensors_by_name
    ]
    mismatches += [
        {"field": name, "message": "does not belong to this architecture"}
        for name in tensors_by_name
        if name not in expected
    ]
    for name, tensor in tensors_by_name.items():
        requirement = expected.get(name)
        if requirement is None:
            continue
        if list(tensor.shape) != list(requirement["shape"]):
            differs = (
                f"has shape {_format_shape(tensor.shape)}, not "
                f"{_format_shape(requirement['shape'])}"
            )
            mismatches.append({"field": name, "message": differs})
        elif tensor.dtype != requirement["dtype"]:
            mismatches.append(
                {"field": name, "message": f"has dtype {tensor.dtype}, not {requirement['dtype']}"}
            )
    if mismatches:
        first = f"{mismatches[0]['field']!r} {mismatches[0]['message']}"
        problem = f"{len(mismatches)} tensors do not fit the architecture; the first: {first}"
        if len(mismatches) == 1:
            problem = f"One tensor does not fit the architecture: {first}"
        raise BaseInvalid(
            f"{problem}. Upload the backbone's state dict for exactly this architecture.",
            fields=mismatches[:20],
        )


def check_finite_tensors(path: Path, tensors: Sequence[TensorHeader]) -> None:
    """Check that all 32-bit floats of a file are finite, since NaN would spoil later versions.

    Raises:
        BaseInvalid: a tensor has NaN or infinity; the message names it.
    """
    with path.open("rb") as file:
        for tensor in tensors:
            if tensor.dtype != "F32":
                continue
            file.seek(tensor.begin)
            bytes_left = tensor.end - tensor.begin
            while bytes_left:
                # In pieces, so that a tensor of gigabytes does not have to fit into memory.
                data = file.read(min(bytes_left, COPY_BYTES))
                if not np.isfinite(np.frombuffer(data, "<f4")).all():
                    raise BaseInvalid(f"Tensor {tensor.name!r} holds NaN or infinity.")
                bytes_left -= len(data)


def _parse_header_json(text: bytes) -> dict[str, object]:
    # json silently keeps the last of two equal names, other readers may keep the first.
    def reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields: dict[str, object] = {}
        for name, value in pairs:
            if name in fields:
                raise BaseInvalid(f"The safetensors header names {name[:MAX_NAME_CHARS]!r} twice.")
            fields[name] = value
        return fields

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=reject_duplicate_keys)
    # Deep nesting raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise BaseInvalid("The safetensors header is not JSON.") from error
    if not isinstance(header, dict):
        raise BaseInvalid("The safetensors header is not a JSON object.")
    return header


def _parse_tensor_header(name: str, entry: object, body: int) -> TensorHeader:
    def build_error(reason: str) -> BaseInvalid:
        # The name is a stranger's and may have a megabyte.
        return BaseInvalid(f"Tensor {name[:MAX_NAME_CHARS]!r} of the safetensors header {reason}.")

    if len(name) > MAX_NAME_CHARS:
        raise build_error(f"has a name of more than {MAX_NAME_CHARS} characters")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise build_error("must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise build_error(f"has the unknown dtype {str(dtype)[:20]!r}")
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(_is_non_negative_int_below_limit(n) for n in shape)
    ):
        raise build_error("has an impossible shape")
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(_is_non_negative_int_below_limit(n) for n in offsets)
    ):
        raise build_error("has impossible offsets")
    values = 1
    for n in shape:
        values *= n
    if offsets[1] - offsets[0] != values * DTYPE_BYTES[dtype]:
        raise build_error(
            f"covers {offsets[1] - offsets[0]} bytes where shape and dtype say otherwise"
        )
    return TensorHeader(name, dtype, tuple(shape), body + offsets[0], body + offsets[1])


def _format_shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "of a single number"


def _is_non_negative_int_below_limit(value: object) -> bool:
    # `true` is an int in Python; and an offset beyond 2⁴⁸ is no file's.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48
