"""The tags of the first page of a TIFF or BigTIFF."""

import struct
from enum import IntEnum

from .unreadable import CUT, Unreadable

_MAX_VALUES = 1 << 20
"""Most values of a tag, such as the places of strips: tiles of 16 × 16 pixels in four planes of 50 megapixels."""
_MAX_ENTRIES = 1 << 12
"""Most tags of a page; honest ones have some dozens."""
_SIZES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
_CODES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 13: "I", 16: "Q", 18: "Q"}


class Tag(IntEnum):
    """Tags that are read."""

    WIDTH = 256
    HEIGHT = 257
    BITS = 258
    PACKING = 259
    PHOTOMETRIC = 262
    FILL_ORDER = 266
    OFFSETS = 273
    ORIENTATION = 274
    SAMPLES = 277
    ROWS = 278
    COUNTS = 279
    PLANAR = 284
    PREDICTOR = 317
    COLOURS = 320
    TILE_WIDTH = 322
    TILE_HEIGHT = 323
    TILE_OFFSETS = 324
    TILE_COUNTS = 325
    SUB_PAGES = 330
    INKS = 332
    EXTRA = 338
    FORMAT = 339
    YCBCR_SUBSAMPLING = 530
    CFA_PATTERN = 33422
    PROFILE = 34675
    DNG = 50706

_OF_SENSORS = (32803, 34892)


class Directory:
    """The tags of the first page."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.order = "<" if data[:2] == b"II" else ">"
        self._big = self._unpack("H", 2) == 43
        try:
            at = self._unpack("Q", 8) if self._big else self._unpack("I", 4)
            self._tags, following = self._read(at)
        except struct.error as error:
            raise Unreadable(CUT) from error
        self.has_more = following not in (0, at)

    @property
    def is_raw(self) -> bool:
        """True where the file holds what the sensor of a camera saw."""
        if Tag.DNG in self._tags or Tag.CFA_PATTERN in self._tags or self._data[8:10] == b"CR":
            return True
        if self.first_number(Tag.PHOTOMETRIC, 1) in _OF_SENSORS:
            return True
        for at in self.numbers(Tag.SUB_PAGES)[:16]:
            try:
                tags, _ = self._read(at)
            except struct.error:
                continue
            kind, count, where = tags.get(Tag.PHOTOMETRIC, (3, 0, 0))
            if count == 1 and kind == 3 and self._unpack("H", where) in _OF_SENSORS:
                return True
        return False

    def numbers(self, tag: int) -> list[int]:
        """Return the whole numbers of a tag; none where it is missing or of another type."""
        kind, count, at = self._tags.get(tag, (0, 0, 0))
        code = _CODES.get(kind)
        if code is None or not count:
            return []
        if count > _MAX_VALUES or at + count * _SIZES[kind] > len(self._data):
            raise Unreadable(CUT)
        return list(struct.unpack_from(f"{self.order}{count}{code}", self._data, at))

    def first_number(self, tag: int, default: int) -> int:
        """Return the first number of a tag, or the default."""
        found = self.numbers(tag)
        return found[0] if found else default

    def bytes(self, tag: int) -> bytes | None:
        """Return the bytes of a tag; None where it is missing or cut off."""
        kind, count, at = self._tags.get(tag, (0, 0, 0))
        found = self._data[at : at + count]
        return found if count and kind in (1, 7) and len(found) == count else None

    def _read(self, at: int) -> tuple[dict[int, tuple[int, int, int]], int]:
        """Read a page's tags: tag → type, number of values and their position; and the next page's."""
        head, step, value = ("Q", 20, 8) if self._big else ("H", 12, 4)
        count = self._unpack(head, at)
        if count > _MAX_ENTRIES:
            raise Unreadable(f"a TIFF of more than {_MAX_ENTRIES} tags")
        at += struct.calcsize(head)
        tags: dict[int, tuple[int, int, int]] = {}
        for _ in range(count):
            tag, kind = self._unpack("H", at), self._unpack("H", at + 2)
            number = self._unpack("Q" if self._big else "I", at + 4)
            here = at + step - value
            inside = number * _SIZES.get(kind, 1) <= value
            tags.setdefault(
                tag, (kind, number, here if inside else self._unpack("Q" if self._big else "I", here))
            )
            at += step
        try:
            following = self._unpack("Q" if self._big else "I", at)
        except struct.error:
            following = 0
        return tags, following

    def _unpack(self, code: str, at: int) -> int:
        return int(struct.unpack_from(self.order + code, self._data, at)[0])

