"""Images of `predict`, whatever they are given as: parts of a form, or arrays of numbers."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

Image = str | os.PathLike[str] | bytes | BinaryIO
"""A file, its bytes, or the file opened; PIL's images are taken too."""
Images = Image | Sequence[Image] | Sequence[Any] | Any
Part = tuple[str, tuple[str, bytes]]
"""A part of a form: its field, and the name and bytes of a file."""

_IN_PNG = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_WITHOUT_SCALE = ("I", "F")
_ORIENTATION = 0x0112
_TAKEN = "files, their bytes, opened files, PIL images, or arrays of numbers from 0 to 255"


def read_parts(images: Images) -> list[Part] | None:
    """Return the parts of a form, each the bytes of a file; None: these are arrays.

    Raises:
        TypeError: an item is none of what is taken, or files and arrays are mixed.
        OSError: a file cannot be read.
    """
    each: Any = [images] if _is_file(images) else images
    if not hasattr(each, "__iter__"):
        raise TypeError(f"{type(images).__name__} is no image: predict takes {_TAKEN}.")
    items = list(each)
    files = [_is_file(item) for item in items]
    if not any(files):
        return None if items else []
    if not all(files):
        other = items[files.index(False)]
        raise TypeError(f"A {type(other).__name__} is among the images: predict takes {_TAKEN}, not mixed.")
    return [("image", _read(item, number)) for number, item in enumerate(items)]


def as_numbers(images: Any) -> Any:
    """Return arrays, or lists of them, as nested lists of numbers."""
    if hasattr(images, "tolist"):
        return images.tolist()
    return [as_numbers(one) for one in images] if isinstance(images, (list, tuple)) else images


def _is_file(image: Any) -> bool:
    return isinstance(image, (str, bytes, os.PathLike)) or _is_picture(image) or hasattr(image, "read")


def _is_picture(image: Any) -> bool:
    """Tell if it is an image of PIL, which nobody has who has not imported that."""
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(image, pil.Image)


def _read(image: Any, number: int) -> tuple[str, bytes]:
    """Return the name that the answer will have, and the bytes of a file."""
    unnamed = f"image-{number}"
    if isinstance(image, bytes):
        return unnamed, image
    if isinstance(image, (str, os.PathLike)):
        return Path(image).name, Path(image).read_bytes()
    if _is_picture(image):
        return _name(getattr(image, "filename", None)) or unnamed, _as_png(image)
    content = image.read()
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise TypeError(f"{image!r} gives {type(content).__name__}, not bytes: open it with mode 'rb'.")
    return _name(getattr(image, "name", None)) or unnamed, bytes(content)


def _name(path: Any) -> str:
    """Return the last part of a path; an opened file's name may be a number, and a picture's is often empty."""
    return Path(os.fsdecode(path)).name if isinstance(path, (str, bytes, os.PathLike)) else ""


def _as_png(picture: Any) -> bytes:
    """The pixels without loss, with colour profile and orientation: the service turns it as it turns files."""
    if picture.mode in _WITHOUT_SCALE:
        raise TypeError(
            f"A picture of the mode {picture.mode!r} does not say which number is white: convert it to 'L' or 'RGB'."
        )
    options: dict[str, Any] = {}
    turned = picture.getexif()
    if (orientation := turned.get(_ORIENTATION)) is not None:
        options["exif"] = type(turned)()  # nothing else of it: a place or a camera is not the service's
        options["exif"][_ORIENTATION] = orientation
    if picture.mode not in _IN_PNG:
        picture = picture.convert("RGBA" if picture.mode.lower().endswith("a") else "RGB")
        options["icc_profile"] = None  # it was of the colours before
    file = io.BytesIO()
    picture.save(file, "PNG", **options)
    return file.getvalue()
