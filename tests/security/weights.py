"""safetensors files that attack: headers that lie about lengths, names, types, shapes and
places.
"""

import json
import struct
from typing import Any

import numpy as np

from core.files.safetensors_header import MAX_HEADER_BYTES
from tests.security.case import BASES, Case

BASE = "422 base-invalid"
_F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def cases() -> list[Case]:
    """All files, each sent as a base."""
    return [
        _case("no bytes", b""),
        _case("seven bytes", b"\0" * 7),
        _case("header of 0 bytes", struct.pack("<Q", 0)),
        _case("header of 2^64 - 1 bytes", b"\xff" * 8 + b"{}"),
        _case("header of 2^63 bytes", struct.pack("<Q", 1 << 63) + b"{}"),
        _case("header of 100 MB", struct.pack("<Q", 100_000_000) + b" " * 100_000_000),
        _case("header one byte too "
            "long", struct.pack("<Q", MAX_HEADER_BYTES + 1) + b" " * (MAX_HEADER_BYTES + 1)),
        _case("header longer than the file", struct.pack("<Q", 900) + b"{}"),
        _case("header one byte longer than the file", _length(b"{}", 3)),
        _case("big-endian length", struct.pack(">Q", 2) + b"{}"),
        _text("not JSON", b"{'a': 1}"),
        _text("list", b"[]"),
        _text("number", b"7"),
        _text("null", b"null"),
        _text("nothing in it", b"{}"),
        _text("metadata alone", b'{"__metadata__": {"a": "b"}}'),
        _text("byte order mark", b"\xef\xbb\xbf" + json.dumps({"a": _F32}).encode(), 8),
        _text("UTF-16", json.dumps({"a": _F32}).encode("utf-16"), 8),
        _text("not UTF-8", b'{"\xff": 1}'),
        _text("100,000 brackets", b"[" * 100_000),
        _text("100,000 objects deep", b'{"a":' * 100_000),
        _text("name twice", b'{"a": %s, "a": '
            b'%s}' % (json.dumps(_F32).encode(), json.dumps(_F32).encode()), 8),
        _text("dtype twice", b'{"a": {"dtype": "F32", "dtype": "I64", "shape": [1], '
            b'"data_offsets": [0, 8]}}', 8),
        _text("one name in two spellings",
              b'{"a": %s, "\\u0061": '
              b'%s}' % (json.dumps(_F32).encode(), json.dumps(_F32).encode()), 8),
        _text("two texts", b"{} {}"),
        _text("NUL behind the JSON", b"{}\0\0"),
        _one("metadata as a tensor", {"__metadata__": 5, "a": _F32}, 8),
        _one("unknown dtype", {"a": {**_F32, "dtype": "F13"}}, 8),
        _one("dtype of 1 MB", {"a": {**_F32, "dtype": "F" * 900_000}}, 8),
        _one("dtype that is a list", {"a": {**_F32, "dtype": ["F32"]}}, 8),
        _one("shape that is a text", {"a": {**_F32, "shape": "2"}}, 8),
        _one("negative side", {"a": {**_F32, "shape": [-2]}}, 8),
        _one("two negative sides", {"a": {**_F32, "shape": [-1, -2]}}, 8),
        _one("side of a fraction", {"a": {**_F32, "shape": [2.0]}}, 8),
        _one("side that is true", {"a": {**_F32, "shape": [True, 2]}}, 8),
        _one("side of 2^62", {"a": {**_F32, "shape": [1 << 62]}}, 8),
        _one("sides whose product is 2^64", {"a": {**_F32, "shape": [1 << 32, 1 << 32]}}, 8),
        _text("side of 5,000 digits",
              b'{"a": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 8]}}' % (b"9" * 5000), 8),
        _text("side that is NaN", b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, '
            b'8]}}', 8),
        _one("shape of 1,000 sides", {"a": {**_F32, "shape": [1] * 1000}}, 8),
        _one("shape that is not the size", {"a": {**_F32, "shape": [3]}}, 8),
        _one("offsets backwards", {"a": {**_F32, "data_offsets": [8, 0]}}, 8),
        _one("negative offset", {"a": {**_F32, "data_offsets": [-8, 0]}}, 8),
        _one("offset beyond the "
            "file", {"a": {**_F32, "data_offsets": [1 << 40, (1 << 40) + 8]}}, 8),
        _one("offset of a fraction", {"a": {**_F32, "data_offsets": [0, 8.5]}}, 8),
        _one("three offsets", {"a": {**_F32, "data_offsets": [0, 4, 8]}}, 8),
        _one("no offsets", {"a": {"dtype": "F32", "shape": [2]}}, 8),
        _one("one key too many", {"a": {**_F32, "exec": "rm -rf /"}}, 8),
        _one("tensor that is null", {"a": None}, 8),
        _one("hole between tensors", {"a": _F32, "b": {**_F32, "data_offsets": [16, 24]}}, 24),
        _one("overlapping tensors", {"a": _F32, "b": {**_F32, "data_offsets": [4, 12]}}, 12),
        _one("the same bytes twice", {"a": _F32, "b": _F32}, 8),
        _one("bytes behind the tensors", {"a": _F32}, 4096),
        _one("bytes missing", {"a": {**_F32, "shape": [1 << 20], "data_offsets": [0, 4 << 20]}}, 100),
        _one("tensors of another network", {"a": _F32}, 8),
        _one("name that climbs", {"../../etc/passwd": _F32}, 8),
        _one("name with NUL and escapes", {"a\0\x1b[2J\u202e": _F32}, 8),
        _one("name that is half a surrogate", {"\ud800": _F32}, 8),
        _one("name of 900,000 characters", {"n" * 900_000: _F32}, 8),
        _one("10,000 empty tensors",
             {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(10_000)}, 0),
        _case("pickle", b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x8c\x07evil\x94."),
        _case("torch archive", b"PK\x03\x04" + b"\0" * 400),
        Case("weights", "safetensors: said to be a "
            "zip", lambda: _length(b"{}", 2), ("415 unsupported-type",), BASES,
             headers={"Content-Type": "application/zip"}),
    ]  # fmt: skip


def small_cnn(fill: float, expected: dict[str, Any]) -> bytes:
    """A file that fits, full of one value: NaN and infinity are the weights of a base that ruins
    every version.
    """
    header, position, chunks = {}, 0, []
    for name, want in expected["tensors"].items():
        kind = {"F32": np.float32, "I64": np.int64}[want["dtype"]]
        data = np.full(want["shape"], fill if kind is np.float32 else 0, kind).tobytes()
        header[name] = {**want, "data_offsets": [position, position + len(data)]}
        position += len(data)
        chunks.append(data)
    return _length(json.dumps(header).encode()) + b"".join(chunks)


def _case(name: str, data: bytes) -> Case:
    headers = {"Content-Type": "application/safetensors"}
    answers = (
        (BASE, "413 body-too-large") if len(data) > 64 << 20 else (BASE,)
    )  # the command lowers the limit
    return Case("weights", f"safetensors: {name}", lambda: data, answers, BASES, headers=headers)


def _text(name: str, header: bytes, data_bytes: int = 0) -> Case:
    return _case(name, _length(header) + bytes(data_bytes))


def _one(name: str, header: dict[str, Any], data_bytes: int) -> Case:
    return _text(name, json.dumps(header).encode(), data_bytes)


def _length(header: bytes, said: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if said is None else said) + header
