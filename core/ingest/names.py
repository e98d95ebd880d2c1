"""Names that strangers chose: paths of entries and labels of classes.

A path is metadata only: it is never opened. It is checked all the same, because it names a class, is
shown in reports, and a path that climbs out of its folder shows what the sender is after.
"""

import re
import unicodedata

from core import characters
from core.errors import ArchiveHostile, LabelsInvalid
from core.ingest.limits import MAX_DEPTH, MAX_LABEL_CHARS, MAX_NAME_BYTES

_SHOWN_CHARS = 120
_DRIVE = re.compile(r"^[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Of paths. Also what turns the direction of text around: a name that reads as another one deceives whoever sees it.

What is merely invisible stays allowed here, since cameras and browsers write it into file names; labels are stricter.
"""
_JUNK = frozenset({"__MACOSX", "Thumbs.db", "desktop.ini"})
_IMAGE_SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif",
)  # fmt: skip
_OTHER_SUFFIXES = (
    ".txt", ".md", ".rst", ".log", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml", ".ini", ".cfg",
    ".html", ".htm", ".css", ".js", ".py", ".ipynb", ".sh", ".bat", ".url", ".pdf", ".rtf", ".doc", ".docx", ".xls",
    ".xlsx", ".ppt", ".pptx", ".odt", ".db", ".sqlite", ".mp3", ".wav", ".mp4", ".mov", ".avi", ".mkv", ".aae", ".xmp",
)  # fmt: skip
"""What lies beside pictures and is none: notes, lists, films, and what cameras and tools write of their own."""
ARCHIVE_SUFFIXES = (
    ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar", ".npz", ".jar", ".cab",
    ".iso",
)  # fmt: skip
ARCHIVE_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07",
                 b"\xfd7zXZ\x00", b"BZh", b"\x28\xb5\x2f\xfd")  # fmt: skip
MAGIC_BYTES = 8


def show(name: str | bytes) -> str:
    """`name` quoted for a message: escapes for everything unprintable, at most ~120 characters."""
    if isinstance(name, bytes):
        name = name[: 4 * _SHOWN_CHARS].decode("utf-8" if _is_utf8(name) else "latin-1", "replace")
    escaped = repr(name[: _SHOWN_CHARS + 1])[1:-1]
    return f"“{escaped if len(escaped) <= _SHOWN_CHARS else escaped[: _SHOWN_CHARS - 1] + '…'}”"


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def path_of(raw: str) -> str:
    """Check the path of an entry and return it in NFC without `.` and empty parts.

    Raises ArchiveHostile for absolute paths, drives, `..`, backslashes, control characters, and for
    paths that are too long or too deep. A trailing slash (a folder) is dropped.
    """
    if _CONTROL.search(raw):
        raise ArchiveHostile(f"The entry {show(raw)} has a control character in its name.")
    if "\\" in raw:
        raise ArchiveHostile(f"The entry {show(raw)} has a backslash in its name; use forward slashes.")
    if raw.startswith("/") or _DRIVE.match(raw):
        raise ArchiveHostile(f"The entry {show(raw)} has an absolute path.")
    if not raw.isascii():
        raw = unicodedata.normalize("NFC", raw)
    if len(raw.encode()) > MAX_NAME_BYTES:
        raise ArchiveHostile(f"The name of the entry {show(raw)} is longer than {MAX_NAME_BYTES} bytes.")
    if "//" not in raw and "./" not in raw and "/." not in raw and raw[-1:] not in "/." and raw:
        if raw.count("/") >= MAX_DEPTH:
            raise ArchiveHostile(f"The entry {show(raw)} lies deeper than {MAX_DEPTH} folders.")
        return raw
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ArchiveHostile(f"The entry {show(raw)} climbs out of the archive with “..”.")
    if len(parts) > MAX_DEPTH:
        raise ArchiveHostile(f"The entry {show(raw)} lies deeper than {MAX_DEPTH} folders.")
    return "/".join(parts)


def refuse_nested(name: str, first_bytes: bytes) -> None:
    """Raise ArchiveHostile when an entry is itself an archive, by its name or its first bytes."""
    if name.lower().endswith(ARCHIVE_SUFFIXES) or first_bytes.startswith(ARCHIVE_MAGIC):
        raise ArchiveHostile(f"The entry {show(name)} is itself an archive; unpack it first.")


def is_junk(path: str) -> bool:
    """Whether a path is what file managers leave behind: hidden, `__MACOSX`, `Thumbs.db` …"""
    if path.startswith(".") or "/." in path:
        return True
    return any(part in _JUNK for part in path.split("/"))


def is_image(path: str) -> bool:
    """Whether a path ends like an image that can be read."""
    return path.lower().endswith(_IMAGE_SUFFIXES)


def is_no_image(path: str) -> bool:
    """Whether a path ends like something that is plainly no image; other endings say nothing."""
    return path.lower().endswith(_OTHER_SUFFIXES)


def label_of(text: str, where: str) -> str:
    """The label in NFC, its case kept, without surrounding blanks.

    `where` names the place in a message. Raises LabelsInvalid when the label is empty, longer than 100
    characters, or has a character that names may not have (`core.characters`).
    """
    label = unicodedata.normalize("NFC", text).strip()
    if not label:
        raise LabelsInvalid(f"The label of {where} is empty.")
    if len(label) > MAX_LABEL_CHARS:
        raise LabelsInvalid(
            f"The label {show(label)} of {where} is longer than {MAX_LABEL_CHARS} characters."
        )
    wrong = characters.wrong_in_name(label)
    if wrong is not None:
        raise LabelsInvalid(
            f"The label {show(label)} of {where} has {wrong}, which cannot be seen or changes how the rest is read:"
            " rename it without."
        )
    return label
