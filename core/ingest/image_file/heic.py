"""HEIC decoding by pi-heif, and settings for HEIC and AVIF: decoding with one thread.

Each thread uses address space and CPU time of the decoder's allowance. libheif rotates and mirrors
the image as the file says (`irot`, `imir`). Its EXIF orientation, which repeats the same, is
therefore ignored.
"""

import io
from functools import cache
from typing import Any

from PIL import AvifImagePlugin, Image

from .colour import DISPLAY_P3
from .unreadable import Unreadable

AVIF_REASON = "an AVIF image, which this Pillow cannot read; save it as JPEG or PNG"
HEIC_REASON = "a HEIC image, which needs the package pi-heif; install it, or save the image as JPEG or PNG"
AvifImagePlugin.DEFAULT_MAX_THREADS = 1
_P3_PRIMARIES, _SRGB_CURVES = 12, (1, 6, 13)
_MAX_BOXES_BYTES = 1 << 20
_MODES = ("L", "LA", "RGB", "RGBA")
_PREMULTIPLIED = {"RGBa": "RGBA"}


@cache
def load_library() -> Any:
    """Return pi-heif, set to one thread and to the main image; None if it is not installed."""
    try:
        import pi_heif
    except ImportError:
        return None
    for name in ("THUMBNAILS", "DEPTH_IMAGES", "AUX_IMAGES"):
        setattr(pi_heif.options, name, False)
    pi_heif.options.DECODE_THREADS = 1
    return pi_heif


def open_heic(data: bytes, max_pixels: int) -> tuple[Image.Image, bool]:
    """Return the main image of a HEIC file, upright, and whether the file has more images.

    Raises Unreadable, and libheif's errors for damaged files.
    """
    library = load_library()
    if library is None:
        raise Unreadable(HEIC_REASON)
    opened = library.open_heif(io.BytesIO(data), convert_hdr_to_8bit=True, remove_stride=False)
    primary = opened[opened.primary_index]
    width, height = primary.size
    if width * height > max_pixels:
        raise Unreadable(f"{width}×{height} pixels, more than {max_pixels}")
    pixels = primary.data
    if primary.size[0] * primary.size[1] > max_pixels or primary.mode not in (*_MODES, *_PREMULTIPLIED):
        raise Unreadable(f"a HEIC image of the mode {primary.mode}; save it as JPEG or PNG")
    # Copy the pixels, because the library frees its own buffer.
    image = Image.frombytes(primary.mode, primary.size, pixels, "raw", primary.mode, primary.stride)
    if primary.mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[primary.mode])
    if "icc_profile" in primary.info:
        image.info["icc_profile"] = primary.info["icc_profile"]
    return image, len(opened) > 1


def named_profile(data: bytes) -> bytes | None:
    """Return the profile of a HEIC or AVIF whose colours are given by numbers (ITU-T H.273).

    The result is None for all but Display P3.
    """
    at = data.find(b"colrnclx", 0, _MAX_BOXES_BYTES) + 8
    primaries, transfer = (int.from_bytes(data[at + i : at + i + 2]) for i in (0, 2))
    return DISPLAY_P3 if at >= 8 and primaries == _P3_PRIMARIES and transfer in _SRGB_CURVES else None


def require_avif() -> None:
    """Raise Unreadable if this Pillow was built without AVIF."""
    if not AvifImagePlugin.SUPPORTED:
        raise Unreadable(AVIF_REASON)
