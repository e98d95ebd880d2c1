"""Conversion of embedded colour profiles to sRGB, and of transparency to white."""

import base64
import io
import zlib
from functools import lru_cache
from typing import Any

from PIL import Image, ImageCms

MAX_PROFILE_BYTES = 4 << 20
"""Larger profiles are ignored as damaged; those of printing presses have up to 3 MB."""
_SPACES = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""Colour space of a profile → mode of the images that it describes."""
_NO_TRANSFORM = None
DISPLAY_P3 = zlib.decompress(
    base64.b64decode(
        "eNpjYGBSyMvPS2VyYGDIzSspCnJ3UoiIjFJgf8LACIRgkJhcXMCAF3y7BlF7WZeBdMCZklqcDKQ/AHFBckFRCQMDYwKQLVBeUgBi"
        "g+wWKQI6CshuAbHTIewZIHYShL0GrCYkyBnIPgBkK6RD2A9A7CQwmwlklwLULhAQKijKT8vMSVXIT1NIVChJLS5hoD4oSa0AGwsK"
        "YxANClv0MEOINd9nYLDd/////90IMa/9DAwbzRkYuHYixDQsGBgEuRkYTuwsSCxKBAsxAzFTWhoDw6flDAy8kQwMwheAeqIplQcA"
        "lmROIQ=="
    )
)
"""A Display P3 profile (with sRGB's curve), for files that name its primaries by number."""


class _Mismatch(Exception):
    """A profile for other channels than the image has."""


def to_srgb(image: Image.Image, profile: bytes | None) -> tuple[Image.Image, bool]:
    """Convert an image of mode L, RGB, RGBA or CMYK to sRGB.

    A grey image stays grey. A profile that is damaged, or for other channels, is ignored.

    Returns:
        The image as L, RGB or RGBA, and whether its profile was ignored.
    """
    ignored = False
    if profile:
        try:
            return _turned(image, profile), False
        except (ImageCms.PyCMSError, _Mismatch, OSError, ValueError, TypeError):
            ignored = True
    return image.convert("RGB") if image.mode == "CMYK" else image, ignored


def over_white(image: Image.Image) -> Image.Image:
    """Return an RGBA image over a white background, as RGB."""
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image).convert("RGB")


def _turned(image: Image.Image, profile: bytes) -> Image.Image:
    space, transform = _transform(profile)
    if image.mode == "RGBA":
        if space != "RGB":
            raise _Mismatch
        colours = _applied(transform, image.convert("RGB"))
        colours.putalpha(image.getchannel("A"))
        return colours
    if image.mode == "L" and space == "L":
        return _applied(transform, image).getchannel("R")
    # An editor's RGB profile in a grey image: only its curve matters.
    if image.mode == "L" and space == "RGB":
        return _applied(transform, image.convert("RGB")).convert("L")
    if image.mode != space:
        raise _Mismatch
    return _applied(transform, image)


def _applied(transform: Any, image: Image.Image) -> Image.Image:
    if transform is _NO_TRANSFORM:
        return image.convert("RGB")
    turned = ImageCms.applyTransform(image, transform)
    assert turned is not None
    return turned


@lru_cache(8)
def _transform(profile: bytes) -> tuple[str, Any]:
    """Return the mode that a profile describes, and its transform to sRGB; None if it is sRGB.

    Raises:
        PyCMSError: the profile is damaged; Pillow also raises other errors.
    """
    if len(profile) > MAX_PROFILE_BYTES:
        raise ValueError("a profile that long is none")
    opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    space = _SPACES.get(f"{opened.profile.xcolor_space:4}")
    if space is None:
        raise _Mismatch
    transform = ImageCms.buildTransform(
        opened,
        ImageCms.createProfile("sRGB"),
        space,
        "RGB",
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    return space, _NO_TRANSFORM if space != "CMYK" and _is_srgb(transform, space) else transform


def _is_srgb(transform: Any, space: str) -> bool:
    """Return whether a transform changes no colour of a grid by more than rounding."""
    if space == "L":
        grid = Image.frombytes("L", (256, 1), bytes(range(256)))
    else:
        steps = range(0, 256, 51)
        colours = bytes(value for r in steps for g in steps for b in steps for value in (r, g, b))
        grid = Image.frombytes("RGB", (len(colours) // 3, 1), colours)
    turned = ImageCms.applyTransform(grid, transform)
    assert turned is not None
    before, after = grid.convert("RGB").tobytes(), turned.tobytes()
    return all(
        abs(value_before - value_after) <= 1 for value_before, value_after in zip(before, after, strict=True)
    )
