"""Messages between the API and its helpers: 4 bytes of length (big endian), then the content.

This is a separate file, so that the API can communicate without loading what a helper needs.
"""

import struct
from typing import IO

_LENGTH = struct.Struct(">I")
_JOINED_BYTES = 4096
"""Maximum size of a message that is written together with its length: a copy of it costs less than
a second system call.
"""


def read_pipe_bytes_exactly(file: IO[bytes], count: int) -> bytes:
    """Read exactly `count` bytes from a pipe.

    Raises:
        EOFError: the other side has closed the connection.
    """
    chunks = []
    while count:
        # In pieces, so that a false length does not reserve 4 GiB before a byte has come.
        chunk = file.read(min(count, 1 << 20))
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def read_framed_message(file: IO[bytes], max_bytes: int | None = None) -> bytes:
    """Read the next length-prefixed message from a pipe.

    Raises:
        EOFError: there are no more messages, or the message has more than `max_bytes` bytes.
    """
    (length,) = _LENGTH.unpack(read_pipe_bytes_exactly(file, _LENGTH.size))
    if max_bytes is not None and length > max_bytes:
        raise EOFError("the other side does not keep to the protocol")
    return read_pipe_bytes_exactly(file, length)


def write_framed_message(file: IO[bytes], message: bytes) -> None:
    """Write one length-prefixed message to a pipe and flush it."""
    length = _LENGTH.pack(len(message))
    if len(message) <= _JOINED_BYTES:
        file.write(length + message)
    else:
        file.write(length)
        file.write(message)
    file.flush()
