"""The streams of `make compare`: folders of class folders, made of what is at hand."""

import gzip
from pathlib import Path

import numpy as np

from bench.research import compare
from tools.compare_methods.folder import list_labelled_photos


def write_idx(path: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(head + values.astype(np.uint8).tobytes()))


def test_digits_are_ten_classes_without_any_data(tmp_path: Path) -> None:
    (stream,) = compare.write_compared_data_sets(tmp_path, None, None)
    photos = list_labelled_photos(stream.folder)
    assert (len(photos.rows), {row.label for row in photos.rows}) == (
        1797,
        {str(n) for n in range(10)},
    )


def test_mnist_has_a_training_and_a_test_part(tmp_path: Path) -> None:
    source = tmp_path / "mnist"
    source.mkdir()
    for prefix, count in (("train", 40), ("t10k", 20)):
        labels = np.arange(count) % 10
        write_idx(
            source / f"{prefix}-images-idx3-ubyte.gz",
            np.zeros((count, 28, 28)) + labels[:, None, None],
        )
        write_idx(source / f"{prefix}-labels-idx1-ubyte.gz", labels)
    photos = list_labelled_photos(compare.write_mnist_folders(source, tmp_path / "out"))
    parts = [row.part for row in photos.rows]
    assert (parts.count("train"), parts.count("test")) == (40, 20)
    assert all(row.name.split("/")[1] == row.label for row in photos.rows)


def test_streams_are_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    found = compare.write_compared_data_sets(tmp_path / "scratch", tmp_path, tmp_path / "photos")
    assert [(stream.name, stream.batches) for stream in found] == [("digits", 5), ("photos", 3)]
