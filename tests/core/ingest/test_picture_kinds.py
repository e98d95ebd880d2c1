"""Pictures of many kinds become the pixels that other programs read in them, in every place that
reads a picture.

`tools/picture_kinds.py` wrote the pictures and what is right of each: by the definition of their
format, or by libvips, tifffile, imagecodecs and pillow-heif.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from core.errors import ImageInvalid
from core.ingest.decoding.decoder import REASON_BYTES
from core.ingest.decoding.resizing import FIRST, LATEST, SquareResizingSettings
from core.ingest.images import decode_image_to_square_pixels, decode_square_image
from core.ingest.limits import ArchiveLimits
from core.recipe.images import DECODING

KINDS = Path(__file__).parents[2] / "data" / "picture-kinds.zip"
SIDE = 16
MAX = ArchiveLimits().image_pixels
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Kind:
    """A picture; `pixels`: what is right of it, or None and words of the reason why it is
    refused.
    """

    name: str
    data: bytes
    pixels: Pixels | None
    tolerance: int
    refused: str


@cache
def load_kinds() -> tuple[Kind, ...]:
    with zipfile.ZipFile(KINDS) as archive:
        told = json.loads(archive.read("kinds.json"))
        pixels = iter(np.load(io.BytesIO(archive.read("expected.npy")), allow_pickle=False))
        return tuple(
            Kind(
                one["name"],
                archive.read(one["name"]),
                None if "refused" in one else next(pixels),
                one.get("tolerance", 0),
                one.get("refused", ""),
            )
            for one in told
        )


def find_kind(name: str) -> Kind:
    return next(kind for kind in load_kinds() if kind.name == name)


def decode_kind(kind: Kind, decoding: int = LATEST) -> Pixels:
    return decode_image_to_square_pixels(
        kind.data, SIDE, 3, MAX, SquareResizingSettings(decoding=decoding)
    )


def find_worst_error(found: Pixels, right: Pixels) -> int:
    """Return by how many of 256 levels the worst pixel differs."""
    return int(np.abs(found.astype(int) - right).max())


READ = [kind.name for kind in load_kinds() if kind.pixels is not None]
REFUSED = [kind.name for kind in load_kinds() if kind.pixels is None]


@pytest.mark.parametrize("name", READ)
def test_a_picture_has_the_pixels_that_other_programs_read(name: str) -> None:
    kind = find_kind(name)
    assert kind.pixels is not None
    assert find_worst_error(decode_kind(kind), kind.pixels) <= kind.tolerance


@pytest.mark.parametrize("name", REFUSED)
def test_a_picture_that_is_not_read_is_refused_with_its_kind(name: str) -> None:
    kind = find_kind(name)
    with pytest.raises(ImageInvalid) as refused:
        decode_kind(kind)
    assert kind.refused in str(refused.value)
    assert len(str(refused.value).encode()) <= REASON_BYTES


def test_the_corpus_has_kinds_enough_to_mean_something() -> None:
    assert len(READ) >= 150 and len(REFUSED) >= 25


def test_new_models_read_by_the_latest_decoding() -> None:
    assert DECODING == LATEST


def test_a_decoding_of_a_later_service_is_no_decoding() -> None:
    with pytest.raises(ValueError, match="need a later version"):
        SquareResizingSettings.from_json({"size": 8, "channels": 3, "decoding": LATEST + 1})


PROFILES = [name for name in READ if "P3" in name or "Adobe" in name or "ProPhoto" in name]


@pytest.mark.parametrize("name", PROFILES)
def test_the_first_decoding_leaves_colour_profiles_aside(name: str) -> None:
    kind = find_kind(name)
    before, today = decode_kind(kind, FIRST), decode_kind(kind)
    assert find_worst_error(before, today) > 20
    assert np.array_equal(
        before, decode_image_to_square_pixels(kind.data, SIDE, 3, MAX)
    )  # what a manifest without a number means


def test_the_first_decoding_reads_to_the_pixel_as_it_did() -> None:
    """Compare with the record of what the code read before there were numbers; the rest it
    refused.
    """
    recorded = json.loads((KINDS.parent / "picture-kinds-first.json").read_text())
    found = {}
    for kind in load_kinds():
        if kind.name in recorded:
            found[kind.name] = hashlib.sha256(decode_kind(kind, FIRST).tobytes()).hexdigest()[:32]
    assert found == recorded
    read_now = [
        kind.name for kind in load_kinds() if kind.pixels is not None and kind.name not in recorded
    ]
    assert all(decode_kind(find_kind(name), FIRST).size for name in read_now)


@pytest.mark.parametrize(
    "name", ["jpeg 4:4:4", "jpeg progressive", "jpeg with restarts", "jpeg 4:2:0", "jpeg grey"]
)
def test_a_jpeg_that_lacks_more_than_its_end_mark_is_cut_off(name: str) -> None:
    data, whole = find_kind(name).data, decode_kind(find_kind(name))
    for missing in (1, 2):
        assert np.array_equal(
            decode_image_to_square_pixels(
                data[:-missing], SIDE, 3, MAX, SquareResizingSettings(decoding=LATEST)
            ),
            whole,
        )
    for missing in range(3, 60):
        with pytest.raises(ImageInvalid, match="damaged or cut off"):
            decode_image_to_square_pixels(
                data[:-missing], SIDE, 3, MAX, SquareResizingSettings(decoding=LATEST)
            )


@pytest.mark.parametrize(
    "name",
    ["png with a damaged profile", "png with a profile for inks", "jpeg with a damaged profile"],
)
def test_a_profile_that_cannot_be_used_is_said(name: str) -> None:
    assert decode_square_image(
        find_kind(name).data, SIDE, 3, MAX, SquareResizingSettings(decoding=LATEST)
    ).ignored_profile
    assert not decode_square_image(
        find_kind("png Display P3").data, SIDE, 3, MAX, SquareResizingSettings(decoding=LATEST)
    ).ignored_profile


def test_a_profile_of_srgb_changes_no_pixel() -> None:
    assert np.array_equal(
        decode_kind(find_kind("png sRGB")), decode_kind(find_kind("png sRGB"), FIRST)
    )
