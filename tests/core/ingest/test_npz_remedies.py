"""The lines that a refused npz is answered with make one that is accepted, with the same images and
labels.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from core.errors import PerennialError
from core.ingest.inspect import ArchiveSummary

Look = Callable[..., ArchiveSummary]
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
NAMES = np.array(["cat", "dog"] * 3)
NUMBERS = np.array([0, 1] * 3)


@pytest.mark.parametrize(
    ("arrays", "classes"),
    [
        ({"images": IMAGES, "labels": NAMES.astype(object)}, {"cat": 3, "dog": 3}),
        ({"images": IMAGES, "labels": NUMBERS, "classes": np.array(["cat", "dog"], object)}, {"cat": 3, "dog": 3}),
        ({"images": np.array([*IMAGES, None], object)[:-1], "labels": NAMES}, {"cat": 3, "dog": 3}),
        ({"images": IMAGES, "labels": NAMES, "info": np.array([{"a": 1}], object)}, {"cat": 3, "dog": 3}),
        ({"images": IMAGES, "labels": NUMBERS[:, None]}, {"0": 3, "1": 3}),
        ({"images": IMAGES, "labels": np.eye(2)[NUMBERS]}, {"0": 3, "1": 3}),
        ({"images": IMAGES, "labels": NUMBERS.astype(float)}, {"0": 3, "1": 3}),
        ({"images": IMAGES, "labels": NUMBERS.astype(bool)}, {"0": 3, "1": 3}),
        ({"images": IMAGES / 255, "labels": NAMES}, {"cat": 3, "dog": 3}),
        ({"images": IMAGES.astype(np.int64), "labels": NAMES}, {"cat": 3, "dog": 3}),
        ({"images": np.ascontiguousarray(IMAGES.transpose(0, 3, 1, 2)), "labels": NAMES}, {"cat": 3, "dog": 3}),
        ({"images": np.asfortranarray(IMAGES), "labels": NAMES}, {"cat": 3, "dog": 3}),
        ({"images": IMAGES[..., 0].reshape(6, 64), "labels": NAMES}, {"cat": 3, "dog": 3}),
        ({"x_train": IMAGES, "y_train": NUMBERS, "x_test": IMAGES, "y_test": NUMBERS}, {"0": 6, "1": 6}),
        ({"train_images": IMAGES, "train_labels": NUMBERS[:, None], "val_images": IMAGES}, {"0": 3, "1": 3}),
        ({"X": IMAGES, "y": NUMBERS}, {"0": 3, "1": 3}),
    ],
)  # fmt: skip
def test_the_remedy_makes_an_npz_that_is_accepted(
    look: Look, arrays: dict[str, np.ndarray], classes: dict[str, int], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    np.savez("old.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(PerennialError) as refused:
        look(Path("old.npz").read_bytes())
    code = re.search(
        r"d = np\.load\(.*np\.savez\(.*?\)(?=[.; (]*$|; images| \()", refused.value.detail
    )
    assert code and refused.value.detail.endswith("."), refused.value.detail
    exec(code[0], {"np": np})
    assert look(Path("new.npz").read_bytes()).classes == classes
    with np.load("new.npz") as new:
        images = new["images"] if new["images"].ndim == 4 else new["images"][..., None]
        assert np.array_equal(images, IMAGES[..., : images.shape[3]])


@pytest.mark.parametrize(
    "arrays",
    [
        {"images": np.zeros((6, 3, 8, 8, 3), np.uint8), "labels": NAMES},
        {"images": np.zeros((6, 8, 8, 2), np.uint8), "labels": NAMES},
        {"images": IMAGES, "labels": np.zeros((6, 2, 2), int)},
        {"pictures": IMAGES, "kinds": NAMES},
    ],
)
def test_where_there_is_no_remedy_none_is_named(
    look: Look, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    np.savez(tmp_path / "old.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(PerennialError) as refused:
        look((tmp_path / "old.npz").read_bytes())
    assert "np." not in refused.value.detail and refused.value.detail.endswith(".")
