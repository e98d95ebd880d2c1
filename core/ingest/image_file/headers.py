"""Check by an image file's first bytes and directory whether it can be read; nothing is decoded here."""

from . import jpeg, kinds, tiff
from .unreadable import Unreadable

JPEG_TIMES = 4
"""A JPEG may have so many times as many pixels as others: it is decoded at a reduced size."""
_MAX_BOXES_BYTES = 1 << 20


def check(data: bytes, max_pixels: int, *, is_whole: bool = True) -> None:
    """Raise Unreadable where a file is of a kind that is not read, or has too many pixels.

    is_whole: whether `data` is all of the file; of its first 4 KB the kind shows, and of most kinds the size.
    """
    kind = kinds.kind_of(data)
    if kind == kinds.TIFF:
        tiff.check(data, max_pixels, is_whole=is_whole)
        return
    size: tuple[int, int] | None = None
    if kind == kinds.JPEG:
        if is_whole:
            jpeg.check(data)
        frame = jpeg.frame_of(data)
        max_pixels *= JPEG_TIMES
        size = None if frame is None else (frame.width, frame.height)
    elif kind == kinds.PNG and data[12:16] == b"IHDR":
        size = _big(data, 16, 4)
    elif kind == kinds.GIF:
        size = _little(data, 6, 2)
    elif kind == kinds.BMP:
        size = _little(data, 18, 4) if data[14:18] != b"\x0c\0\0\0" else _little(data, 18, 2)
    elif kind == kinds.WEBP:
        size = _webp(data)
    elif kind in (kinds.HEIC, kinds.AVIF):
        size = _boxed(data[:_MAX_BOXES_BYTES])
    if size is not None and size[0] * size[1] > max_pixels:
        raise Unreadable(f"{size[0]}×{size[1]} pixels, more than {max_pixels}")


def _big(data: bytes, at: int, count: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + count]), int.from_bytes(data[at + count : at + 2 * count])


def _little(data: bytes, at: int, count: int) -> tuple[int, int]:
    width = int.from_bytes(data[at : at + count], "little", signed=count == 4)
    height = int.from_bytes(data[at + count : at + 2 * count], "little", signed=count == 4)
    return abs(width), abs(height)


def _webp(data: bytes) -> tuple[int, int] | None:
    """By its extended header; other files have at most 16,383 pixels a side, which their own header bounds."""
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8 ":
        width, height = _little(data, 26, 2)
        return width & 0x3FFF, height & 0x3FFF
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


def _boxed(data: bytes) -> tuple[int, int] | None:
    """The largest of the sizes that are named: of an image that is put together of tiles, its own."""
    sizes, at = [], 0
    while (at := data.find(b"ispe", at)) >= 0:
        sizes.append(_big(data, at + 8, 4))
        at += 4
    return max(sizes, key=lambda size: size[0] * size[1], default=None)
