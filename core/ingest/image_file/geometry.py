"""Sizes to which an image is resized before its centre is cropped to S × S pixels."""

import math

from PIL import Image

from .unreadable import Unreadable

_NO_MARGIN_UP_TO = 96
"""Images of at most this side are resized to S itself; larger ones get the usual 256/224 margin."""
_ROUNDING = 1e-9
"""A share such as 224/256 times what it divides may miss the whole number by the last bit."""


def shorter_side(size: int, crop: float | None) -> int:
    """Pixels of the shorter side after resizing, for a crop of `size` pixels that keeps the share `crop` of it.

    None: all of it up to 96 pixels, 224/256 above.
    """
    if crop is not None:
        return math.floor(size / crop + _ROUNDING)
    return size if size <= _NO_MARGIN_UP_TO else round(size * 256 / 224)


def resample(interpolation: str | None) -> Image.Resampling:
    """Pillow's name of an interpolation: `bilinear` (also None), `bicubic` or `nearest`."""
    return Image.Resampling[(interpolation or "bilinear").upper()]


def centre(image: Image.Image, size: int, target: int, filter: Image.Resampling) -> Image.Image:
    """The centre, size × size pixels, of the image with its shorter side resized to `target` pixels.

    An image that has this size is returned as it is. Raises Unreadable: it has no pixels.
    """
    width, height = image.size
    if not width or not height:
        raise Unreadable("no pixels")
    if (width, height) == (size, size):
        return image
    short = min(width, height)
    new_width = target if width == short else max(target, round(width * target / short))
    new_height = target if height == short else max(target, round(height * target / short))
    left, top = (new_width - size) // 2, (new_height - size) // 2
    if (new_width, new_height) == (width, height):
        return image.crop((left, top, left + size, top + size))
    # Resize and crop in one: a 1 × 10,000,000 image must not be enlarged first.
    across, down = width / new_width, height / new_height
    right, bottom = min(width, (left + size) * across), min(height, (top + size) * down)
    return image.resize((size, size), filter, (left * across, top * down, right, bottom))
