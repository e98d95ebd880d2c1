"""The first frame of a GIF, cut out before anything decodes it.

Pillow walks a GIF block by block in Python, and would look for a second frame: with blocks of one byte a file of
the size limit would keep it busy for minutes. Here the walk is bounded, and what follows the first frame is left
away (GIF89a specification, 1990: blocks, sub-blocks, trailer).
"""

from .unreadable import Unreadable

MAX_BLOCKS = 1 << 19
"""Sub-blocks that are walked: 50 million pixels of noise take 300,000 of them."""
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_SCREEN_BYTES, _IMAGE_BYTES = 13, 10


def is_gif(data: bytes) -> bool:
    """Return whether the first bytes are those of a GIF."""
    return data.startswith((b"GIF87a", b"GIF89a"))


def first_frame(data: bytes, max_pixels: int) -> tuple[bytes, bool]:
    """The file up to the end of its first frame, and whether more frames follow.

    A file that is cut off or has no frame comes back as it is: its decoder says so. Raises Unreadable when the
    screen or the frame has more than `max_pixels`, or there are more than MAX_BLOCKS blocks.
    """
    walk = _Walk(data)
    try:
        at = walk.next_frame(_SCREEN_BYTES + _colours(data[10]))
        if at is None:
            return data, False
        x, y, width, height = (int.from_bytes(data[i : i + 2], "little") for i in range(at + 1, at + 9, 2))
        # The decoder makes the screen as large as the frame needs.
        width = max(x + width, int.from_bytes(data[6:8], "little"))
        height = max(y + height, int.from_bytes(data[8:10], "little"))
        if width * height > max_pixels:
            raise Unreadable(f"{width}×{height} pixels, more than {max_pixels}")
        # Behind the descriptor: colours of its own, the width of the first code, and the pixels.
        end = walk.after(at + _IMAGE_BYTES + _colours(data[at + 9]) + 1)
        return data[:end] + bytes([_TRAILER]), walk.next_frame(end) is not None
    except IndexError:
        return data, False


class _Walk:
    """Steps over the blocks of a GIF; IndexError at its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._blocks = 0

    def next_frame(self, at: int) -> int | None:
        """Return the position of the next frame's descriptor, or None when the file ends without one."""
        while at < len(self._data) and (kind := self._data[at]) != _TRAILER:
            if kind == _IMAGE:
                return at
            self._count()
            at = self.after(at + 2) if kind == _EXTENSION else at + 1
        return None

    def after(self, at: int) -> int:
        """Return the position after the sub-blocks that begin at `at`."""
        while length := self._data[at]:
            self._count()
            at += 1 + length
        return at + 1

    def _count(self) -> None:
        self._blocks += 1
        if self._blocks > MAX_BLOCKS:
            raise Unreadable(f"more than {MAX_BLOCKS} blocks")


def _colours(flags: int) -> int:
    """Bytes of the table of colours that these flags announce."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0
