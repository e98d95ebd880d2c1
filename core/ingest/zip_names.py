"""Names in a zip, which usually do not state their encoding.

A name is UTF-8 if its flag or the field 0x7075 says so (APPNOTE 6.3.10, 4.4.4 and 4.6.9). All
others are UTF-8 if all of them are valid. Otherwise they are decoded by the code page, of a few, in
which they look most like names. The report says which was used, and the sender can name another
one.
"""

import struct
import unicodedata
import zlib
from collections.abc import Callable, Iterable
from itertools import islice

from core.errors import ArchiveHostile, ArchiveInvalid
from core.ingest.names import quote_name

# Info-ZIP's extra field with the name in UTF-8.
UNICODE_PATH = 0x7075
ENCODINGS = (
    "utf-8", "gbk", "gb18030", "big5", "cp932", "shift_jis", "euc_jp", "cp949", "euc_kr", "cp437", "cp850", "cp852",
    "cp862", "cp864", "cp866", "cp874", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257",
    "cp1258", "koi8_r", "koi8_u", "latin_1", "iso8859_2", "iso8859_15", "mac_roman",
)  # fmt: skip
"""Encodings that a sender may name."""
_OTHER_NAMES = {
    "sjis": "shift_jis",
    "gb2312": "gbk",
    "cp936": "gbk",
    "latin1": "latin_1",
    "utf8": "utf-8",
}
_GUESSED = ("cp437", "gbk", "cp932", "cp1252")
"""Encodings that are tried for names that are not UTF-8; the first of equally likely ones wins."""
_CALLED = {
    "cp437": "CP437 (DOS)",
    "gbk": "GBK",
    "cp932": "Shift-JIS",
    "cp1252": "CP1252 (Windows)",
    "utf-8": "UTF-8",
}
_SAMPLED = 2000
"""Number of names from which an encoding is chosen."""
_MARKS = "‘’“”–—…"


class ZipNameDecoder:
    """Decoder of a zip's entry names, with an assumed encoding where none is stated.

    `encoding` is the sender's choice for names that do not state theirs; "" chooses by the names.
    """

    def __init__(self, encoding: str = "") -> None:
        """Initialise the decoder. Raises ArchiveInvalid for an unknown encoding."""
        self._chosen = resolve_python_encoding_name(encoding) if encoding else ""
        self._guessed = ""
        self._read = 0

    def decode_entry_name(
        self, raw: bytes, is_utf8: bool, extra: bytes, all_raw: Callable[[], Iterable[bytes]]
    ) -> str:
        """Decode the bytes of a zip entry's name, by its stated or an assumed encoding.

        Args:
            raw: bytes of the name.
            is_utf8: whether its flag says UTF-8.
            extra: its extra field.
            all_raw: returns the names of the zip that do not state their encoding; called at most
                once, when needed.

        Raises:
            ArchiveHostile: the name is not the UTF-8 that it claims to be.
            ArchiveInvalid: the name is not in the encoding that the sender has named.
        """
        if raw.isascii():
            return raw.decode("ascii")
        utf8_name = raw if is_utf8 else read_unicode_path_of_zip_entry(extra, raw)
        if utf8_name is not None:
            return _decode_utf8(utf8_name, raw)
        self._read += 1
        if self._chosen:
            return _decode_name_in_sender_chosen_encoding(raw, self._chosen)
        if not self._guessed:
            self._guessed = choose_likely_zip_name_encoding(islice(all_raw(), _SAMPLED))
        # A sample chose the encoding, so that a later name may not fit it.
        for encoding in (self._guessed, "utf-8"):
            try:
                return raw.decode(encoding)
            except UnicodeDecodeError:
                continue
        # All bytes are valid in CP437, the zip's own default.
        return raw.decode("cp437")

    def build_encoding_note(self) -> str:
        """Return a note about the assumed encoding of a zip's names; "" if all state theirs or are
        UTF-8.
        """
        encoding = self._chosen or self._guessed
        if not self._read or encoding in ("", "utf-8"):
            return ""
        names = (
            "name says no encoding and was" if self._read == 1 else "names say no encoding and were"
        )
        reason = (
            "as the sender said"
            if self._chosen
            else "by their letters; names=… names another encoding"
        )
        return f"{self._read} {names} read as {_CALLED.get(encoding, encoding)}, {reason}"


def resolve_python_encoding_name(encoding: str) -> str:
    """Return Python's name of a character encoding. Raises ArchiveInvalid for an unsupported one."""
    name = encoding.strip().lower().replace(" ", "_")
    for candidate in (_OTHER_NAMES.get(name, name), name.replace("-", "_"), name.replace("_", "-")):
        if candidate in ENCODINGS:
            return candidate
    raise ArchiveInvalid(
        f"{quote_name(encoding)} is no encoding of names; possible are {', '.join(ENCODINGS)}."
    )


def read_unicode_path_of_zip_entry(extra: bytes, raw: bytes) -> bytes | None:
    """Return a zip entry's UTF-8 name from the extra field 0x7075; None if it is missing or not for
    `raw`.
    """
    at = 0
    while at + 4 <= len(extra):
        kind, count = struct.unpack_from("<HH", extra, at)
        body = extra[at + 4 : at + 4 + count]
        if kind == UNICODE_PATH and len(body) > 5:
            # A program that renames an entry may leave the field of the old name behind.
            version, crc = struct.unpack_from("<BL", body)
            return body[5:] if version == 1 and crc == zlib.crc32(raw) else None
        at += 4 + count
    return None


def choose_likely_zip_name_encoding(raw_names: Iterable[bytes]) -> str:
    """Return the encoding in which a zip's file names look most natural: UTF-8 if all are valid
    UTF-8.
    """
    names = list(dict.fromkeys(raw_names))
    if all(_is_valid_in_encoding(raw, "utf-8") for raw in names):
        return "utf-8"
    candidates = [
        (_rate_name_encoding(names, encoding), -at, encoding)
        for at, encoding in enumerate(_GUESSED)
    ]
    return max(candidates)[2]


def _rate_name_encoding(names: list[bytes], encoding: str) -> float:
    """Rate how natural decoded file names look by their non-ASCII characters, 0 to 1."""
    total = characters = 0.0
    for raw in names:
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            # An encoding that cannot decode a name loses for each of its bytes.
            characters += len(raw)
            continue
        for at, character in enumerate(text):
            if not character.isascii():
                total += _rate_name_character_likelihood(text, at, encoding)
                characters += 1
    return total / characters if characters else 0.0


def _rate_name_character_likelihood(text: str, at: int, encoding: str) -> float:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if encoding not in ("gbk", "cp932"):
        return _rate_western_letter_in_name(text[at], before, after)
    is_beside_letter = any(
        neighbour.isascii() and neighbour.isalpha() for neighbour in (before, after) if neighbour
    )
    return _rate_east_asian_character(text[at], encoding) * (0.6 if is_beside_letter else 1.0)


def _rate_western_letter_in_name(character: str, before: str, after: str) -> float:
    """Rate how likely a Western character is at its place in a file name, 0 to 1.

    A letter is expected among others, one at a time, and no capital after a small letter.
    """
    if not character.isalpha():
        return 0.6 if character in _MARKS else 0.0
    if not unicodedata.name(character, "").startswith("LATIN "):
        return 0.1
    if (before.islower() and character.isupper()) or (character.islower() and after.isupper()):
        return 0.2
    neighbours = [neighbour for neighbour in (before, after) if neighbour.isalpha()]
    if any(not neighbour.isascii() for neighbour in neighbours):
        return 0.5
    return 1.0 if neighbours else 0.4


def _rate_east_asian_character(character: str, encoding: str) -> float:
    """Rate how likely an East Asian character is in a file name, 0 to 1.

    Kana and characters of the first level are usual; those of other levels are rare.
    """
    code = character.encode(encoding)
    if len(code) == 1:
        return 0.3  # half-width kana
    if encoding == "gbk":
        if code[1] < 0xA1 or code[0] < 0xB0:
            return 0.2
        return 1.0 if code[0] <= 0xD7 else 0.6
    pair = int.from_bytes(code, "big")
    if 0x829F <= pair <= 0x82F1 or 0x8340 <= pair <= 0x8396 or pair == 0x815B:
        return 1.0
    return 0.9 if 0x889F <= pair <= 0x9872 else 0.4 if 0x989F <= pair <= 0xEAA4 else 0.1


def _is_valid_in_encoding(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _decode_utf8(utf8_name: bytes, raw: bytes) -> str:
    try:
        return utf8_name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArchiveHostile(
            f"The name {quote_name(raw)} is not the UTF-8 that it claims to be."
        ) from error


def _decode_name_in_sender_chosen_encoding(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ArchiveInvalid(
            f"The name {quote_name(raw)} is not in {encoding}, which names={encoding} says. Leave it "
            f"out, or name another: {', '.join(ENCODINGS)}."
        ) from error
