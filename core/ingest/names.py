"""Names chosen by strangers: paths of entries and labels of classes.

A path is only metadata and never opened. It is still checked, because it names a class, is shown in
reports, and reveals an attack if it leaves its folder.
"""

import re
import unicodedata

from core.errors import ArchiveHostile, LabelsInvalid
from core.ingest.limits import MAX_DEPTH, MAX_LABEL_CHARS, MAX_NAME_BYTES
from perennial.characters import find_invalid_name_character
from perennial.reading_rules.names import (
    ARCHIVE_SUFFIXES,
    MAC_ICON,
    SHOWN_ICON,
    is_clearly_no_image,
    quote_name,
)

__all__ = [
    "ARCHIVE_MAGIC",
    "MAGIC_BYTES",
    "check_and_normalise_class_label",
    "check_and_normalise_entry_path",
    "quote_name",
    "refuse_nested_archive",
]

_DRIVE = re.compile(r"^[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Forbidden characters of paths, including those that change the direction of text.

Such a name reads as another one and deceives its readers. Merely invisible characters are allowed
here, since cameras and browsers write them into file names; labels are stricter.
"""
ARCHIVE_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07",
                 b"\xfd7zXZ\x00", b"BZh", b"\x28\xb5\x2f\xfd")  # fmt: skip
MAGIC_BYTES = 8


def check_and_normalise_entry_path(raw: str) -> str:
    """Check the path of an archive entry, and return it in NFC without `.` and empty parts.

    Raises ArchiveHostile for absolute paths, drives, `..`, backslashes, control characters, and
    paths that are too long or too deep. A trailing slash (a folder) is dropped. The name of a macOS
    folder's icon, which ends with a carriage return, is made printable.
    """
    if raw.endswith(MAC_ICON):
        raw = raw.removesuffix(MAC_ICON) + SHOWN_ICON
    if _CONTROL.search(raw):
        raise ArchiveHostile(f"The entry {quote_name(raw)} has a control character in its name.")
    if "\\" in raw:
        raise ArchiveHostile(
            f"The entry {quote_name(raw)} has a backslash in its name; use forward slashes."
        )
    if raw.startswith("/") or _DRIVE.match(raw):
        raise ArchiveHostile(f"The entry {quote_name(raw)} has an absolute path.")
    if not raw.isascii():
        # macOS writes decomposed letters; a table or another archive has composed ones.
        raw = unicodedata.normalize("NFC", raw)
    # After NFC, which changes the number of bytes.
    if len(raw.encode()) > MAX_NAME_BYTES:
        raise ArchiveHostile(
            f"The name of the entry {quote_name(raw)} is longer than {MAX_NAME_BYTES} bytes."
        )
    # Shortcut: of half a million paths, nearly all are plain already.
    if "//" not in raw and "./" not in raw and "/." not in raw and raw[-1:] not in "/." and raw:
        if raw.count("/") >= MAX_DEPTH:
            raise ArchiveHostile(
                f"The entry {quote_name(raw)} lies deeper than {MAX_DEPTH} folders."
            )
        return raw
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ArchiveHostile(f"The entry {quote_name(raw)} climbs out of the archive with “..”.")
    if len(parts) > MAX_DEPTH:
        raise ArchiveHostile(f"The entry {quote_name(raw)} lies deeper than {MAX_DEPTH} folders.")
    return "/".join(parts)


def refuse_nested_archive(name: str, first_bytes: bytes) -> None:
    """Raise ArchiveHostile if an entry is itself an archive, by its name or its first bytes.

    Documents are zips, too (`README.docx`, `labels.xlsx`). An entry whose name is clearly not an
    image's is left out later.
    """
    if name.lower().endswith(ARCHIVE_SUFFIXES) or (
        first_bytes.startswith(ARCHIVE_MAGIC) and not is_clearly_no_image(name)
    ):
        raise ArchiveHostile(f"The entry {quote_name(name)} is itself an archive; unpack it first.")


def check_and_normalise_class_label(text: str, where: str) -> str:
    """Return a class label in Unicode NFC, without surrounding blanks; its case is kept.

    `where` names the place in a message. Raises LabelsInvalid if the label is empty, longer than
    100 characters, or has a character that names must not have (`perennial.characters`).
    """
    # An accented letter has two encodings, which must not become two classes.
    label = unicodedata.normalize("NFC", text).strip()
    if not label:
        raise LabelsInvalid(f"The label of {where} is empty.")
    if len(label) > MAX_LABEL_CHARS:
        raise LabelsInvalid(
            f"The label {quote_name(label)} of {where} is longer than {MAX_LABEL_CHARS} characters."
        )
    wrong = find_invalid_name_character(label)
    if wrong is not None:
        raise LabelsInvalid(
            f"The label {quote_name(label)} of {where} has {wrong}, which cannot be seen or changes how "
            "the rest is read: rename it without."
        )
    return label
