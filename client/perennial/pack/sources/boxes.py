"""Images with boxes, as in COCO and YOLO: a crop of each box, or whole images that show one class.

A crop is a PNG of the box, with its sides rounded outwards, limited to the image, and rotated
upright by EXIF. It is created each time it is sent; the same version of Pillow produces the same
bytes.
"""

import io
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perennial.pack.bad import MAX_BAD, BadEntryCollector
from perennial.pack.errors import PackError, SourceChanged
from perennial.pack.extras import import_optional_module_or_raise
from perennial.pack.files import FileImages, ListedFileStates
from perennial.pack.images import BatchImageEntry, ImageSource
from perennial.pack.labels import convert_label_to_stripped_nfc
from perennial.pack.names import build_sortable_numbered_name
from perennial.pack.text import format_count_with_noun, quote_name

_COMPRESS_LEVEL = 1
"""zlib level: three times as fast as the default, and about 10 % larger."""
# Modes that a PNG can keep, or that are converted without loss; any other becomes RGB.
_KEPT_MODES = {
    "L": "L",
    "RGB": "RGB",
    "RGBA": "RGBA",
    "1": "L",
    "LA": "RGBA",
    "PA": "RGBA",
    "I;16": "I;16",
}


STORED, TURNED = "stored", "turned"
# The EXIF tag by which cameras store how a picture is to be turned.
_ORIENTATION = 0x0112
_TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
"""EXIF orientation → Pillow's name of the operation that turns it upright (EXIF 2.32, 4.6.4 A)."""
_SIDEWAYS = ("TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")


class LabelledBox(NamedTuple):
    """A bounding box in a picture, with its class.

    Attributes:
        label: class of the box.
        left, top, right, bottom: in pixels, or as shares of width and height (`BoxedPicture.shares`).
    """

    label: str
    left: float
    top: float
    right: float
    bottom: float


class BoxedPicture(NamedTuple):
    """An image file with its labelled bounding boxes.

    Attributes:
        name: its path in the source.
        path: path of the file.
        part: `train`, `test` or empty.
        boxes: boxes in the image.
        size: (width, height) to which the boxes refer; None: not recorded.
        shares: True if boxes are shares of width and height.
    """

    name: str
    path: str
    part: str
    boxes: Sequence[LabelledBox]
    size: tuple[int, int] | None = None
    shares: bool = False


class BoxOptions(NamedTuple):
    """Options for reading images with bounding boxes: crops or whole images, and orientation.

    Attributes:
        whole: whole images of one class instead of crops.
        boxes: orientation that boxes refer to if the sizes in the file do not show it: `stored`, or
            `turned` by EXIF.
        max_bad: largest allowed share of bad entries.
    """

    whole: bool = False
    boxes: str = STORED
    max_bad: float = MAX_BAD

    def validate_box_options(self) -> "BoxOptions":
        """Raise PackError for an unknown value of an option; return the options."""
        if self.boxes not in (STORED, TURNED):
            raise PackError(f"There is no boxes={self.boxes}; possible are {STORED} and {TURNED}.")
        return self


def open_images_with_boxes(
    pictures: Iterable[BoxedPicture],
    origin: str,
    options: BoxOptions,
    bad: BadEntryCollector,
    notices: Sequence[str] = (),
) -> ImageSource:
    """Open pictures with bounding boxes as images: one crop for each box, or whole images.

    Args:
        bad: bad entries found so far.
        notices: warnings so far.

    Raises:
        PackError: no usable image, or too many bad entries.
        ExtraMissing: crops need Pillow, which is not installed.
    """
    options.validate_box_options()
    if options.whole:
        return SingleClassBoxImages(pictures, origin, bad, notices)
    return BoxCropImages(pictures, origin, options.boxes, bad, notices)


class SingleClassBoxImages(FileImages):
    """Whole images whose bounding boxes are all of one class, which becomes the label."""

    def __init__(
        self,
        pictures: Iterable[BoxedPicture],
        origin: str,
        bad: BadEntryCollector,
        notices: Sequence[str],
    ) -> None:
        """List the files.

        Raises:
            PackError: no image has one class, or too many entries are bad.
        """
        super().__init__(origin, Path())
        several = none = 0
        # Sorted, so that the same data set gives the same bytes wherever it lies.
        for picture in sorted(pictures, key=lambda picture: picture.name):
            labels = {convert_label_to_stripped_nfc(box.label) for box in picture.boxes}
            if len(labels) == 1:
                try:
                    self.add_image_file(picture.path)
                except PackError as error:
                    bad.record_bad_entry(
                        quote_name(picture.name), f"names an image that is not there: {error}"
                    )
                    continue
                self.rows.append(
                    BatchImageEntry(
                        build_sortable_numbered_name(len(self.rows), picture.name),
                        labels.pop(),
                        picture.part,
                    )
                )
            several += len(labels) > 1
            none += not picture.boxes
        self.warnings = [*bad.check_bad_share_and_build_warning(len(self.rows)), *notices]
        if not self.rows:
            raise PackError(
                f"No image of {origin} shows one class alone. Without whole=True its boxes are "
                f"cropped."
            )
        for number, description in ((several, "of several classes"), (none, "without boxes")):
            if number:
                self.warnings.append(
                    f"{format_count_with_noun(number, 'image')} {description} left out."
                )


class BoxCropImages(ImageSource):
    """Images cut out of pictures at their bounding boxes, each with the box's label."""

    def __init__(
        self,
        pictures: Iterable[BoxedPicture],
        origin: str,
        boxes: str,
        bad: BadEntryCollector,
        notices: Sequence[str],
    ) -> None:
        """List boxes and files without reading images. Raises PackError."""
        super().__init__(origin)
        self._pillow = import_optional_module_or_raise("PIL.Image", "Cropping boxes")
        self._counted, self._bad, self._said = boxes, bad, notices
        self._pictures: list[_BoxedPictureWithFileNumber] = []
        self._first: list[int] = []  # for each picture, the row of its first box
        self._seen = ListedFileStates()
        self._guessed = 0
        self._without = self._empty = 0
        for picture in sorted(pictures, key=lambda picture: picture.name):
            boxes_in = [box for box in picture.boxes if _is_box_partly_in_picture(box, picture)]
            self._empty += len(picture.boxes) - len(boxes_in)
            self._without += not boxes_in
            if boxes_in:
                self._add_crops_of_picture(picture._replace(boxes=boxes_in))
        self._check_bad_share_and_set_warnings()

    def _check_bad_share_and_set_warnings(self) -> None:
        """Update the warnings about boxes and pictures left out. Raises PackError if there are too
        many.
        """
        self.warnings = [*self._bad.check_bad_share_and_build_warning(len(self.rows)), *self._said]
        if not self.rows:
            raise PackError(f"{self.origin[:1].upper()}{self.origin[1:]} has no boxes to crop.")
        if self._without:
            self.warnings.append(
                f"{format_count_with_noun(self._without, 'image')} without boxes left out."
            )
        if self._empty:
            self.warnings.append(
                f"{format_count_with_noun(self._empty, 'box', 'boxes')} of no area, or outside the image, "
                f"left out."
            )
        if self._guessed:
            alternative, orientation = (
                (TURNED, "as stored") if self._counted == STORED else (STORED, "as turned")
            )
            self.warnings.append(
                f"{format_count_with_noun(self._guessed, 'image is', 'images are')} turned by EXIF, and "
                f"nothing says of which pixels "
                f"the boxes are: they were taken {orientation}. If the crops are wrong: -o "
                f"boxes={alternative}."
            )

    def _add_crops_of_picture(self, picture: BoxedPicture) -> None:
        try:
            self._seen.record_file_state(picture.path)
        except PackError as error:
            self._bad.record_bad_entry(
                quote_name(picture.name), f"names an image that is not there: {error}"
            )
            return
        self._pictures.append(_BoxedPictureWithFileNumber(picture, len(self._pictures)))
        self._first.append(len(self.rows))
        # Crops of one picture share its name, so that a person finds the picture of a crop.
        stem = picture.name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        for number, box in enumerate(picture.boxes):
            name = build_sortable_numbered_name(len(self.rows), f"{stem}-{number}.png")
            self.rows.append(
                BatchImageEntry(name, convert_label_to_stripped_nfc(box.label), picture.part)
            )

    def collect_image_byte_sizes(self) -> "array[int]":
        """Cut out and encode all boxes once, because only then the sizes of the PNGs are known."""
        sizes, rows, pictures, first = (
            array("q"),
            list[BatchImageEntry](),
            list[_BoxedPictureWithFileNumber](),
            list[int](),
        )
        for (picture, number), at in zip(self._pictures, self._first, strict=True):
            try:
                image = self._read_and_orient_picture(number, picture)
            except _UnusableImage as error:
                self._bad.record_bad_entry(f"The image {quote_name(picture.path)}", str(error))
                continue
            usable = []
            for row, box in enumerate(picture.boxes, start=at):
                area = _convert_box_to_pixels(box, picture, image.annotated_size)
                if area is None:
                    width, height = image.annotated_size
                    self._bad.record_bad_entry(
                        f"A box of {quote_name(picture.path)}",
                        f"lies outside its {width} × {height} pixels",
                    )
                    continue
                usable.append(box)
                rows.append(self.rows[row])
                sizes.append(len(_encode_png(image.cut_upright_crop(area))))
            if usable:
                pictures.append(_BoxedPictureWithFileNumber(picture._replace(boxes=usable), number))
                first.append(len(rows) - len(usable))
            self._guessed += image.is_guessed
        # Replaced together, since positions in one refer to the others.
        self.rows[:], self._pictures, self._first = rows, pictures, first
        self._check_bad_share_and_set_warnings()
        return sizes

    def iterate_image_contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Yield the encoded crops of boxes, decoding each picture once."""
        return ((crop,) for crop in self._iterate_encoded_crops(first))

    def _iterate_encoded_crops(self, first: int) -> Iterator[bytes]:
        for (picture, number), begin in zip(self._pictures, self._first, strict=True):
            skip = max(0, first - begin)
            if skip < len(picture.boxes):
                try:
                    image = self._read_and_orient_picture(number, picture)
                except _UnusableImage as error:
                    raise SourceChanged(
                        f"The image {quote_name(picture.path)} could be read when it was listed, "
                        f"and now it {error}."
                    ) from error
                for box in picture.boxes[skip:]:
                    area = _convert_box_to_pixels(box, picture, image.annotated_size)
                    # Listed boxes have an area: without one, the picture has changed, and
                    # `_iterate_bytes_checking_size` says so.
                    yield _encode_png(image.cut_upright_crop(area)) if area else b""

    def _read_and_orient_picture(self, number: int, picture: BoxedPicture) -> "_PixelsAsAnnotated":
        """Decode a picture to pixels. Raises _UnusableImage or SourceChanged."""
        # Through `_seen`, so that a picture that has changed is noticed.
        data = b"".join(self._seen.read_pieces(number, picture.path))
        try:
            with self._pillow.open(io.BytesIO(data)) as file:
                operation = _TURNS.get(file.getexif().get(_ORIENTATION, 1))
                # A palette or a single colour may be transparent without an alpha channel.
                transparent = "transparency" in file.info
                pixels = file.convert("RGBA" if transparent else _KEPT_MODES.get(file.mode, "RGB"))
        except (OSError, ValueError, SyntaxError, self._pillow.DecompressionBombError) as error:
            raise _UnusableImage(f"cannot be decoded: {error}") from error
        stored, size = pixels.size, picture.size
        turned = stored[::-1] if operation in _SIDEWAYS else stored
        if size not in (None, stored, turned):
            raise _UnusableImage(
                f"has {turned[0]} × {turned[1]} pixels, and its boxes are for "
                f"{' × '.join(map(str, size or ()))}: give the image that was annotated"
            )
        # If the sizes agree both ways (a square, or a half turn), they do not show which was meant.
        is_guessed = operation is not None and (size is None or stored == turned)
        is_turned = self._counted == TURNED if is_guessed else size == turned
        if operation is not None and is_turned:
            pixels, operation = pixels.transpose(self._pillow.Transpose[operation]), None
        return _PixelsAsAnnotated(
            pixels, operation and self._pillow.Transpose[operation], is_guessed
        )


class _UnusableImage(Exception):
    """A picture with boxes cannot be used; the message is the end of a sentence."""


class _BoxedPictureWithFileNumber(NamedTuple):
    """A picture with bounding boxes, and the number of its file."""

    picture: BoxedPicture
    number: int


class _PixelsAsAnnotated(NamedTuple):
    """A picture's pixels in the orientation that its boxes refer to, and how to turn a crop
    upright.

    Attributes:
        is_guessed: True if only an option determines the orientation.
    """

    pixels: Any
    transposition: Any
    is_guessed: bool

    @property
    def annotated_size(self) -> tuple[int, int]:
        """Width and height of the picture in pixels, in the orientation of its boxes."""
        width, height = self.pixels.size
        return width, height

    def cut_upright_crop(self, area: tuple[int, int, int, int]) -> Any:
        """Cut an area out of the picture and turn the crop upright."""
        crop = self.pixels.crop(area)
        return crop if self.transposition is None else crop.transpose(self.transposition)


def _is_box_partly_in_picture(box: LabelledBox, picture: BoxedPicture) -> bool:
    """Return True if part of a bounding box lies in its picture, as far as the size is known."""
    width, height = (1, 1) if picture.shares else picture.size or (math.inf, math.inf)
    numbers = box[1:]
    inside = min(box.right, width) > max(box.left, 0) and min(box.bottom, height) > max(box.top, 0)
    # NaN gets through min and max by chance, so finite numbers are required by themselves.
    return all(map(math.isfinite, numbers)) and inside


def _convert_box_to_pixels(
    box: LabelledBox, picture: BoxedPicture, size: tuple[int, int]
) -> tuple[int, int, int, int] | None:
    """Convert a bounding box to whole pixels within the picture; None if it is empty."""
    width, height = size
    scale = size if picture.shares else (1, 1)
    # Round before floor and ceil, so that floating-point noise adds no pixel.
    left, top = (
        max(0, math.floor(round(v * s, 3))) for v, s in ((box.left, scale[0]), (box.top, scale[1]))
    )
    right = min(width, math.ceil(round(box.right * scale[0], 3)))
    bottom = min(height, math.ceil(round(box.bottom * scale[1], 3)))
    return None if right <= left or bottom <= top else (left, top, right, bottom)


def _encode_png(image: Any) -> bytes:
    image.info.clear()  # drop colour profile, texts and times of the picture
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=_COMPRESS_LEVEL, optimize=False)
    return out.getvalue()
