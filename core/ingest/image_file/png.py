"""The chunks of a PNG, walked before it is decoded (PNG specification, third edition, §5.3).

Pillow reads chunks one by one in Python, and takes microseconds for each, however small. With empty
chunks, a file of the size limit would keep it busy for a minute. It also rejects texts and profiles
of more than 1 MB, which do not affect the pixels; they are removed here.
"""

import zlib

from .unreadable import Unreadable

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 1 << 17
"""Most chunks that are walked: 16 million pixels of noise in pieces of 1 kB."""
MAX_TEXT_BYTES = 1 << 20
"""Largest unpacked profile, or text that may have the orientation, in bytes: Pillow's own limit."""
MAX_TURNS = 8
"""Most texts that may have the orientation, and most profiles; an honest file has one of each."""
_FRAME_BYTES = 12
"""Bytes of a chunk beside its data: length, kind and checksum."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_PROFILE = b"iCCP"
_TURNS = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")
"""Prefixes of texts that may have the orientation. No other text affects the pixels."""


def without_texts(data: bytes) -> bytes:
    """Return the file without texts that do not affect its pixels and without oversized profiles.

    Raises Unreadable if there are more than MAX_CHUNKS chunks. Truncated files are left to the
    decoder.
    """
    at, count, turns, profiles = len(SIGNATURE), 0, 0, 0
    pieces, begin = [], 0
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
                pieces.append(data[begin:at])
                begin = end
        at = end
    return b"".join((*pieces, data[begin:])) if begin else data


def _size(kind: bytes, text: bytes) -> int:
    """Return the unpacked bytes of a text or profile; the stored ones if it cannot be unpacked."""
    if len(text) > MAX_TEXT_BYTES or kind == b"tEXt":
        return len(text)
    content = text.partition(b"\0")[2]
    if kind == b"iTXt":
        if content[:1] != b"\1":
            return len(text)
        packed = content[2:].partition(b"\0")[2].partition(b"\0")[2]
    else:
        packed = content[1:]
    unpacker = zlib.decompressobj()
    try:
        return len(unpacker.decompress(packed, MAX_TEXT_BYTES + 1))
    except zlib.error:
        return len(text)
