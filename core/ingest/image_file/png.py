"""The chunks of a PNG, walked before anything decodes them (PNG specification, third edition, §5.3).

Pillow reads chunk by chunk in Python, and takes microseconds for each however small it is: with chunks of no byte a
file of the size limit would keep it busy for a minute. It also refuses texts and profiles of more than 1 MB, which
say nothing of the pixels: here they are left out.
"""

import zlib

from .unreadable import Unreadable

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 1 << 17
"""Chunks that are walked: 16 million pixels of noise in pieces of 1 kB."""
MAX_TEXT_BYTES = 1 << 20
"""Most bytes, unpacked, of a profile or a text that may say how the image is turned, unpacked: the bound of Pillow."""
MAX_TURNS = 8
"""Texts that may say how the image is turned, and profiles; an honest file has one of each."""
_FRAME_BYTES = 12
"""Bytes of a chunk beside its data: length, kind and checksum."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_PROFILE = b"iCCP"
_TURNS = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")
"""Beginnings of texts that may say how the image is turned; no other text says anything about its pixels."""


def without_texts(data: bytes) -> bytes:
    """Return the file without texts that say nothing of its pixels, and without profiles that are too long to read.

    Raises Unreadable: there are more than MAX_CHUNKS chunks. A file that is cut off is its decoder's to refuse.
    """
    at, count, turns, profiles = len(SIGNATURE), 0, 0, 0
    kept, begin = [], 0
    while at < len(data):
        count += 1
        if count > MAX_CHUNKS:
            raise Unreadable(f"more than {MAX_CHUNKS} chunks")
        end = at + int.from_bytes(data[at : at + 4]) + _FRAME_BYTES
        kind = data[at + 4 : at + 8]
        if end <= len(data) and (kind == _PROFILE or kind in _TEXTS):
            text = data[at + 8 : end - 4]
            turns += kind in _TEXTS and text.startswith(_TURNS)
            profiles += kind == _PROFILE
            is_needed = (
                profiles <= MAX_TURNS if kind == _PROFILE else text.startswith(_TURNS) and turns <= MAX_TURNS
            )
            if not is_needed or _size(kind, text) > MAX_TEXT_BYTES:
                kept.append(data[begin:at])
                begin = end
        at = end
    return b"".join((*kept, data[begin:])) if begin else data


def _size(kind: bytes, text: bytes) -> int:
    """Bytes of a text or profile when it is unpacked; what cannot be unpacked is as long as it is stored."""
    if len(text) > MAX_TEXT_BYTES or kind == b"tEXt":
        return len(text)
    rest = text.partition(b"\0")[2]
    if kind == b"iTXt":
        if rest[:1] != b"\1":
            return len(text)
        packed = rest[2:].partition(b"\0")[2].partition(b"\0")[2]
    else:
        packed = rest[1:]
    unpacker = zlib.decompressobj()
    try:
        return len(unpacker.decompress(packed, MAX_TEXT_BYTES + 1))
    except zlib.error:
        return len(text)
