"""Safetensors files read by their headers: what is refused, and in how many words."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from core.errors import BaseInvalid
from core.files.safetensors_header import check_finite_tensors, read_safetensors_header


def write_tensors(path: Path, **tensors: np.ndarray) -> Path:
    save_file(tensors, path)
    return path


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_base_with_a_value_that_is_no_number_is_refused(tmp_path, value: float):
    weights = np.zeros(1_000_000, np.float32)
    weights[-1] = value
    path = write_tensors(
        tmp_path / "1", good=np.ones(3, np.float32), bad=weights, count=np.array([5], np.int64)
    )
    with pytest.raises(BaseInvalid, match="'bad' holds NaN or infinity"):
        check_finite_tensors(path, read_safetensors_header(path))
    check_finite_tensors(
        write_tensors(tmp_path / "2", good=np.ones(3, np.float32)),
        read_safetensors_header(tmp_path / "2"),
    )


def test_a_name_of_a_megabyte_is_not_repeated_in_the_error(tmp_path):
    with pytest.raises(BaseInvalid, match="more than 300 characters") as caught:
        read_safetensors_header(
            write_tensors(tmp_path / "1", **{"n" * 900_000: np.ones(1, np.float32)})
        )
    assert len(caught.value.detail) < 500


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"\x08\x0a\x12\x07pytorch\x1a\x05", "an ONNX file"),
        (b"\x08\x08\x1a\x07onnx.py", "an ONNX file"),
        (b"PK\x03\x04archive/data.pkl", "a zip"),
        (b"\x80\x02}q\x00(X\x01\x00", "a pickle"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    ],
)
def test_another_format_is_refused_by_its_name(tmp_path: Path, start: bytes, named: str) -> None:
    (tmp_path / "base").write_bytes(start + bytes(1000))
    with pytest.raises(
        BaseInvalid,
        match=rf"^This is {named}.*a base is a safetensors file: other formats are never read",
    ):
        read_safetensors_header(tmp_path / "base")
