"""One image file to one square image: opened by its kind, turned upright, resized and cropped, in sRGB, over white."""

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
"""Bytes of a BMP in run-length encoding, which Pillow unpacks in Python: a second for so many."""
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

    has_frames: its file has more, of which this is the first; longer_side: pixels, of the file's image;
    ignored_profile: it has a colour profile that is damaged or for other channels.
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
    """Read an image file as uint8 [size, size, channels], channels 1 (grey) or 3 (RGB). Raises Unreadable."""
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
    """Read an image file as one of size × size pixels.

    crop: share of the shorter side that the centre crop keeps, in (0, 1]; None: all of it up to 96 pixels, 224/256
    above; interpolation: `bilinear` (also None), `bicubic` or `nearest`; max_pixels: of an image that is decoded
    whole, a JPEG may have four times as many; profiles: whether colours are turned to sRGB by an embedded profile.

    Raises Unreadable: the file is no such image, is damaged, or has too many pixels.
    """
    mode, target = "RGB" if channels == 3 else "L", geometry.shorter_side(size, crop)
    try:
        found = _open(data, 2 * target, max_pixels)
        image = found.image if found.turn is None else found.image.transpose(found.turn)
        image = _plain(image)
        image = geometry.centre(image, size, target, geometry.resample(interpolation))
        image, ignored = colour.to_srgb(image, found.profile if profiles else None)
        if image.mode == "RGBA":
            image = colour.over_white(image)
        image = image if image.mode == mode else image.convert(mode)
        return Square(image, found.has_frames, found.longer_side, ignored)
    except Unreadable:
        raise
    except MemoryError as error:
        raise Unreadable("decoding takes too much memory") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise Unreadable(f"more than {max_pixels} pixels") from error
    except Exception as error:  # decoders of damaged files raise nearly every type there is
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
    """At a half, a quarter or an eighth of its size where that has twice the pixels that are wanted."""
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
    """A JPEG that lacks nothing but its end mark. Raises Unreadable."""
    found: Image.Image | None = None
    for one in jpeg.ended(data):
        image = _by_pillow(one, "JPEG")
        image.draft(None, (wanted, wanted))
        image.load()
        if found is not None and image.tobytes() != found.tobytes():
            raise Unreadable(CUT)
        found = found or image
    if found is None:
        raise Unreadable(CUT)
    return found


def _by_pillow(data: bytes, kind: str) -> Image.Image:
    """Open a file that begins as its kind does: what cannot be opened then is damaged."""
    if kind == kinds.PNG:
        # What Image.open would find, without its search: a fifth of the time of a 32-pixel image.
        return PngImagePlugin.PngImageFile(io.BytesIO(data))
    bound = Image.MAX_IMAGE_PIXELS
    try:
        Image.MAX_IMAGE_PIXELS = None  # pixels are counted here, before any is decoded
        return Image.open(io.BytesIO(data), formats=(kind,))
    except UnidentifiedImageError as error:
        raise Unreadable(CUT) from error
    finally:
        Image.MAX_IMAGE_PIXELS = bound


def check_pixels(image: Image.Image, max_pixels: int) -> None:
    """Raise Unreadable where an image has more pixels."""
    width, height = image.size
    if width * height > max_pixels:
        raise Unreadable(f"{width}×{height} pixels, more than {max_pixels}")


def turn_of(image: Image.Image) -> Image.Transpose | None:
    """Return the turn that makes the image upright, if any; most PNG have no EXIF at all."""
    info = image.info
    if "exif" not in info and "Raw profile type exif" not in info and "xmp" not in info:
        return None
    try:
        return _TRANSPOSE.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - broken metadata must not cost the image: it stays as stored
        return None


def _plain(image: Image.Image) -> Image.Image:
    """The image in mode L, RGB, CMYK or, where it is transparent, RGBA."""
    if image.mode.startswith("I;16"):
        return _convert_to_8_bits(image)
    if image.has_transparency_data:
        return image.convert("RGBA")
    if image.mode in ("L", "RGB", "CMYK"):
        return image
    if image.mode in ("I", "F"):
        raise Unreadable("32-bit pixels; save it with 8 or 16 bits")
    return image.convert("L" if image.mode == "1" else "RGB")


def _convert_to_8_bits(image: Image.Image) -> Image.Image:
    """A 16-bit grey image scaled to 8 bits, and the grey value that its file calls transparent, if any."""
    import numpy as np

    made = Image.new("L", image.size)
    clear = image.info.get("transparency")
    alpha = Image.new("L", image.size) if isinstance(clear, int) else None
    step = max(1, _BAND_ROWS_PIXELS // image.width)
    for top in range(0, image.height, step):
        band = np.asarray(image.crop((0, top, image.width, min(top + step, image.height))))
        scaled = ((band.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)
        made.paste(Image.fromarray(scaled), (0, top))
        if alpha is not None:
            alpha.paste(Image.fromarray(np.where(band == clear, 0, 255).astype(np.uint8)), (0, top))
    if alpha is None:
        return made
    return Image.merge("RGBA", (made, made, made, alpha))
