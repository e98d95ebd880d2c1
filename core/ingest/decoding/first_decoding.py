"""Decoding version 1: the conversion of files to images for models older than version numbers.

It never changes: files that it can read give the same pixels as always, without colour profiles.
Files that it rejects are read by the current version (`core.ingest.images`).
"""

import io

from PIL import BmpImagePlugin, Image, JpegImagePlugin, PngImagePlugin

from core.errors import ImageInvalid
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.image_file import Square, gif, jpeg, kinds, png
from core.ingest.image_file.geometry import centre
from core.ingest.image_file.square import MAX_RLE_BYTES, check_pixels, turn_of

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
"""Formats that Pillow detects; GIF and AVIF are detected here."""


def decode_square_image(
    data: bytes, size: int, channels: int, max_pixels: int, resizing: SquareResizingSettings
) -> Square:
    """Decode one image file to a square image of `size` × `size` pixels.

    Raises Unreadable, ImageInvalid, and Pillow's errors for damaged files.
    """
    image, frames = _open_image(data, max_pixels)
    width, height = image.size
    check_pixels(image, max_pixels)
    frames = frames or bool(getattr(image, "is_animated", False))
    _refuse_costly_image_file(image, data)
    # A JPEG's decoder can halve the image while decoding; twice the required size keeps the
    # quality. Other formats ignore this.
    side = 2 * resizing.compute_resized_shorter_side(size)
    image.draft(None, (side, side))
    image.load()
    transposition = turn_of(image)
    upright = image if transposition is None else image.transpose(transposition)
    return Square(
        resize_and_crop_to_square(upright, size, channels, resizing), frames, max(width, height)
    )


def _refuse_costly_image_file(image: Image.Image, data: bytes) -> None:
    """Raise ImageInvalid for an image file that would take too much time to decode."""
    # Check the class: an MPO, which is several JPEGs, is decoded as the first of them but has
    # another format name.
    if (
        isinstance(image, JpegImagePlugin.JpegImageFile)
        and data.count(b"\xff\xda") > jpeg.MAX_SCANS
    ):
        raise ImageInvalid(f"more than {jpeg.MAX_SCANS} scans")
    packed = isinstance(image, BmpImagePlugin.BmpImageFile) and any(
        tile.codec_name == "bmp_rle" for tile in image.tile
    )
    if packed and len(data) > MAX_RLE_BYTES:
        raise ImageInvalid(
            f"an RLE-packed BMP of more than {MAX_RLE_BYTES} bytes; save it unpacked"
        )


def _open_image(data: bytes, max_pixels: int) -> tuple[Image.Image, bool]:
    """Open an image file and read its header; also return whether further frames were dropped."""
    kind = kinds.kind_of(data)
    if kind == kinds.PNG:
        png.without_texts(data)
        # Image.open would find the same plugin after a search that takes a fifth of the time of a
        # 32-pixel image.
        return PngImagePlugin.PngImageFile(io.BytesIO(data)), False
    if kind == kinds.GIF:
        data, frames = gif.first_frame(data, max_pixels)
        return Image.open(io.BytesIO(data), formats=("GIF",)), frames
    if kind == kinds.AVIF:
        return Image.open(io.BytesIO(data), formats=("AVIF",)), False
    return Image.open(io.BytesIO(data), formats=FORMATS), False


def resize_and_crop_to_square(
    image: Image.Image, size: int, channels: int, resizing: SquareResizingSettings
) -> Image.Image:
    """Return the centre of an image, size × size pixels of mode L or RGB, with alpha over white."""
    mode = "RGB" if channels == 3 else "L"
    if image.mode != mode or "transparency" in image.info:
        image = _convert_to_plain_pillow_mode(image)
    image = centre(image, size, resizing.compute_resized_shorter_side(size), resizing.pillow_filter)
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image).convert("RGB")
    return image if image.mode == mode else image.convert(mode)


def _convert_to_plain_pillow_mode(image: Image.Image) -> Image.Image:
    """Convert a Pillow image to mode L, RGB or, if it has transparency, RGBA."""
    if image.mode in ("I", "F"):
        raise ImageInvalid("32-bit pixels; save it with 8 or 16 bits")
    if image.mode.startswith("I;16"):
        import numpy as np

        wide = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))
    if image.has_transparency_data:
        return image.convert("RGBA")
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")
