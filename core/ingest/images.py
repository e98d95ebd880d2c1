"""One image file or array in, one square uint8 image out: the same function for training and predicting.

Orientation from EXIF is applied; the first frame is taken; alpha is laid over white; 16-bit grey is
scaled to 8; the shorter side is resized as `resizing` says (by default to S for S ≤ 96, else round(S·256/224),
bilinear with antialiasing), and the centre is cropped. An image that is S×S already is not resampled. NumPy
is imported where it is used: a decoder that only opens files starts in half the time without it.
"""

import io
import resource
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from core.errors import ImageInvalid
from core.ingest import gif, heif, png
from core.ingest.resizing import USUAL, Resizing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
"""Told apart by Pillow; GIF, AVIF and HEIC are told apart here."""
_PLUGINS = (AvifImagePlugin, BmpImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, TiffImagePlugin,
            WebPImagePlugin)  # fmt: skip
MAX_SCANS = 100
"""Scans of a JPEG (libtiff's own bound for those it holds): each passes over the whole image, and some 33 bytes
are one. Progressive files have about ten."""
MAX_RLE_BYTES = 8 << 20
"""Bytes of a BMP in run-length encoding, which Pillow unpacks in Python: a second for so many."""
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


def decode(data: bytes, size: int, channels: int, max_pixels: int, resizing: Resizing = USUAL) -> "Pixels":
    """Decode one image file to uint8 [size, size, channels], channels 1 or 3.

    Raises ImageInvalid with the reason: unknown format, too many pixels, damaged, 32-bit pixels.
    """
    import numpy as np

    image = open_square(data, size, channels, max_pixels, resizing).image
    return np.asarray(image).reshape(size, size, channels).copy()


class Square(NamedTuple):
    """A decoded image of mode L or RGB, whether its file has more frames, and the longer side of the file's image."""

    image: Image.Image
    has_frames: bool
    longer_side: int


def open_square(data: bytes, size: int, channels: int, max_pixels: int, resizing: Resizing = USUAL) -> Square:
    """Decode one image file to a size × size image.

    Raises ImageInvalid.
    """
    if not data:
        raise ImageInvalid("the file is empty")
    try:
        image, frames = _open(data, max_pixels)
        width, height = image.size
        if width * height > max_pixels:
            raise ImageInvalid(f"{width}×{height} pixels, more than {max_pixels}")
        frames = frames or bool(getattr(image, "is_animated", False))
        _bound_work(image, data)
        # A JPEG's decoder can halve the image while decoding; twice the wanted size keeps the quality. Others
        # ignore it.
        side = 2 * resizing.side(size)
        image.draft(None, (side, side))
        image.load()
        turn = _orientation(image)
        upright = image if turn is None else image.transpose(turn)
        return Square(_square(upright, size, channels, resizing), frames, max(width, height))
    except ImageInvalid:
        raise
    except MemoryError as error:
        raise ImageInvalid("decoding takes too much memory") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ImageInvalid(f"more than {max_pixels} pixels") from error
    except UnidentifiedImageError as error:
        raise ImageInvalid("not a PNG, JPEG, WebP, GIF, AVIF, BMP or TIFF image") from error
    except Exception as error:  # decoders of damaged files raise nearly every type there is
        raise ImageInvalid("damaged or cut off") from error


def _bound_work(image: Image.Image, data: bytes) -> None:
    """Refuse what its decoder would spend far more time on than its bytes and pixels excuse. Raises ImageInvalid."""
    # By its class: an MPO, which is several JPEGs, is decoded as the first of them and named otherwise.
    if isinstance(image, JpegImagePlugin.JpegImageFile) and data.count(b"\xff\xda") > MAX_SCANS:
        raise ImageInvalid(f"more than {MAX_SCANS} scans")
    packed = isinstance(image, BmpImagePlugin.BmpImageFile) and any(
        tile.codec_name == "bmp_rle" for tile in image.tile
    )
    if packed and len(data) > MAX_RLE_BYTES:
        raise ImageInvalid(f"an RLE-packed BMP of more than {MAX_RLE_BYTES} bytes; save it unpacked")


def _open(data: bytes, max_pixels: int) -> tuple[Image.Image, bool]:
    """The image with its header read, and whether frames of it were left away."""
    if data.startswith(png.SIGNATURE):
        png.check_chunks(data)
        # What Image.open would find, without its search: a fifth of the time of a 32-pixel image.
        return PngImagePlugin.PngImageFile(io.BytesIO(data)), False
    if gif.is_gif(data):
        data, frames = gif.first_frame(data, max_pixels)
        return _known(data, "GIF"), frames
    if kind := heif.kind_of(data):
        return _known(data, heif.format_of(kind)), False
    return Image.open(io.BytesIO(data), formats=FORMATS), False


def _known(data: bytes, name: str) -> Image.Image:
    """Open a file that begins as its format does: what cannot be opened then is damaged."""
    try:
        return Image.open(io.BytesIO(data), formats=(name,))
    except UnidentifiedImageError as error:
        raise ImageInvalid("damaged or cut off") from error


def square_array(pixels: "Pixels", size: int, channels: int, resizing: Resizing = USUAL) -> "Pixels":
    """The same for pixels uint8 [H, W] or [H, W, C], C in 1, 3, 4: uint8 [size, size, channels]."""
    import numpy as np

    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    image = _square(Image.fromarray(pixels), size, channels, resizing)
    return np.asarray(image).reshape(size, size, channels)


def harden_process(memory_bytes: int, cpu_s: int) -> None:
    """Limit this process before it touches untrusted images.

    memory_bytes: address space beyond what is mapped now; cpu_s: CPU seconds from now on (call again to
    renew). A warning of a decompression bomb becomes an error; core dumps and truncated images are off.
    """
    warnings.simplefilter("ignore")  # of odd metadata: the pixels decide
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    heif.reads_heic()  # its libraries are loaded before memory is limited
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes)
    renew_cpu(cpu_s)


def renew_cpu(cpu_s: int) -> None:
    """Allow `cpu_s` more CPU seconds; the kernel ends the process when they are spent."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + cpu_s)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _orientation(image: Image.Image) -> Image.Transpose | None:
    """How to turn the image upright; TIFF is turned by its plugin, and most PNG have no EXIF at all."""
    info = image.info
    if "exif" not in info and "Raw profile type exif" not in info and "xmp" not in info:
        return None
    try:
        return _TRANSPOSE.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - broken metadata must not cost the image: it stays as stored
        return None


def _square(image: Image.Image, size: int, channels: int, resizing: Resizing) -> Image.Image:
    mode = "RGB" if channels == 3 else "L"
    if image.mode != mode or "transparency" in image.info:
        image = _plain(image)
    width, height = image.size
    if not width or not height:
        raise ImageInvalid("no pixels")
    if (width, height) != (size, size):
        short, target = min(width, height), resizing.side(size)
        new_width = target if width == short else max(target, round(width * target / short))
        new_height = target if height == short else max(target, round(height * target / short))
        left, top = (new_width - size) // 2, (new_height - size) // 2
        if (new_width, new_height) == (width, height):
            image = image.crop((left, top, left + size, top + size))
        else:
            # Resize and crop in one: a 1 × 10,000,000 image must not be enlarged first.
            across, down = width / new_width, height / new_height
            box = (
                left * across,
                top * down,
                min(width, (left + size) * across),
                min(height, (top + size) * down),
            )
            image = image.resize((size, size), resizing.filter, box)
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image).convert("RGB")
    return image if image.mode == mode else image.convert(mode)


def _plain(image: Image.Image) -> Image.Image:
    """The image in mode L, RGB or, where it is transparent, RGBA."""
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
