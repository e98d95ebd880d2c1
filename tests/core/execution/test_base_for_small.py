"""The note that offers the small base for a batch of small images."""

from pathlib import Path
from typing import Any

import pytest

from core.execution.validate import suggest_base_for_small_images
from core.ingest.ingest import IngestedBatch
from core.packaged import imagenet_base, packaged_base
from core.recipe.duration_estimate import PASSES


def make_ingested_batch(small: int | None) -> IngestedBatch:
    """Make a batch of 1,000 images, of which `small` are small. None: its report does not
    count them, as older reports do not.
    """
    report: Any = {} if small is None else {"small": small}
    return IngestedBatch(Path(), Path(), Path(), {"a": 1000}, ["a"], 900, 100, report, [])


def test_most_images_being_small_offers_the_small_base_with_the_seconds() -> None:
    (note,) = suggest_base_for_small_images(imagenet_base.NAME, 224, make_ingested_batch(600))
    photos, small = PASSES[imagenet_base.NAME][-1], PASSES[packaged_base.PACKAGED][0]
    saved = 1000 * (photos.forward_s - small.forward_s)
    assert f'"base": "{packaged_base.PACKAGED}"' in note
    assert note.startswith("600 of 1,000 images have fewer than 48 pixels")
    assert f"about {saved:,.0f} s of one core" in note


@pytest.mark.parametrize(
    ("base", "small"),
    [
        (imagenet_base.NAME, 500),
        (imagenet_base.NAME, None),
        (packaged_base.PACKAGED, 1000),
        ("random", 1000),
        ({"model": "mdl_1", "version": 2}, 1000),
    ],
)
def test_other_batches_and_models_are_left_alone(base: Any, small: int | None) -> None:
    assert suggest_base_for_small_images(base, 224, make_ingested_batch(small)) == []
