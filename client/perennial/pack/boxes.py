"""Images with boxes, as COCO and YOLO have them: a crop of each box, or whole images that show one class.

A crop is a PNG of the box, its sides rounded outwards and kept within the image. It is made anew each time that it is
sent; the same Pillow makes the same bytes.
"""

import io
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perennial.pack.errors import PackError
from perennial.pack.extras import needed
from perennial.pack.files import FileImages, Seen
from perennial.pack.images import Image, Images
from perennial.pack.labels import normal_label
from perennial.pack.names import numbered
from perennial.pack.text import count, show

_COMPRESS_LEVEL = 1
"""Of zlib: three times as fast as the default, some 10 % larger."""
_KEPT_MODES = {"L": "L", "RGB": "RGB", "RGBA": "RGBA", "1": "L", "LA": "RGBA", "PA": "RGBA", "I;16": "I;16"}


class Box(NamedTuple):
    """label: of the box; left, top, right, bottom: in pixels, or as shares of width and height (`Picture.shares`)."""

    label: str
    left: float
    top: float
    right: float
    bottom: float


class Picture(NamedTuple):
    """An image file and its boxes.

    name: its path in the source; path: the file; part: `train`, `test` or empty; size: (width, height) to which the
    boxes refer, None where nothing says it: then of the image turned as its EXIF says; shares: see Box.
    """

    name: str
    path: str
    part: str
    boxes: Sequence[Box]
    size: tuple[int, int] | None = None
    shares: bool = False


def from_boxes(pictures: Iterable[Picture], origin: str, whole: bool) -> Images:
    """Crops, or whole images of one class. Raises PackError; ExtraMissing for crops without Pillow."""
    return WholeImages(pictures, origin) if whole else CropImages(pictures, origin)


class WholeImages(FileImages):
    """The files of images whose boxes are all of one class."""

    def __init__(self, pictures: Iterable[Picture], origin: str) -> None:
        """Raises PackError."""
        super().__init__(origin, Path())
        several = none = 0
        for picture in sorted(pictures, key=lambda picture: picture.name):
            labels = {normal_label(box.label) for box in picture.boxes}
            if len(labels) == 1:
                self.rows.append(Image(numbered(len(self.rows), picture.name), labels.pop(), picture.part))
                self.add_file(picture.path)
            several += len(labels) > 1
            none += not picture.boxes
        if not self.rows:
            raise PackError(
                f"No image of {origin} shows one class alone. Without whole=True its boxes are cropped."
            )
        for number, what in ((several, "of several classes"), (none, "without boxes")):
            if number:
                self.warnings.append(f"{count(number, 'image')} {what} left out.")


class CropImages(Images):
    """The boxes of images, in the order of the images' names and then of their boxes."""

    def __init__(self, pictures: Iterable[Picture], origin: str) -> None:
        """List boxes and files; no image is read. Raises PackError."""
        super().__init__(origin)
        self._pillow = needed("PIL.Image", "Cropping boxes")
        self._ops = needed("PIL.ImageOps", "Cropping boxes")
        self._pictures: list[Picture] = []
        self._first: list[int] = []  # per picture, the row of its first box
        self._seen = Seen()
        without = empty = 0
        for picture in sorted(pictures, key=lambda picture: picture.name):
            boxes = [box for box in picture.boxes if _has_area(box, picture)]
            empty += len(picture.boxes) - len(boxes)
            without += not boxes
            if boxes:
                self._take(picture._replace(boxes=boxes))
        if not self.rows:
            raise PackError(f"{origin[:1].upper()}{origin[1:]} has no boxes to crop.")
        if without:
            self.warnings.append(f"{count(without, 'image')} without boxes left out.")
        if empty:
            self.warnings.append(
                f"{count(empty, 'box', 'boxes')} of no area, or outside the image, left out."
            )

    def _take(self, picture: Picture) -> None:
        self._seen.add(picture.path)
        self._pictures.append(picture)
        self._first.append(len(self.rows))
        stem = picture.name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        for number, box in enumerate(picture.boxes):
            name = numbered(len(self.rows), f"{stem}-{number}.png")
            self.rows.append(Image(name, normal_label(box.label), picture.part))

    def sizes(self) -> "array[int]":
        """Crops everything once: how small a PNG gets is seen when it is made."""
        return array("q", (len(crop) for crop in self._crops(0)))

    def contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Picture by picture, each decoded once."""
        return ((crop,) for crop in self._crops(first))

    def _crops(self, first: int) -> Iterator[bytes]:
        for number, picture in enumerate(self._pictures):
            skip = max(0, first - self._first[number])
            if skip < len(picture.boxes):
                image = self._decoded(number, picture)
                for box in picture.boxes[skip:]:
                    yield _png(image.crop(_pixels(box, picture, image.size)))

    def _decoded(self, number: int, picture: Picture) -> Any:
        data = b"".join(self._seen.pieces(number, picture.path))
        try:
            with self._pillow.open(io.BytesIO(data)) as file:
                image = file if picture.size == file.size else self._ops.exif_transpose(file)
                transparent = "transparency" in image.info
                decoded = image.convert("RGBA" if transparent else _KEPT_MODES.get(image.mode, "RGB"))
        except (OSError, ValueError, SyntaxError, self._pillow.DecompressionBombError) as error:
            raise PackError(f"The image {show(picture.path)} cannot be decoded: {error}.") from error
        if picture.size not in (None, decoded.size):
            raise PackError(
                f"The image {show(picture.path)} has {decoded.width} × {decoded.height} pixels; its boxes are for "
                f"{' × '.join(map(str, picture.size or ()))}. Give the image that was annotated."
            )
        return decoded


def _has_area(box: Box, picture: Picture) -> bool:
    """Whether a part of the box is in the image, as far as its size is known."""
    width, height = (1, 1) if picture.shares else picture.size or (math.inf, math.inf)
    numbers = box[1:]
    inside = min(box.right, width) > max(box.left, 0) and min(box.bottom, height) > max(box.top, 0)
    return all(map(math.isfinite, numbers)) and inside


def _pixels(box: Box, picture: Picture, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Whole pixels of the box, within the image. Raises PackError where there are none."""
    width, height = size
    by = size if picture.shares else (1, 1)
    left, top = (max(0, math.floor(round(v * s, 3))) for v, s in ((box.left, by[0]), (box.top, by[1])))
    right = min(width, math.ceil(round(box.right * by[0], 3)))
    bottom = min(height, math.ceil(round(box.bottom * by[1], 3)))
    if right <= left or bottom <= top:
        raise PackError(
            f"A box of the image {show(picture.path)} lies outside its {width} × {height} pixels. Mend its annotation."
        )
    return left, top, right, bottom


def _png(image: Any) -> bytes:
    image.info.clear()  # no colour profile, text or time of the picture
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=_COMPRESS_LEVEL, optimize=False)
    return out.getvalue()
