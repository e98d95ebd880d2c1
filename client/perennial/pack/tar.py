"""Headers of a tar whose bytes depend on names and sizes alone: fixed times, owners and modes.

POSIX.1-2017, pax interchange format: a name that is long or not ASCII stands in a pax record before its header.
"""

import tarfile

BLOCK = 512
END = bytes(2 * BLOCK)
_PLAIN_NAME_BYTES, _PLAIN_SIZE = tarfile.LENGTH_NAME, 8**11


def header(name: str, size: int) -> bytes:
    """What stands before the `size` bytes of a file called `name`."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, 0
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def header_bytes(name: str, size: int) -> int:
    """The length of `header(name, size)`, most often without making it."""
    if name.isascii() and len(name) <= _PLAIN_NAME_BYTES and size < _PLAIN_SIZE:
        return BLOCK
    return len(header(name, size))


def padding(size: int) -> int:
    """Zeros between the `size` bytes of a file and the next header."""
    return -size % BLOCK


def is_header(block: bytes) -> bool:
    """Return whether 512 bytes are a header: its checksum says so, and zeros are none."""
    digits = block[148:156].strip(b" \0")
    if len(block) != BLOCK or not digits.isdigit() or b"8" in digits or b"9" in digits:
        return False
    return int(digits, 8) == sum(block[:148]) + 8 * 32 + sum(block[156:])
