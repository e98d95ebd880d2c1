"""The dataset file: deterministic safetensors that the reference library reads, mapped without
torch.
"""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from core.ingest.dataset import memory_map_image_dataset, write_image_dataset_file

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 4, 4, 3), dtype=np.uint8)
LABELS = np.arange(7, dtype=np.int64) % 3


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    write_image_dataset_file(path, LABELS, (4, 4, 3), [IMAGES[:3], IMAGES[3:]])
    images, labels = memory_map_image_dataset(path)
    assert np.array_equal(images, IMAGES) and np.array_equal(labels, LABELS)
    assert not images.flags.writeable and not labels.flags.writeable
    other = load_file(path)
    assert np.array_equal(other["images"], IMAGES) and np.array_equal(other["labels"], LABELS)


def test_bytes_do_not_depend_on_the_blocks(tmp_path: Path) -> None:
    write_image_dataset_file(tmp_path / "a", LABELS, (4, 4, 3), [IMAGES])
    write_image_dataset_file(
        tmp_path / "b", LABELS, (4, 4, 3), [IMAGES[i : i + 1] for i in range(7)]
    )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_empty_dataset_is_a_dataset(tmp_path: Path) -> None:
    write_image_dataset_file(tmp_path / "d", LABELS[:0], (4, 4, 3), [])
    images, labels = memory_map_image_dataset(tmp_path / "d")
    assert images.shape == (0, 4, 4, 3) and labels.shape == (0,)
    assert load_file(tmp_path / "d")["images"].shape == (0, 4, 4, 3)


def test_blocks_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    for blocks in ([IMAGES[:3]], [IMAGES, IMAGES], [IMAGES[:, :2]], [IMAGES.astype(np.int16)]):
        with pytest.raises(ValueError):
            write_image_dataset_file(tmp_path / "d", LABELS, (4, 4, 3), blocks)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d"
    write_image_dataset_file(path, LABELS, (4, 4, 3), [IMAGES])
    good = path.read_bytes()
    for bad in (
        good[:-1],
        good + b"x",
        good[:20],
        b"",
        b"\xff" * 40,
        good.replace(b"I64", b"F64"),
        good.replace(b"[7]", b"[6]"),
    ):
        path.write_bytes(bad)
        with pytest.raises(ValueError):
            memory_map_image_dataset(path)
