"""Images for `predict` in any accepted form, as parts of a form or arrays of numbers."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

Image = str | os.PathLike[str] | bytes | BinaryIO
"""A file, its bytes, or an opened file; PIL images are accepted too."""
Images = Image | Sequence[Image] | Sequence[Any] | Any
Part = tuple[str, tuple[str, bytes]]
"""A part of a form: its field, and the name and bytes of a file."""

_IN_PNG = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_WITHOUT_SCALE = ("I", "F")
# The EXIF tag by which cameras store how a picture is to be turned.
_ORIENTATION = 0x0112
_TAKEN = "files, their bytes, opened files, PIL images, or arrays of numbers from 0 to 255"


def convert_images_to_form_parts(images: Images) -> list[Part] | None:
    """Convert images to predict into parts of a multipart form; None if they are arrays.

    Raises:
        TypeError: an item has an unsupported type, or files and arrays are mixed.
        OSError: a file cannot be read.
    """
    # A single file first, because a path and bytes can be iterated over as well.
    candidates: Any = [images] if _is_image_file_or_pil_image(images) else images
    if not hasattr(candidates, "__iter__"):
        raise TypeError(f"{type(images).__name__} is no image: predict takes {_TAKEN}.")
    items = list(candidates)
    files = [_is_image_file_or_pil_image(item) for item in items]
    # Nothing is a file: numbers, which travel as JSON. An empty sequence is an empty form.
    if not any(files):
        return None if items else []
    if not all(files):
        unsupported = items[files.index(False)]
        raise TypeError(
            f"A {type(unsupported).__name__} is among the images: predict takes {_TAKEN}, not "
            f"mixed."
        )
    return [("image", _read_image_with_name(item, number)) for number, item in enumerate(items)]


def convert_arrays_to_nested_lists(images: Any) -> Any:
    """Convert image arrays, or lists of them, to nested lists of numbers for JSON."""
    # NumPy arrays and tensors of PyTorch share this method, so neither library is imported.
    if hasattr(images, "tolist"):
        return images.tolist()
    return (
        [convert_arrays_to_nested_lists(one) for one in images]
        if isinstance(images, (list, tuple))
        else images
    )


def _is_image_file_or_pil_image(image: Any) -> bool:
    return (
        isinstance(image, (str, bytes, os.PathLike))
        or _is_pil_image(image)
        or hasattr(image, "read")
    )


def _is_pil_image(image: Any) -> bool:
    """Return True if an object is a PIL image, without importing PIL."""
    # If PIL was never imported, no object can be one of its images.
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(image, pil.Image)


def _read_image_with_name(image: Any, number: int) -> tuple[str, bytes]:
    """Return name and bytes of an image to predict, given as path, file, bytes or PIL image."""
    # The name labels the prediction, so that a person can tell the images apart.
    unnamed = f"image-{number}"
    if isinstance(image, bytes):
        return unnamed, image
    if isinstance(image, (str, os.PathLike)):
        return Path(image).name, Path(image).read_bytes()
    if _is_pil_image(image):
        return _get_file_name_of_path(
            getattr(image, "filename", None)
        ) or unnamed, _encode_picture_as_png(image)
    content = image.read()
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"{image!r} gives {type(content).__name__}, not bytes: open it with mode 'rb'."
        )
    return _get_file_name_of_path(getattr(image, "name", None)) or unnamed, bytes(content)


def _get_file_name_of_path(path: Any) -> str:
    """Return the file name at the end of a path; "" if there is none.

    The name of an opened file may be a number, and a PIL image often has none.
    """
    return Path(os.fsdecode(path)).name if isinstance(path, (str, bytes, os.PathLike)) else ""


def _encode_picture_as_png(picture: Any) -> bytes:
    """Encode a PIL image as lossless PNG, with its colour profile and orientation."""
    if picture.mode in _WITHOUT_SCALE:
        raise TypeError(
            f"A picture of the mode {picture.mode!r} does not say which number is white: convert "
            f"it to 'L' or 'RGB'."
        )
    options: dict[str, Any] = {}
    exif = picture.getexif()
    if (orientation := exif.get(_ORIENTATION)) is not None:
        # Send no other metadata, such as location or camera.
        options["exif"] = type(exif)()
        options["exif"][_ORIENTATION] = orientation
    if picture.mode not in _IN_PNG:
        picture = picture.convert("RGBA" if picture.mode.lower().endswith("a") else "RGB")
        options["icc_profile"] = None  # the profile described the original colours
    file = io.BytesIO()
    picture.save(file, "PNG", **options)
    return file.getvalue()
