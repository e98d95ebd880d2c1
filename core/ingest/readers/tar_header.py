"""Headers of tar entries: names, sizes, checksums and pax records."""

from core.errors import ArchiveHostile, ArchiveInvalid
from core.ingest.limits import MAX_NAME_BYTES
from core.ingest.names import quote_name

BLOCK = 512


def is_tar_header(block: bytes) -> bool:
    """Return True if 512 bytes are a tar header with a valid checksum; all-zero blocks are not."""
    digits = block[148:156].strip(b" \0")
    if not digits or not digits.isdigit():
        return False
    # isdigit accepts 8 and 9, which no octal number has.
    try:
        stored = int(digits, 8)
    except ValueError:
        return False
    # The checksum's own field counts as eight blanks (POSIX.1-2017, ustar).
    return stored == sum(block[:148]) + 8 * 32 + sum(block[156:512])


def read_tar_entry_name(block: bytes) -> str:
    """Return the name of the tar entry that a header block describes."""
    name = block[:100].split(b"\0", 1)[0]
    # GNU's own format has other fields in the place of the prefix.
    prefix = block[345:500].split(b"\0", 1)[0] if block[257:263] == b"ustar\0" else b""
    return decode_entry_name(prefix + b"/" + name if prefix else name)


def decode_entry_name(raw: bytes) -> str:
    """Decode the bytes of a tar entry's name. Raises ArchiveHostile for a name that is too long."""
    if len(raw) > MAX_NAME_BYTES:
        raise ArchiveHostile(
            f"The name of the entry {quote_name(raw)} is longer than {MAX_NAME_BYTES} bytes."
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # Old tars have names in any encoding, and Latin-1 decodes all bytes.
        return raw.decode("latin-1")


def parse_tar_size_field(raw: bytes) -> int:
    """Parse a tar header's size: octal digits, or GNU's base 256 if the first bit is set."""
    if raw[0] & 0x80:
        if raw[0] != 0x80:
            raise ArchiveHostile("An entry of the tar declares a negative or absurd size.")
        value = int.from_bytes(raw[1:], "big")
    else:
        digits = raw.strip(b" \0")
        if digits and not (digits.isdigit() and b"8" not in digits and b"9" not in digits):
            raise ArchiveInvalid("An entry of the tar declares a size that is not a number.")
        value = int(digits or b"0", 8)
    if value >= 1 << 62:
        raise ArchiveHostile("An entry of the tar declares an absurd size.")
    return value


def parse_pax_size(text: str, name: str) -> int:
    """Parse the size in a tar's pax header of the entry `name`."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ArchiveHostile(f"The entry {quote_name(name)} declares an absurd size.")
    return int(text)


def parse_pax_header(body: bytes) -> dict[str, str]:
    """Parse a tar entry's pax extended header to a dictionary.

    Its records are `LENGTH KEY=VALUE\\n`.

    Only keys that are used or rejected here are included.
    """
    records: dict[str, str] = {}
    at = 0
    while at < len(body) and body[at] != 0:
        # The header is limited to 64 KiB, so a length has few digits.
        blank = body.find(b" ", at, at + 8)
        digits = body[at:blank] if blank > 0 else b""
        # A record's length counts its own digits, so a smaller one would not move on.
        if not digits.isdigit() or not blank - at < int(digits) <= len(body) - at:
            raise ArchiveInvalid("A pax header of the tar is damaged.")
        record = body[blank + 1 : at + int(digits)]
        key, equals, value = record.removesuffix(b"\n").partition(b"=")
        if not equals:
            raise ArchiveInvalid("A pax header of the tar is damaged.")
        if key in (b"path", b"size", b"linkpath") or key.startswith(b"GNU.sparse"):
            records[key.decode("ascii", "replace")] = decode_entry_name(value)
        at += int(digits)
    return records
