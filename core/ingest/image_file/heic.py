"""HEIC by pi-heif, and what both HEIC and AVIF need: decoding with one thread.

Each thread takes address space and CPU time of the decoder's allowance. libheif turns and mirrors the image as the file
says (`irot`, `imir`), so its EXIF orientation is left aside: it says the same once more.
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
    """pi-heif, set to one thread and to the main image alone; None where it is not installed, as beside a download."""
    try:
        import pi_heif
    except ImportError:
        return None
    for name in ("THUMBNAILS", "DEPTH_IMAGES", "AUX_IMAGES"):
        setattr(pi_heif.options, name, False)
    pi_heif.options.DECODE_THREADS = 1
    return pi_heif


def open_heic(data: bytes, max_pixels: int) -> tuple[Image.Image, bool]:
    """The main image of a HEIC file, upright, and whether the file has more of them.

    Raises Unreadable, and what libheif raises of damaged files.
    """
    library = load_library()
    if library is None:
        raise Unreadable(HEIC_REASON)
    opened = library.open_heif(io.BytesIO(data), convert_hdr_to_8bit=True, remove_stride=False)
    found = opened[opened.primary_index]
    width, height = found.size
    if width * height > max_pixels:
        raise Unreadable(f"{width}×{height} pixels, more than {max_pixels}")
    pixels = found.data
    if found.size[0] * found.size[1] > max_pixels or found.mode not in (*_MODES, *_PREMULTIPLIED):
        raise Unreadable(f"a HEIC image of the mode {found.mode}; save it as JPEG or PNG")
    # A copy: the library frees its own.
    image = Image.frombytes(found.mode, found.size, pixels, "raw", found.mode, found.stride)
    if found.mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[found.mode])
    if "icc_profile" in found.info:
        image.info["icc_profile"] = found.info["icc_profile"]
    return image, len(opened) > 1


def named_profile(data: bytes) -> bytes | None:
    """The profile of a HEIC or AVIF whose colours are told by numbers (ITU-T H.273), None for all but Display P3."""
    at = data.find(b"colrnclx", 0, _MAX_BOXES_BYTES) + 8
    primaries, transfer = (int.from_bytes(data[at + i : at + i + 2]) for i in (0, 2))
    return DISPLAY_P3 if at >= 8 and primaries == _P3_PRIMARIES and transfer in _SRGB_CURVES else None


def require_avif() -> None:
    """Raise Unreadable where this Pillow was built without AVIF."""
    if not AvifImagePlugin.SUPPORTED:
        raise Unreadable(AVIF_REASON)
