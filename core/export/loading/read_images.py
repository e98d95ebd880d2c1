"""An image file as the service reads it, to the pixel: `core.ingest.images` in the words of a card.

A test compares the two on files of every kind; what changes there has to change here.
"""

import torch

from core.export.loading.start import config

# The card begins here.
import numpy
from PIL import Image

Turn = Image.Transpose
TURNS = {  # by the orientation in EXIF
    2: Turn.FLIP_LEFT_RIGHT, 3: Turn.ROTATE_180, 4: Turn.FLIP_TOP_BOTTOM, 5: Turn.TRANSPOSE,
    6: Turn.ROTATE_270, 7: Turn.TRANSVERSE, 8: Turn.ROTATE_90,
}


def upright(image):
    """Turned as its EXIF says; broken EXIF leaves it as it is."""
    turn = None
    if {"exif", "Raw profile type exif", "xmp"} & set(image.info):
        try:
            turn = TURNS.get(image.getexif().get(0x0112, 1))
        except Exception:  # of broken EXIF Pillow raises anything; the service reads the image as it stands, too
            turn = None
    return image if turn is None else image.transpose(turn)


def plain(image):
    """In mode L, RGB or, where it is transparent, RGBA; 16-bit grey is scaled to 8."""
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels; save the image with 8 or 16 bits")
    if image.mode.startswith("I;16"):
        wide = numpy.asarray(image).astype(numpy.uint32)
        return Image.fromarray(((wide * 255 + 32767) // 65535).astype(numpy.uint8))
    if image.has_transparency_data:
        return image.convert("RGBA")
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def resized(image, size, side):
    """The centre, size x size pixels, of the image with its shorter side resized to `side`; in one step."""
    width, height = image.size
    short = min(width, height)
    wide = side if width == short else max(side, round(width * side / short))
    high = side if height == short else max(side, round(height * side / short))
    left, top = (wide - size) // 2, (high - size) // 2
    if (wide, high) == (width, height):
        return image.crop((left, top, left + size, top + size))
    across, down = width / wide, height / high
    right, bottom = min(width, (left + size) * across), min(height, (top + size) * down)
    return image.resize((size, size), Image.Resampling.BILINEAR, (left * across, top * down, right, bottom))


def read(path):
    """An image file as uint8 [size, size, channels], pixel by pixel as the service reads it (its first frame)."""
    size, mode = config["image"]["size"], "RGB" if config["image"]["channels"] == 3 else "L"
    side = size if size <= 96 else round(size * 256 / 224)  # larger images keep a margin, which is cut off
    image = Image.open(path)
    image.draft(None, (2 * side, 2 * side))  # a JPEG is decoded at a half, a quarter or an eighth where that is enough
    image.load()
    image = upright(image)
    if image.mode != mode or "transparency" in image.info:
        image = plain(image)
    if image.size != (size, size):
        image = resized(image, size, side)
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    pixels = numpy.asarray(image if image.mode == mode else image.convert(mode))
    return torch.from_numpy(pixels.reshape(size, size, -1).copy())
