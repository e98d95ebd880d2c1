"""Paths of files: what they say of a file, and how they are written and compared."""

import re
import unicodedata

CSV_NAME = "labels.csv"
IMAGE_SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif",
)  # fmt: skip
ARCHIVE_SUFFIXES = (
    ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar", ".npz", ".jar", ".cab",
    ".iso",
)  # fmt: skip
RAW_SUFFIXES = (
    ".dng", ".cr2", ".cr3", ".crw", ".nef", ".nrw", ".arw", ".srf", ".sr2", ".orf", ".rw2", ".raf", ".pef", ".srw",
    ".3fr", ".iiq", ".x3f",
)  # fmt: skip
VIDEO_SUFFIXES = (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".3gp", ".mts")
_OTHER_SUFFIXES = (
    ".txt", ".md", ".rst", ".log", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".xml", ".yaml", ".yml", ".toml",
    ".ini", ".cfg", ".html", ".htm", ".css", ".js", ".py", ".ipynb", ".sh", ".bat", ".url", ".pdf", ".rtf", ".doc",
    ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".odt", ".ods", ".db", ".sqlite", ".mp3", ".wav", ".aae", ".xmp",
    ".names", ".manifest", ".parquet", ".arrow", ".tfrecord", ".tfrecords", ".mdb", ".pkl", ".pickle", ".npy", ".mat",
    ".h5", ".hdf5", ".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".tm", ".lnk", ".labels",
    *VIDEO_SUFFIXES, *RAW_SUFFIXES,
)  # fmt: skip
"""Endings of non-images beside pictures: notes, lists, films, and what cameras and tools write of their own."""
_OTHER_NAMES = frozenset((
    "license", "licence", "notice", "copying", "readme", "authors", "contributors", "changelog", "manifest",
    "version", "makefile", "dockerfile",
))  # fmt: skip
"""Files without an ending that tell of the others, in small letters."""
_JUNK_FOLDER = re.compile(
    r"(?:^|/)(?:__MACOSX|@eaDir|#recycle|\$RECYCLE\.BIN|System Volume Information|lost\+found)(?:/|\Z)"
)
_JUNK_FILES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "icon␍"))
"""In small letters."""
_ZONE = "zone.identifier"
"""Ending of the file that Windows writes about a download, beside the file when it is copied to another system."""
MAC_ICON, SHOWN_ICON = "Icon\r", "Icon␍"
"""The file of a folder's own icon; its name has a control character, which no other may have."""
_SHOWN_CHARS = 120


def show(name: str | bytes, most: int = _SHOWN_CHARS) -> str:
    """`name` quoted for a message: escapes for everything unprintable, at most about `most` characters."""
    if isinstance(name, bytes):
        name = name[: 4 * most].decode("utf-8" if _is_utf8(name) else "latin-1", "replace")
    escaped = repr(name[: most + 1])[1:-1]
    return f"“{escaped if len(escaped) <= most else escaped[: most - 1] + '…'}”"


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def normal(text: str) -> str:
    """A path as it is compared: its letters composed (NFC)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def normal_label(text: str) -> str:
    """A label as it is compared: in NFC, its case kept, without blanks around it."""
    return normal(text).strip()


def is_hidden(path: str) -> bool:
    """Return whether a file, or a folder that it lies in, is hidden."""
    return path.startswith(".") or "/." in path


def is_junk(path: str) -> bool:
    """Return whether a path is what file managers leave behind: hidden, `__MACOSX`, `Thumbs.db`, `@eaDir` …"""
    if is_hidden(path):
        return True
    name = path[path.rfind("/") + 1 :].lower()
    return name in _JUNK_FILES or name.endswith(_ZONE) or _JUNK_FOLDER.search(path) is not None


def is_image(path: str) -> bool:
    """Return whether a path ends like an image that can be read."""
    return path.lower().endswith(IMAGE_SUFFIXES)


def is_no_image(path: str) -> bool:
    """Return whether a name is plainly not that of an image; other names without a known ending say nothing."""
    name = path.rpartition("/")[2].lower()
    return name.endswith(_OTHER_SUFFIXES) or name in _OTHER_NAMES


def is_archive(path: str) -> bool:
    """Return whether a path ends like an archive, which is refused inside another one."""
    return path.lower().endswith(ARCHIVE_SUFFIXES)


def stem(path: str) -> str:
    """A file's name without its folders and its last ending."""
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def folder_of(path: str) -> str:
    """The folder that a file lies in, empty at the top."""
    return path.rpartition("/")[0]
