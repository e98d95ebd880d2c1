"""Safetensors files merged by their headers: the same bytes that the format's own writer makes."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save, save_file

from core.errors import StoredObjectDamaged
from core.files.merging import DamagedPartFileError, MergedSafetensorsFile
from core.files.safetensors_header import read_safetensors_header


def keep_name(name: str) -> str:
    return name


def digest_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_in_unusual_order(path: Path) -> Path:
    """Write tensors as `write_tensors` does, but in an order that the format's own writer never
    makes.
    """
    values = {name: np.full(3, at, np.float32) for at, name in enumerate("cba")}
    header = {
        name: {"dtype": "F32", "shape": [3], "data_offsets": [12 * at, 12 * at + 12]}
        for at, name in enumerate(values)
    }
    text = json.dumps(header).encode()
    path.write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in values.values())
    )
    return path


def write_tensors(path, **tensors: np.ndarray):
    save_file(tensors, path)
    return path


def test_the_merged_file_is_what_the_formats_own_writer_would_write(tmp_path):
    draw = np.random.default_rng(0)
    one = {"z": draw.normal(size=(3, 5)).astype(np.float32), "count": np.array(7, np.int64)}
    two = {
        "a": draw.normal(size=3).astype(np.float32),
        "b": draw.normal(size=(2, 2)),
        "u": np.arange(3, dtype=np.uint8),
    }
    paths = [write_tensors(tmp_path / "1", **one), write_tensors(tmp_path / "2", **two)]
    merged = MergedSafetensorsFile([(path, digest_file(path), keep_name) for path in paths])
    data = b"".join(merged.read_chunks())
    assert data == save({**one, **two}) and merged.size == len(data)


def test_int64_after_an_odd_part_stays_aligned_and_readable(tmp_path):
    paths = [
        write_tensors(tmp_path / "1", odd=np.ones(3, np.float32)),
        write_tensors(tmp_path / "2", count=np.array([5], np.int64)),
    ]
    data = b"".join(
        MergedSafetensorsFile([(p, digest_file(p), keep_name) for p in paths]).read_chunks()
    )
    assert load(data)["count"].tolist() == [5]


def test_a_name_in_two_parts_is_an_error(tmp_path):
    paths = [write_tensors(tmp_path / str(i), a=np.ones(2, np.float32)) for i in range(2)]
    with pytest.raises(StoredObjectDamaged, match="two parts"):
        MergedSafetensorsFile([(p, digest_file(p), keep_name) for p in paths])


def test_tensors_can_be_renamed_and_left_out(tmp_path):
    path = write_tensors(tmp_path / "1", fc=np.ones(1, np.float32), w=np.zeros(1, np.float32))
    merged = MergedSafetensorsFile(
        [(path, digest_file(path), lambda name: None if name == "fc" else f"backbone.{name}")]
    )
    assert merged.tensor_names == ["backbone.w"]


@pytest.mark.parametrize("tensor", ["fc", "w", "x"])
def test_a_part_with_a_flipped_bit_is_found_while_it_is_merged_even_in_what_is_left_out(
    tmp_path, tensor
):
    path = write_tensors(
        tmp_path / "1", **{name: np.ones(99, np.float32) for name in ("fc", "w", "x")}
    )
    sha256, place = (
        digest_file(path),
        {t.name: t.begin for t in read_safetensors_header(path)}[tensor],
    )
    data = bytearray(path.read_bytes())
    data[place + 5] ^= 1
    path.write_bytes(data)
    merged = MergedSafetensorsFile([(path, sha256, lambda name: None if name == "fc" else name)])
    with pytest.raises(DamagedPartFileError):
        list(merged.read_chunks())


def test_tensors_in_another_order_are_merged_and_verified_too(tmp_path):
    path = write_in_unusual_order(tmp_path / "1")
    merged = MergedSafetensorsFile([(path, digest_file(path), keep_name)])
    assert {n: v.tolist() for n, v in load(b"".join(merged.read_chunks())).items()} == {
        "a": [2.0] * 3,
        "b": [1.0] * 3,
        "c": [0.0] * 3,
    }
    sha256, data = digest_file(path), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedPartFileError):
        list(MergedSafetensorsFile([(path, sha256, keep_name)]).read_chunks())


def test_a_part_that_became_shorter_is_damaged(tmp_path):
    path = write_tensors(tmp_path / "1", w=np.ones(99, np.float32))
    merged = MergedSafetensorsFile([(path, digest_file(path), keep_name)])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedPartFileError):
        list(merged.read_chunks())
