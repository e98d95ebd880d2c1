"""The chunks of a PNG, counted before anything reads them (PNG specification, third edition, §5.3).

Pillow reads chunk by chunk in Python, and takes microseconds for each however small it is: with chunks of no byte a
file of the size limit would keep it busy for a minute.
"""

from core.errors import ImageInvalid

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 1 << 17
"""Chunks that are walked: 16 million pixels of noise in pieces of 1 kB."""
_FRAME_BYTES = 12
"""Of a chunk beside its data: length, kind and checksum."""


def check_chunks(data: bytes) -> None:
    """Raise ImageInvalid when there are more than MAX_CHUNKS chunks; a file that is cut off is its decoder's
    to refuse."""
    at, count = len(SIGNATURE), 0
    while at < len(data):
        count += 1
        if count > MAX_CHUNKS:
            raise ImageInvalid(f"more than {MAX_CHUNKS} chunks")
        at += int.from_bytes(data[at : at + 4]) + _FRAME_BYTES
