"""The service's rules of paths and of files that it leaves out or refuses by their names."""

import re
import unicodedata

MAX_NAME_BYTES = 1024
"""Of a path in UTF-8."""
MAX_DEPTH = 32
"""Folders of a path."""
_DRIVE = re.compile(r"^[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_JUNK = frozenset({"__MACOSX", "Thumbs.db", "desktop.ini"})
IMAGE_SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif",
)  # fmt: skip
_OTHER_SUFFIXES = (
    ".txt", ".md", ".rst", ".log", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml", ".ini", ".cfg",
    ".html", ".htm", ".css", ".js", ".py", ".ipynb", ".sh", ".bat", ".url", ".pdf", ".rtf", ".doc", ".docx", ".xls",
    ".xlsx", ".ppt", ".pptx", ".odt", ".db", ".sqlite", ".mp3", ".wav", ".mp4", ".mov", ".avi", ".mkv", ".aae", ".xmp",
)  # fmt: skip
_ARCHIVE_SUFFIXES = (
    ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar", ".npz", ".jar", ".cab",
    ".iso",
)  # fmt: skip
CSV_NAME = "labels.csv"


def is_junk(path: str) -> bool:
    """Whether a path is hidden or what file managers leave behind."""
    return path.startswith(".") or "/." in path or any(part in _JUNK for part in path.split("/"))


def is_image(path: str) -> bool:
    """Whether a path ends like an image that the service reads."""
    return path.lower().endswith(IMAGE_SUFFIXES)


def is_no_image(path: str) -> bool:
    """Whether a path ends like something that is plainly no image, or like an archive, which the service refuses."""
    return path.lower().endswith(_OTHER_SUFFIXES + _ARCHIVE_SUFFIXES)


def wrong_path(path: str) -> str:
    """Why the service would refuse a path in an archive, as the end of a sentence; empty where it would not."""
    if _CONTROL.search(path):
        return "has a control character, or bytes that are not UTF-8, in its name"
    if "\\" in path:
        return "has a backslash in its name"
    if not path or path.startswith("/") or _DRIVE.match(path):
        return "has an absolute path"
    if ".." in path.split("/"):
        return "climbs out of its folder with “..”"
    if len(normal(path).encode()) > MAX_NAME_BYTES:
        return f"has a name of more than {MAX_NAME_BYTES:,} bytes"
    if path.count("/") >= MAX_DEPTH:
        return f"lies deeper than {MAX_DEPTH} folders"
    return ""


def normal(text: str) -> str:
    """A path as the service compares it."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def numbered(number: int, name: str = "") -> str:
    """A name that sorts by `number` and keeps what can be kept of `name`, such as `00000012-cat.png`."""
    base = normal(name.rsplit("/", 1)[-1])[-60:].strip()
    return f"{number:08d}" if not base or wrong_path(base) else f"{number:08d}-{base}"
