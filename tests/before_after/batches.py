"""The uploads of the scenario: zips of 8×8 digits, the same bytes at every call."""

import io
import zipfile
from collections.abc import Sequence
from functools import cache

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

IMAGES = 20
"""Of each class in a batch, held-out ones included."""


def read_digit_images(digit: int, start: int, count: int) -> np.ndarray:
    """Return images of a digit from its `start`-th on, as uint8 [count, 8, 8]."""
    images, labels = _load_digits()
    rows = np.flatnonzero(labels == digit)[start : start + count]
    found: np.ndarray = np.rint(images[rows].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return found


@cache
def _load_digits() -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    return images, labels


def encode_png(image: np.ndarray) -> bytes:
    """Encode an image as PNG."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def build_batch(name: str, digits: Sequence[int], start: int = 0) -> tuple[str, bytes]:
    """Build a named zip with a folder for each digit, of `IMAGES` images from the `start`-th on."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for digit in digits:
            for number, image in enumerate(read_digit_images(digit, start, IMAGES), start):
                _add_entry(archive, f"{digit}/{number:03d}.png", encode_png(image))
    return name, out.getvalue()


def build_pair_batches() -> list[tuple[str, bytes]]:
    """Build five batches of two new digits each."""
    return [build_batch(f"digits-{d}-{d + 1}", (d, d + 1)) for d in range(0, 10, 2)]


def build_unusable_batch() -> tuple[str, bytes]:
    """Build a batch in which no image can be decoded."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for digit in (0, 1):
            for number in range(IMAGES):
                _add_entry(
                    archive,
                    f"{digit}/{number:03d}.png",
                    b"\x89PNG\r\n\x1a\n" + bytes([number]) * 40,
                )
    return "unusable", out.getvalue()


def _add_entry(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), content)
