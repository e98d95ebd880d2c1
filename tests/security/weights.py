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


def list_cases() -> list[Case]:
    """Return all cases of files of weights, each sent as a base."""
    return [
        _make_case("no bytes", b""),
        _make_case("seven bytes", b"\0" * 7),
        _make_case("header of 0 bytes", struct.pack("<Q", 0)),
        _make_case("header of 2^64 - 1 bytes", b"\xff" * 8 + b"{}"),
        _make_case("header of 2^63 bytes", struct.pack("<Q", 1 << 63) + b"{}"),
        _make_case("header of 100 MB", struct.pack("<Q", 100_000_000) + b" " * 100_000_000),
        _make_case("header one byte too "
            "long", struct.pack("<Q", MAX_HEADER_BYTES + 1) + b" " * (MAX_HEADER_BYTES + 1)),
        _make_case("header longer than the file", struct.pack("<Q", 900) + b"{}"),
        _make_case("header one byte longer than the file", _add_length(b"{}", 3)),
        _make_case("big-endian length", struct.pack(">Q", 2) + b"{}"),
        _make_header_case("not JSON", b"{'a': 1}"),
        _make_header_case("list", b"[]"),
        _make_header_case("number", b"7"),
        _make_header_case("null", b"null"),
        _make_header_case("nothing in it", b"{}"),
        _make_header_case("metadata alone", b'{"__metadata__": {"a": "b"}}'),
        _make_header_case("byte order mark", b"\xef\xbb\xbf" + json.dumps({"a": _F32}).encode(), 8),
        _make_header_case("UTF-16", json.dumps({"a": _F32}).encode("utf-16"), 8),
        _make_header_case("not UTF-8", b'{"\xff": 1}'),
        _make_header_case("100,000 brackets", b"[" * 100_000),
        _make_header_case("100,000 objects deep", b'{"a":' * 100_000),
        _make_header_case("name twice", b'{"a": %s, "a": '
            b'%s}' % (json.dumps(_F32).encode(), json.dumps(_F32).encode()), 8),
        _make_header_case("dtype twice", b'{"a": {"dtype": "F32", "dtype": "I64", "shape": [1], '
            b'"data_offsets": [0, 8]}}', 8),
        _make_header_case("one name in two spellings",
              b'{"a": %s, "\\u0061": '
              b'%s}' % (json.dumps(_F32).encode(), json.dumps(_F32).encode()), 8),
        _make_header_case("two texts", b"{} {}"),
        _make_header_case("NUL behind the JSON", b"{}\0\0"),
        _make_json_case("metadata as a tensor", {"__metadata__": 5, "a": _F32}, 8),
        _make_json_case("unknown dtype", {"a": {**_F32, "dtype": "F13"}}, 8),
        _make_json_case("dtype of 1 MB", {"a": {**_F32, "dtype": "F" * 900_000}}, 8),
        _make_json_case("dtype that is a list", {"a": {**_F32, "dtype": ["F32"]}}, 8),
        _make_json_case("shape that is a text", {"a": {**_F32, "shape": "2"}}, 8),
        _make_json_case("negative side", {"a": {**_F32, "shape": [-2]}}, 8),
        _make_json_case("two negative sides", {"a": {**_F32, "shape": [-1, -2]}}, 8),
        _make_json_case("side of a fraction", {"a": {**_F32, "shape": [2.0]}}, 8),
        _make_json_case("side that is true", {"a": {**_F32, "shape": [True, 2]}}, 8),
        _make_json_case("side of 2^62", {"a": {**_F32, "shape": [1 << 62]}}, 8),
        _make_json_case("sides whose product is 2^64", {"a": {**_F32, "shape": [1 << 32, 1 << 32]}}, 8),
        _make_header_case("side of 5,000 digits",
              b'{"a": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 8]}}' % (b"9" * 5000), 8),
        _make_header_case("side that is NaN", b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, '
            b'8]}}', 8),
        _make_json_case("shape of 1,000 sides", {"a": {**_F32, "shape": [1] * 1000}}, 8),
        _make_json_case("shape that is not the size", {"a": {**_F32, "shape": [3]}}, 8),
        _make_json_case("offsets backwards", {"a": {**_F32, "data_offsets": [8, 0]}}, 8),
        _make_json_case("negative offset", {"a": {**_F32, "data_offsets": [-8, 0]}}, 8),
        _make_json_case("offset beyond the "
            "file", {"a": {**_F32, "data_offsets": [1 << 40, (1 << 40) + 8]}}, 8),
        _make_json_case("offset of a fraction", {"a": {**_F32, "data_offsets": [0, 8.5]}}, 8),
        _make_json_case("three offsets", {"a": {**_F32, "data_offsets": [0, 4, 8]}}, 8),
        _make_json_case("no offsets", {"a": {"dtype": "F32", "shape": [2]}}, 8),
        _make_json_case("one key too many", {"a": {**_F32, "exec": "rm -rf /"}}, 8),
        _make_json_case("tensor that is null", {"a": None}, 8),
        _make_json_case("hole between tensors", {"a": _F32, "b": {**_F32, "data_offsets": [16, 24]}}, 24),
        _make_json_case("overlapping tensors", {"a": _F32, "b": {**_F32, "data_offsets": [4, 12]}}, 12),
        _make_json_case("the same bytes twice", {"a": _F32, "b": _F32}, 8),
        _make_json_case("bytes behind the tensors", {"a": _F32}, 4096),
        _make_json_case("bytes missing", {"a": {**_F32, "shape": [1 << 20], "data_offsets": [0, 4 << 20]}}, 100),
        _make_json_case("tensors of another network", {"a": _F32}, 8),
        _make_json_case("name that climbs", {"../../etc/passwd": _F32}, 8),
        _make_json_case("name with NUL and escapes", {"a\0\x1b[2J\u202e": _F32}, 8),
        _make_json_case("name that is half a surrogate", {"\ud800": _F32}, 8),
        _make_json_case("name of 900,000 characters", {"n" * 900_000: _F32}, 8),
        _make_json_case("10,000 empty tensors",
             {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(10_000)}, 0),
        _make_case("pickle", b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x8c\x07evil\x94."),
        _make_case("torch archive", b"PK\x03\x04" + b"\0" * 400),
        Case("weights", "safetensors: said to be a "
            "zip", lambda: _add_length(b"{}", 2), ("415 unsupported-type",), BASES,
             headers={"Content-Type": "application/zip"}),
    ]  # fmt: skip


def build_small_cnn(fill: float, expected: dict[str, Any]) -> bytes:
    """Build a file that fits, full of one value.
    NaN and infinity are the weights of a base that ruins every version.
    """
    header, position, chunks = {}, 0, []
    for name, want in expected["tensors"].items():
        kind = {"F32": np.float32, "I64": np.int64}[want["dtype"]]
        data = np.full(want["shape"], fill if kind is np.float32 else 0, kind).tobytes()
        header[name] = {**want, "data_offsets": [position, position + len(data)]}
        position += len(data)
        chunks.append(data)
    return _add_length(json.dumps(header).encode()) + b"".join(chunks)


def _make_case(name: str, data: bytes) -> Case:
    headers = {"Content-Type": "application/safetensors"}
    answers = (
        (BASE, "413 body-too-large") if len(data) > 64 << 20 else (BASE,)
    )  # the command lowers the limit
    return Case("weights", f"safetensors: {name}", lambda: data, answers, BASES, headers=headers)


def _make_header_case(name: str, header: bytes, data_bytes: int = 0) -> Case:
    return _make_case(name, _add_length(header) + bytes(data_bytes))


def _make_json_case(name: str, header: dict[str, Any], data_bytes: int) -> Case:
    return _make_header_case(name, json.dumps(header).encode(), data_bytes)


def _add_length(header: bytes, said: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if said is None else said) + header
