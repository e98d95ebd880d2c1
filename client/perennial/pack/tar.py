"""Tar headers that depend only on names and sizes: fixed times, owners and modes.

POSIX.1-2017, pax interchange format: a long or non-ASCII name is in a pax record before its header.
"""

import tarfile

BLOCK = 512
END = bytes(2 * BLOCK)
# Beyond 100 bytes of a name or eleven octal digits of a size, a pax record is needed.
_PLAIN_NAME_BYTES, _PLAIN_SIZE = tarfile.LENGTH_NAME, 8**11


def build_tar_header(name: str, size: int) -> bytes:
    """Build the tar header of a file called `name` with `size` bytes."""
    info = tarfile.TarInfo(name)
    # Fixed, so that the bytes depend on names and sizes alone.
    info.size, info.mode, info.mtime = size, 0o644, 0
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def compute_tar_header_length(name: str, size: int) -> int:
    """Return the length of the tar header that `build_tar_header(name, size)` builds."""
    # Most headers have this length, and building each one only to measure it takes time.
    if name.isascii() and len(name) <= _PLAIN_NAME_BYTES and size < _PLAIN_SIZE:
        return BLOCK
    return len(build_tar_header(name, size))


def compute_tar_padding_length(size: int) -> int:
    """Return the number of zero bytes that pad a file of `size` bytes in a tar."""
    return -size % BLOCK


def is_tar_header(block: bytes) -> bool:
    """Return True if 512 bytes are a tar header with a valid checksum; zeros are not."""
    digits = block[148:156].strip(b" \0")
    if len(block) != BLOCK or not digits.isdigit() or b"8" in digits or b"9" in digits:
        return False
    return int(digits, 8) == sum(block[:148]) + 8 * 32 + sum(block[156:])
