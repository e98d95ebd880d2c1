"""Images with boxes, as COCO and YOLO have them: a crop of each box, or whole images that show one class.

A crop is a PNG of the box, its sides rounded outwards and kept within the image, and upright as EXIF says. It is made
again each time that it is sent; the same Pillow makes the same bytes.
"""

import io
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perennial.pack.bad import MAX_BAD, BadEntries
from perennial.pack.errors import PackError, SourceChanged
from perennial.pack.extras import needed
from perennial.pack.files import FileImages, Seen
from perennial.pack.images import Image, Images
from perennial.pack.labels import normal_label
from perennial.pack.names import numbered
from perennial.pack.text import count, show

_COMPRESS_LEVEL = 1
"""Of zlib: three times as fast as the default, some 10 % larger."""
_KEPT_MODES = {"L": "L", "RGB": "RGB", "RGBA": "RGBA", "1": "L", "LA": "RGBA", "PA": "RGBA", "I;16": "I;16"}


STORED, TURNED = "stored", "turned"
_ORIENTATION = 0x0112
_TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
"""EXIF orientation → Pillow's name of what turns the stored pixels upright (EXIF 2.32, 4.6.4 A)."""
_SIDEWAYS = ("TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")


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
    boxes refer, None where nothing says it; shares: see Box.
    """

    name: str
    path: str
    part: str
    boxes: Sequence[Box]
    size: tuple[int, int] | None = None
    shares: bool = False


class BoxOptions(NamedTuple):
    """Choices of the sender.

    whole: whole images of one class instead of crops; boxes: the pixels that boxes count where the sizes in the file
    do not tell, `stored` or `turned` as EXIF says; max_bad: the share of entries that may be bad.
    """

    whole: bool = False
    boxes: str = STORED
    max_bad: float = MAX_BAD

    def checked(self) -> "BoxOptions":
        """The same. Raises PackError for a value that there is not."""
        if self.boxes not in (STORED, TURNED):
            raise PackError(f"There is no boxes={self.boxes}; possible are {STORED} and {TURNED}.")
        return self


def from_boxes(
    pictures: Iterable[Picture], origin: str, options: BoxOptions, bad: BadEntries, said: Sequence[str] = ()
) -> Images:
    """Crops, or whole images of one class; `bad` and `said` have what is bad, and to be said, already.

    Raises PackError; ExtraMissing for crops without Pillow.
    """
    options.checked()
    if options.whole:
        return WholeImages(pictures, origin, bad, said)
    return CropImages(pictures, origin, options.boxes, bad, said)


class WholeImages(FileImages):
    """The files of images whose boxes are all of one class."""

    def __init__(
        self, pictures: Iterable[Picture], origin: str, bad: BadEntries, said: Sequence[str]
    ) -> None:
        """Raises PackError."""
        super().__init__(origin, Path())
        several = none = 0
        for picture in sorted(pictures, key=lambda picture: picture.name):
            labels = {normal_label(box.label) for box in picture.boxes}
            if len(labels) == 1:
                try:
                    self.add_file(picture.path)
                except PackError as error:
                    bad.add(show(picture.name), f"names an image that is not there: {error}")
                    continue
                self.rows.append(Image(numbered(len(self.rows), picture.name), labels.pop(), picture.part))
            several += len(labels) > 1
            none += not picture.boxes
        self.warnings = [*bad.check(len(self.rows)), *said]
        if not self.rows:
            raise PackError(
                f"No image of {origin} shows one class alone. Without whole=True its boxes are cropped."
            )
        for number, what in ((several, "of several classes"), (none, "without boxes")):
            if number:
                self.warnings.append(f"{count(number, 'image')} {what} left out.")


class CropImages(Images):
    """The boxes of images, in the order of the images' names and then of their boxes."""

    def __init__(
        self, pictures: Iterable[Picture], origin: str, boxes: str, bad: BadEntries, said: Sequence[str]
    ) -> None:
        """List boxes and files; no image is read. Raises PackError."""
        super().__init__(origin)
        self._pillow = needed("PIL.Image", "Cropping boxes")
        self._counted, self._bad, self._said = boxes, bad, said
        self._pictures: list[_Listed] = []
        self._first: list[int] = []  # per picture, the row of its first box
        self._seen = Seen()
        self._guessed = 0
        self._without = self._empty = 0
        for picture in sorted(pictures, key=lambda picture: picture.name):
            boxes_in = [box for box in picture.boxes if _has_area(box, picture)]
            self._empty += len(picture.boxes) - len(boxes_in)
            self._without += not boxes_in
            if boxes_in:
                self._take(picture._replace(boxes=boxes_in))
        self._check()

    def _check(self) -> None:
        """Say what is left out, of what is known by now. Raises PackError where too much is."""
        self.warnings = [*self._bad.check(len(self.rows)), *self._said]
        if not self.rows:
            raise PackError(f"{self.origin[:1].upper()}{self.origin[1:]} has no boxes to crop.")
        if self._without:
            self.warnings.append(f"{count(self._without, 'image')} without boxes left out.")
        if self._empty:
            self.warnings.append(
                f"{count(self._empty, 'box', 'boxes')} of no area, or outside the image, left out."
            )
        if self._guessed:
            other, how = (TURNED, "as stored") if self._counted == STORED else (STORED, "as turned")
            self.warnings.append(
                f"{count(self._guessed, 'image is', 'images are')} turned by EXIF, and nothing says of which pixels "
                f"the boxes are: they were taken {how}. If the crops are wrong: -o boxes={other}."
            )

    def _take(self, picture: Picture) -> None:
        try:
            self._seen.add(picture.path)
        except PackError as error:
            self._bad.add(show(picture.name), f"names an image that is not there: {error}")
            return
        self._pictures.append(_Listed(picture, len(self._pictures)))
        self._first.append(len(self.rows))
        stem = picture.name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        for number, box in enumerate(picture.boxes):
            name = numbered(len(self.rows), f"{stem}-{number}.png")
            self.rows.append(Image(name, normal_label(box.label), picture.part))

    def sizes(self) -> "array[int]":
        """Crops everything once: how small a PNG gets is seen when it is made, and what is bad is left out."""
        sizes, rows, pictures, first = array("q"), list[Image](), list[_Listed](), list[int]()
        for (picture, number), at in zip(self._pictures, self._first, strict=True):
            try:
                image = self._decoded(number, picture)
            except _Unusable as error:
                self._bad.add(f"The image {show(picture.path)}", str(error))
                continue
            kept = []
            for row, box in enumerate(picture.boxes, start=at):
                area = _pixels(box, picture, image.size)
                if area is None:
                    width, height = image.size
                    self._bad.add(
                        f"A box of {show(picture.path)}", f"lies outside its {width} × {height} pixels"
                    )
                    continue
                kept.append(box)
                rows.append(self.rows[row])
                sizes.append(len(_png(image.cut(area))))
            if kept:
                pictures.append(_Listed(picture._replace(boxes=kept), number))
                first.append(len(rows) - len(kept))
            self._guessed += image.is_guessed
        self.rows[:], self._pictures, self._first = rows, pictures, first
        self._check()
        return sizes

    def contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Picture by picture, each decoded once."""
        return ((crop,) for crop in self._crops(first))

    def _crops(self, first: int) -> Iterator[bytes]:
        for (picture, number), begin in zip(self._pictures, self._first, strict=True):
            skip = max(0, first - begin)
            if skip < len(picture.boxes):
                try:
                    image = self._decoded(number, picture)
                except _Unusable as error:
                    raise SourceChanged(
                        f"The image {show(picture.path)} could be read when it was listed, and now it {error}."
                    ) from error
                for box in picture.boxes[skip:]:
                    area = _pixels(box, picture, image.size)
                    yield _png(image.cut(area)) if area else b""

    def _decoded(self, number: int, picture: Picture) -> "_Turnable":
        """The pixels of an image. Raises _Unusable, SourceChanged."""
        data = b"".join(self._seen.pieces(number, picture.path))
        try:
            with self._pillow.open(io.BytesIO(data)) as file:
                turn = _TURNS.get(file.getexif().get(_ORIENTATION, 1))
                transparent = "transparency" in file.info
                pixels = file.convert("RGBA" if transparent else _KEPT_MODES.get(file.mode, "RGB"))
        except (OSError, ValueError, SyntaxError, self._pillow.DecompressionBombError) as error:
            raise _Unusable(f"cannot be decoded: {error}") from error
        stored, size = pixels.size, picture.size
        turned = stored[::-1] if turn in _SIDEWAYS else stored
        if size not in (None, stored, turned):
            raise _Unusable(
                f"has {turned[0]} × {turned[1]} pixels, and its boxes are for "
                f"{' × '.join(map(str, size or ()))}: give the image that was annotated"
            )
        is_guessed = turn is not None and (size is None or stored == turned)
        is_turned = self._counted == TURNED if is_guessed else size == turned
        if turn is not None and is_turned:
            pixels, turn = pixels.transpose(self._pillow.Transpose[turn]), None
        return _Turnable(pixels, turn and self._pillow.Transpose[turn], is_guessed)


class _Unusable(Exception):
    """An image that is left out; the message is the end of a sentence."""


class _Listed(NamedTuple):
    """A picture, and the number of its file."""

    picture: Picture
    number: int


class _Turnable(NamedTuple):
    """Pixels in which boxes are counted, and how what is cut out of them is turned upright.

    is_guessed: an option alone says that these are the pixels.
    """

    pixels: Any
    turn: Any
    is_guessed: bool

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        width, height = self.pixels.size
        return width, height

    def cut(self, area: tuple[int, int, int, int]) -> Any:
        """The area, upright."""
        crop = self.pixels.crop(area)
        return crop if self.turn is None else crop.transpose(self.turn)


def _has_area(box: Box, picture: Picture) -> bool:
    """Whether a part of the box is in the image, as far as its size is known."""
    width, height = (1, 1) if picture.shares else picture.size or (math.inf, math.inf)
    numbers = box[1:]
    inside = min(box.right, width) > max(box.left, 0) and min(box.bottom, height) > max(box.top, 0)
    return all(map(math.isfinite, numbers)) and inside


def _pixels(box: Box, picture: Picture, size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Whole pixels of the box, within the image; None where there are none."""
    width, height = size
    by = size if picture.shares else (1, 1)
    left, top = (max(0, math.floor(round(v * s, 3))) for v, s in ((box.left, by[0]), (box.top, by[1])))
    right = min(width, math.ceil(round(box.right * by[0], 3)))
    bottom = min(height, math.ceil(round(box.bottom * by[1], 3)))
    return None if right <= left or bottom <= top else (left, top, right, bottom)


def _png(image: Any) -> bytes:
    image.info.clear()  # no colour profile, text or time of the picture
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=_COMPRESS_LEVEL, optimize=False)
    return out.getvalue()
