"""Conversion of one image file to one square image.

The file is opened by its kind, turned upright, resized, cropped, and converted to sRGB over white.
"""

import io
from typing import TYPE_CHECKING, NamedTuple

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from . import colour, geometry, gif, heic, jpeg, kinds, png, tiff
from .headers import JPEG_TIMES
from .unreadable import CUT, Unreadable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_PIXELS = 50_000_000
"""Most pixels of an image that is decoded whole."""
MAX_RLE_BYTES = 8 << 20
"""Most bytes of a run-length encoded BMP.

Pillow unpacks it in Python, which takes a second for these.
"""
_PLUGINS = (AvifImagePlugin, BmpImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, TiffImagePlugin,
            WebPImagePlugin)  # fmt: skip
_BAND_ROWS_PIXELS = 1 << 22
_ORIENTATION = 0x0112
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Square(NamedTuple):
    """A decoded image of mode L or RGB.

    `has_frames` is true if its file has more frames; this is the first. `longer_side` is that of
    the file's image in pixels. `ignored_profile` is true if its colour profile is damaged or for
    other channels.
    """

    image: Image.Image
    has_frames: bool
    longer_side: int
    ignored_profile: bool = False


class _Opened(NamedTuple):
    image: Image.Image
    has_frames: bool
    profile: bytes | None
    turn: Image.Transpose | None
    longer_side: int


def read_array(
    data: bytes,
    size: int,
    channels: int,
    crop: float | None = None,
    interpolation: str | None = None,
) -> "npt.NDArray[np.uint8]":
    """Read an image file as uint8 [size, size, channels], channels 1 (grey) or 3 (RGB).

    Raises Unreadable; see `read_square` for the arguments.
    """
    import numpy as np

    image = read_square(data, size, channels, crop, interpolation).image
    return np.asarray(image).reshape(size, size, channels).copy()


def read_square(
    data: bytes,
    size: int,
    channels: int,
    crop: float | None = None,
    interpolation: str | None = None,
    max_pixels: int = MAX_PIXELS,
    *,
    profiles: bool = True,
) -> Square:
    """Read an image file as an image of size × size pixels.

    `crop` is the share of the shorter side that the centre crop keeps, in (0, 1]; None means all of
    it up to 96 pixels, 224/256 above. `interpolation` is `bilinear` (also None), `bicubic` or
    `nearest`. `max_pixels` limits an image that is decoded whole; a JPEG may have four times as
    many. `profiles` converts colours to sRGB by an embedded profile.

    Raises Unreadable if the file is not a supported image, is damaged, or has too many pixels.
    """
    mode, target = "RGB" if channels == 3 else "L", geometry.shorter_side(size, crop)
    try:
        opened = _open(data, 2 * target, max_pixels)
        image = opened.image if opened.turn is None else opened.image.transpose(opened.turn)
        image = _plain(image)
        image = geometry.centre(image, size, target, geometry.resample(interpolation))
        image, ignored = colour.to_srgb(image, opened.profile if profiles else None)
        if image.mode == "RGBA":
            image = colour.over_white(image)
        image = image if image.mode == mode else image.convert(mode)
        return Square(image, opened.has_frames, opened.longer_side, ignored)
    except Unreadable:
        raise
    except MemoryError as error:
        raise Unreadable("decoding takes too much memory") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise Unreadable(f"more than {max_pixels} pixels") from error
    except Exception as error:  # decoders of damaged files raise nearly every type of error
        raise Unreadable(CUT) from error


def _open(data: bytes, wanted: int, max_pixels: int) -> _Opened:
    kind = kinds.kind_of(data)
    if kind == kinds.HEIC:
        image, more = heic.open_heic(data, max_pixels)
        profile = image.info.get("icc_profile") or heic.named_profile(data)
        return _Opened(image, more, profile, None, max(image.size))
    if kind == kinds.TIFF:
        page = tiff.open_tiff(data, max_pixels)
        return _Opened(
            page.image, page.has_more, page.profile, _TRANSPOSE.get(page.orientation), max(page.size)
        )
    if kind == kinds.JPEG:
        return _open_jpeg(data, wanted, max_pixels)
    more = False
    if kind == kinds.PNG:
        data = png.without_texts(data)
    elif kind == kinds.GIF:
        data, more = gif.first_frame(data, max_pixels)
    elif kind == kinds.AVIF:
        heic.require_avif()
    image = _by_pillow(data, kind)
    check_pixels(image, max_pixels)
    packed = isinstance(image, BmpImagePlugin.BmpImageFile) and any(
        tile.codec_name == "bmp_rle" for tile in image.tile
    )
    if packed and len(data) > MAX_RLE_BYTES:
        raise Unreadable(f"an RLE-packed BMP of more than {MAX_RLE_BYTES} bytes; save it unpacked")
    more = more or bool(getattr(image, "is_animated", False))
    image.load()
    profile = image.info.get("icc_profile")
    if kind == kinds.AVIF and not profile:
        profile = heic.named_profile(data)
    return _Opened(image, more, profile, turn_of(image), max(image.size))


def _open_jpeg(data: bytes, wanted: int, max_pixels: int) -> _Opened:
    """Open a JPEG at a half, a quarter or an eighth of its size, if that still has enough pixels.

    The reduced size is at least `wanted` pixels on each side.
    """
    is_reducible = jpeg.check(data)
    image = _by_pillow(data, "JPEG")
    check_pixels(image, JPEG_TIMES * max_pixels)
    side, more = max(image.size), bool(getattr(image, "is_animated", False))
    if is_reducible:
        image.draft(None, (wanted, wanted))
    check_pixels(image, max_pixels)
    try:
        image.load()
    except OSError:
        image = _without_end(data, wanted)
    return _Opened(image, more, image.info.get("icc_profile"), turn_of(image), side)


def _without_end(data: bytes, wanted: int) -> Image.Image:
    """Return a JPEG that lacks nothing but its end marker; otherwise raise Unreadable."""
    repaired: Image.Image | None = None
    for candidate in jpeg.ended(data):
        image = _by_pillow(candidate, "JPEG")
        image.draft(None, (wanted, wanted))
        image.load()
        if repaired is not None and image.tobytes() != repaired.tobytes():
            raise Unreadable(CUT)
        repaired = repaired or image
    if repaired is None:
        raise Unreadable(CUT)
    return repaired


def _by_pillow(data: bytes, kind: str) -> Image.Image:
    """Open a file that begins like its kind. A file that cannot be opened is damaged."""
    if kind == kinds.PNG:
        # Image.open would find the same plugin after a search that takes a fifth of the time of a
        # 32-pixel image.
        return PngImagePlugin.PngImageFile(io.BytesIO(data))
    bound = Image.MAX_IMAGE_PIXELS
    try:
        Image.MAX_IMAGE_PIXELS = None  # pixels are counted by check_pixels, before any is decoded
        return Image.open(io.BytesIO(data), formats=(kind,))
    except UnidentifiedImageError as error:
        raise Unreadable(CUT) from error
    finally:
        Image.MAX_IMAGE_PIXELS = bound


def check_pixels(image: Image.Image, max_pixels: int) -> None:
    """Raise Unreadable if an image has more pixels than allowed."""
    width, height = image.size
    if width * height > max_pixels:
        raise Unreadable(f"{width}×{height} pixels, more than {max_pixels}")


def turn_of(image: Image.Image) -> Image.Transpose | None:
    """Return the transposition that makes the image upright, or None."""
    info = image.info
    # Shortcut: most PNGs have no EXIF at all.
    if "exif" not in info and "Raw profile type exif" not in info and "xmp" not in info:
        return None
    try:
        return _TRANSPOSE.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - broken metadata must not cost the image: it stays as stored
        return None


def _plain(image: Image.Image) -> Image.Image:
    """Return the image in mode L, RGB, CMYK or, if it has transparency, RGBA."""
    if image.mode.startswith("I;16"):
        return _in_8_bits(image)
    if image.has_transparency_data:
        return image.convert("RGBA")
    if image.mode in ("L", "RGB", "CMYK"):
        return image
    if image.mode in ("I", "F"):
        raise Unreadable("32-bit pixels; save it with 8 or 16 bits")
    return image.convert("L" if image.mode == "1" else "RGB")


def _in_8_bits(image: Image.Image) -> Image.Image:
    """Return a 16-bit grey image in 8 bits, with alpha if its file has a transparent value."""
    import numpy as np

    grey = Image.new("L", image.size)
    clear = image.info.get("transparency")
    alpha = Image.new("L", image.size) if isinstance(clear, int) else None
    step = max(1, _BAND_ROWS_PIXELS // image.width)
    for top in range(0, image.height, step):
        band = np.asarray(image.crop((0, top, image.width, min(top + step, image.height))))
        scaled = ((band.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)
        grey.paste(Image.fromarray(scaled), (0, top))
        if alpha is not None:
            alpha.paste(Image.fromarray(np.where(band == clear, 0, 255).astype(np.uint8)), (0, top))
    if alpha is None:
        return grey
    return Image.merge("RGBA", (grey, grey, grey, alpha))
