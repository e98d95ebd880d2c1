"""The sample pictures in the package: what they hold, what they weigh, and that they are drawn."""

import io
import zipfile
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from core.packaged.sample_pictures import BATCHES, FOLDER, OF_CLASS, locate_packaged_sample_archive
from tools.sample_pictures.__main__ import COUNTS, draw_class_picture
from tools.sample_pictures.things import THINGS

MOST_BYTES = 3_000_000
"""Bytes that the pictures may add to the package."""


def test_each_batch_has_its_classes_in_two_parts() -> None:
    for name, kinds in BATCHES.items():
        with zipfile.ZipFile(locate_packaged_sample_archive(name)) as archive:
            counts = Counter(tuple(path.split("/")[:2]) for path in archive.namelist())
        assert counts == {(part, kind): count for kind in kinds for part, count in COUNTS.items()}
    assert sum(COUNTS.values()) == OF_CLASS


def test_they_are_small_and_their_licence_is_beside_them() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MOST_BYTES
    assert "Apache License" in (FOLDER / "LICENSE.txt").read_text()


def test_every_kind_that_is_drawn_is_in_a_batch() -> None:
    assert sorted(kind for kinds in BATCHES.values() for kind in kinds) == sorted(THINGS)


@pytest.mark.parametrize("kind", ["doughnut", "egg"])
def test_a_picture_is_the_one_that_the_program_draws(kind: str) -> None:
    [name] = [name for name, kinds in BATCHES.items() if kind in kinds]
    with zipfile.ZipFile(locate_packaged_sample_archive(name)) as archive:
        content = archive.read(f"train/{kind}/{kind}-01.jpg")
    stored = np.asarray(Image.open(io.BytesIO(content)), np.float64)
    drawn = np.asarray(draw_class_picture(kind, 0), np.float64)
    # JPEG loses little; the picture of another number differs by 20 and more.
    assert np.abs(stored - drawn).mean() < 6
    assert np.abs(stored - np.asarray(draw_class_picture(kind, 1), np.float64)).mean() > 12
