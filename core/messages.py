"""How the API and its helper processes talk: messages of a length (4 bytes, big endian) and that many bytes.

A file of its own, so that the API can speak without loading what a helper needs.
"""

import struct
from typing import IO

_LENGTH = struct.Struct(">I")


def read_exactly(file: IO[bytes], count: int) -> bytes:
    """`count` bytes. Raises EOFError when the other side is gone."""
    chunks = []
    while count:
        chunk = file.read(min(count, 1 << 20))
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def read_message(file: IO[bytes], most: int | None = None) -> bytes:
    """The next message. Raises EOFError at the end, and where the message has more than `most` bytes."""
    (length,) = _LENGTH.unpack(read_exactly(file, _LENGTH.size))
    if most is not None and length > most:
        raise EOFError("the other side does not keep to the protocol")
    return read_exactly(file, length)


def write_message(file: IO[bytes], message: bytes) -> None:
    """Write one message and flush."""
    file.write(_LENGTH.pack(len(message)))
    file.write(message)
    file.flush()
