"""The header of a safetensors file, read without torch.

A file is 8 bytes of header length (little endian), a JSON header `{name: {"dtype", "shape",
"data_offsets": [begin, end]}}` and the tensors' bytes. The check here comes before any other reader sees
an uploaded file: the format's own readers accept headers of 100 MB and hide duplicate names.
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

# Bytes per value, in the rank order by which the format's own writer sorts (largest rank first).
DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """Where one tensor lies: `begin` and `end` are byte offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> list[Tensor]:
    """Return the tensors of a safetensors file in the order of their bytes, everything checked.

    Raises:
        BaseInvalid: header longer than 1 MiB, not JSON, a name twice, an unknown dtype, a size that
            contradicts shape and dtype, gaps, overlaps, or offsets outside the file.
    """
    with path.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        return parse_header(path.stat().st_size, read)


def parse_header(size: int, read: Callable[[int, int], bytes]) -> list[Tensor]:
    """As `read_header`, of `size` bytes that lie anywhere: `read(offset, length)` gives some of them."""
    start = read(0, 8)
    if len(start) < 8:
        raise BaseInvalid(f"The file has {size} bytes: too short for a safetensors file.")
    (length,) = struct.unpack("<Q", start)
    other = _other_format(start)
    if other is not None and length > MAX_HEADER_BYTES:
        raise BaseInvalid(
            f"This is {other}, and a base is a safetensors file: other formats are never read, since they can hold code"
            " or lead to other files. Save the state dict of its backbone by safetensors.torch.save_file."
        )
    if length > MAX_HEADER_BYTES:
        raise BaseInvalid(f"The safetensors header claims {length} bytes; {MAX_HEADER_BYTES} are allowed.")
    if 8 + length > size:
        raise BaseInvalid(f"The safetensors header claims {length} bytes; the file has {size}.")
    header = _parse(read(8, length))
    tensors = sorted(
        (_tensor(name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"),
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


def _other_format(start: bytes) -> str | None:
    """Return what the first eight bytes say a file is, where it is another format in which weights are handed on."""
    if start[:4] == b"PK\x03\x04":
        return "a zip, such as PyTorch's pickles"
    if start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05":
        return "a pickle"
    if start[:4] == b"\x89HDF":
        return "an HDF5 file, such as Keras' weights"
    if start[:1] == b"\x08" and start[2:3] in b"\x12\x1a":
        return "an ONNX file"
    return None


def check_expected(tensors: Sequence[Tensor], expected: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare with `expected` (`{name: {"dtype": "F32", "shape": [64, 3, 3, 3]}}`).

    Raises:
        BaseInvalid: a name is missing or unknown, or a shape or dtype differs; `fields` lists up to 20.
    """
    found = {t.name: t for t in tensors}
    wrong = [{"field": name, "message": "is missing"} for name in expected if name not in found]
    wrong += [
        {"field": name, "message": "does not belong to this architecture"}
        for name in found
        if name not in expected
    ]
    for name, tensor in found.items():
        want = expected.get(name)
        if want is None:
            continue
        if list(tensor.shape) != list(want["shape"]):
            differs = f"has shape {_shape(tensor.shape)}, not {_shape(want['shape'])}"
            wrong.append({"field": name, "message": differs})
        elif tensor.dtype != want["dtype"]:
            wrong.append({"field": name, "message": f"has dtype {tensor.dtype}, not {want['dtype']}"})
    if wrong:
        first = f"{wrong[0]['field']!r} {wrong[0]['message']}"
        what = f"{len(wrong)} tensors do not fit the architecture; the first: {first}"
        if len(wrong) == 1:
            what = f"One tensor does not fit the architecture: {first}"
        raise BaseInvalid(
            f"{what}. Upload the backbone's state dict for exactly this architecture.",
            fields=wrong[:20],
        )


def check_finite(path: Path, tensors: Sequence[Tensor]) -> None:
    """Read every 32-bit float: one that is no number would spoil each version that starts from it.

    Raises:
        BaseInvalid: NaN or infinity; names the tensor.
    """
    with path.open("rb") as file:
        for tensor in tensors:
            if tensor.dtype != "F32":
                continue
            file.seek(tensor.begin)
            left = tensor.end - tensor.begin
            while left:
                data = file.read(min(left, COPY_BYTES))
                if not np.isfinite(np.frombuffer(data, "<f4")).all():
                    raise BaseInvalid(f"Tensor {tensor.name!r} holds NaN or infinity.")
                left -= len(data)


def _parse(text: bytes) -> dict[str, object]:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in pairs:
            if name in found:
                raise BaseInvalid(f"The safetensors header names {name[:MAX_NAME_CHARS]!r} twice.")
            found[name] = value
        return found

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise BaseInvalid("The safetensors header is not JSON.") from error
    if not isinstance(header, dict):
        raise BaseInvalid("The safetensors header is not a JSON object.")
    return header


def _tensor(name: str, entry: object, body: int) -> Tensor:
    def refuse(reason: str) -> BaseInvalid:
        return BaseInvalid(f"Tensor {name[:MAX_NAME_CHARS]!r} of the safetensors header {reason}.")

    if len(name) > MAX_NAME_CHARS:
        raise refuse(f"has a name of more than {MAX_NAME_CHARS} characters")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise refuse("must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise refuse(f"has the unknown dtype {str(dtype)[:20]!r}")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(_natural(n) for n in shape):
        raise refuse("has an impossible shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_natural(n) for n in offsets):
        raise refuse("has impossible offsets")
    values = 1
    for n in shape:
        values *= n
    if offsets[1] - offsets[0] != values * DTYPE_BYTES[dtype]:
        raise refuse(f"covers {offsets[1] - offsets[0]} bytes where shape and dtype say otherwise")
    return Tensor(name, dtype, tuple(shape), body + offsets[0], body + offsets[1])


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "of a single number"


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48
