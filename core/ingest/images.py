"""Conversion of one image file or array to a square uint8 image, for training and predicting.

The decoding version in a model's manifest determines how the file is read (`core.ingest.decoding.resizing`).
The latest version is in `core.ingest.image_file`, the first one in `core.ingest.decoding.first_decoding`.
Both apply the orientation, take the first frame, put alpha over white and scale 16-bit grey to 8
bits. They resize the shorter side as `resizing` says (by default to S for S ≤ 96, else
round(S·256/224), bilinear with antialiasing), and crop the centre. An S×S image is not resampled.

NumPy is imported where it is used: without it, a decoder that only opens files starts in half the
time.
"""

import resource
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageFile

from core.errors import ImageInvalid
from core.ingest.decoding import first_decoding
from core.ingest.decoding.resizing import LATEST, USUAL, SquareResizingSettings
from core.ingest.image_file import Square, Unreadable, read_square
from core.ingest.image_file.heic import load_library

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]


def decode_image_to_square_pixels(
    data: bytes, size: int, channels: int, max_pixels: int, resizing: SquareResizingSettings = USUAL
) -> "Pixels":
    """Decode one image file to uint8 [size, size, channels], channels 1 or 3.

    Raises ImageInvalid with the reason: an unsupported kind, too many pixels, or damage.
    """
    import numpy as np

    image = decode_square_image(data, size, channels, max_pixels, resizing).image
    # A copy, because Pillow's memory is read-only.
    return np.asarray(image).reshape(size, size, channels).copy()


def decode_square_image(
    data: bytes, size: int, channels: int, max_pixels: int, resizing: SquareResizingSettings = USUAL
) -> Square:
    """Decode one image file to a square image of `size` × `size` pixels.

    `max_pixels` limits an image that is decoded whole. Raises ImageInvalid.
    """
    latest = resizing.decoding == LATEST
    # An empty file is left to `read_square`, which names the reason.
    if not latest and data:
        try:
            return first_decoding.decode_square_image(data, size, channels, max_pixels, resizing)
        # The current version would need as much memory.
        except MemoryError as error:
            raise ImageInvalid("decoding takes too much memory") from error
        except Exception:  # noqa: BLE001 - Pillow raises any error for damaged files; read_square names the reason
            pass
    try:
        return read_square(
            data, size, channels, resizing.crop, resizing.interpolation, max_pixels, profiles=latest
        )
    except Unreadable as error:
        raise ImageInvalid(str(error)) from error.__cause__


def convert_to_square_array(
    pixels: "Pixels", size: int, channels: int, resizing: SquareResizingSettings = USUAL
) -> "Pixels":
    """Convert an image's pixels uint8 [H, W] or [H, W, C] to a square uint8 [size, size, channels]."""
    import numpy as np

    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    # Arrays have no colour profile, so both decoding versions give the same image.
    image = first_decoding.resize_and_crop_to_square(
        Image.fromarray(pixels), size, channels, resizing
    )
    return np.asarray(image).reshape(size, size, channels)


def limit_decoding_process_resources(memory_bytes: int, cpu_s: int) -> None:
    """Limit this process's memory and CPU time before it decodes untrusted images.

    A warning of a decompression bomb becomes an error; core dumps and truncated images are off.

    Args:
        memory_bytes: address space beyond what is mapped now.
        cpu_s: CPU seconds from now on; call `extend_process_cpu_limit` to renew them.
    """
    warnings.simplefilter("ignore")  # warnings about odd metadata do not matter; the pixels decide
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    load_library()  # load it before memory is limited
    # A core dump would leave images of users on the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    # Other systems than Linux do not tell what is mapped, and refuse a limit below it.
    if statm.exists():
        pages = int(statm.read_text().split()[0])
        _set_soft_resource_limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes)
    extend_process_cpu_limit(cpu_s)


def extend_process_cpu_limit(cpu_s: int) -> None:
    """Allow this process `cpu_s` more CPU seconds, after which the kernel kills it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    # One more, because the kernel counts whole seconds.
    _set_soft_resource_limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + 1 + cpu_s)


def _set_soft_resource_limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    # A value above the hard limit would be an error.
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
