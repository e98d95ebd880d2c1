"""Colours of an embedded profile turned to sRGB, and what is transparent laid over white."""

import base64
import io
import zlib
from functools import lru_cache
from typing import Any

from PIL import Image, ImageCms

MAX_PROFILE_BYTES = 4 << 20
"""Larger profiles are left aside as damaged ones are; those of printing presses have up to 3 MB."""
_SPACES = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""Colour space of a profile → the mode of images that it describes."""
_NO_TRANSFORM = None
DISPLAY_P3 = zlib.decompress(
    base64.b64decode(
        "eNpjYGBSyMvPS2VyYGDIzSspCnJ3UoiIjFJgf8LACIRgkJhcXMCAF3y7BlF7WZeBdMCZklqcDKQ/AHFBckFRCQMDYwKQLVBeUgBi"
        "g+wWKQI6CshuAbHTIewZIHYShL0GrCYkyBnIPgBkK6RD2A9A7CQwmwlklwLULhAQKijKT8vMSVXIT1NIVChJLS5hoD4oSa0AGwsK"
        "YxANClv0MEOINd9nYLDd/////90IMa/9DAwbzRkYuHYixDQsGBgEuRkYTuwsSCxKBAsxAzFTWhoDw6flDAy8kQwMwheAeqIplQcA"
        "lmROIQ=="
    )
)
"""A profile of Display P3 (its colorants and curve of sRGB), for files that name its primaries by a number."""


class _Mismatch(Exception):
    """A profile is for other channels than the image has."""


def to_srgb(image: Image.Image, profile: bytes | None) -> tuple[Image.Image, bool]:
    """An image of mode L, RGB, RGBA or CMYK in sRGB, as L, RGB or RGBA; and whether its profile had to be ignored.

    A grey image stays grey. A profile that is damaged, or for other channels, changes nothing.
    """
    ignored = False
    if profile:
        try:
            return _turned(image, profile), False
        except (ImageCms.PyCMSError, _Mismatch, OSError, ValueError, TypeError):
            ignored = True
    return image.convert("RGB") if image.mode == "CMYK" else image, ignored


def over_white(image: Image.Image) -> Image.Image:
    """An RGBA image laid over white, as RGB."""
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
    if image.mode == "L" and space == "RGB":  # an editor's own profile at a grey image: its curve counts
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
    """The mode that a profile describes, and how it is turned to sRGB: None where it is sRGB itself.

    Raises PyCMSError and what Pillow raises of damaged profiles.
    """
    if len(profile) > MAX_PROFILE_BYTES:
        raise ValueError("a profile that long is none")
    opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    space = _SPACES.get(f"{opened.profile.xcolor_space:4}")
    if space is None:
        raise _Mismatch
    made = ImageCms.buildTransform(
        opened,
        ImageCms.createProfile("sRGB"),
        space,
        "RGB",
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    return space, _NO_TRANSFORM if space != "CMYK" and _is_srgb(made, space) else made


def _is_srgb(transform: Any, space: str) -> bool:
    """Return whether a transform moves no colour of a grid by more than rounding does."""
    if space == "L":
        grid = Image.frombytes("L", (256, 1), bytes(range(256)))
    else:
        steps = range(0, 256, 51)
        colours = bytes(value for r in steps for g in steps for b in steps for value in (r, g, b))
        grid = Image.frombytes("RGB", (len(colours) // 3, 1), colours)
    turned = ImageCms.applyTransform(grid, transform)
    assert turned is not None
    before, after = grid.convert("RGB").tobytes(), turned.tobytes()
    return all(abs(one - other) <= 1 for one, other in zip(before, after, strict=True))
