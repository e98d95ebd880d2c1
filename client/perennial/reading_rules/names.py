"""Paths of files: classification by name, normalisation, and display."""

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
VIDEO_SUFFIXES = (
    ".mp4",
    ".mov",
    ".avi",
    ".mkv",
    ".webm",
    ".m4v",
    ".mpg",
    ".mpeg",
    ".wmv",
    ".3gp",
    ".mts",
)
_OTHER_SUFFIXES = (
    ".txt", ".md", ".rst", ".log", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".xml", ".yaml", ".yml", ".toml",
    ".ini", ".cfg", ".html", ".htm", ".css", ".js", ".py", ".ipynb", ".sh", ".bat", ".url", ".pdf", ".rtf", ".doc",
    ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".odt", ".ods", ".db", ".sqlite", ".mp3", ".wav", ".aae", ".xmp",
    ".names", ".manifest", ".parquet", ".arrow", ".tfrecord", ".tfrecords", ".mdb", ".pkl", ".pickle", ".npy", ".mat",
    ".h5", ".hdf5", ".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".tm", ".lnk", ".labels",
    *VIDEO_SUFFIXES, *RAW_SUFFIXES,
)  # fmt: skip
"""Endings of files that are not images: notes, lists, films, and files of cameras and tools."""
_OTHER_NAMES = frozenset((
    "license", "licence", "notice", "copying", "readme", "authors", "contributors", "changelog", "manifest",
    "version", "makefile", "dockerfile",
))  # fmt: skip
"""Files without an ending that describe other files, in lower case."""
_JUNK_FOLDER = re.compile(
    r"(?:^|/)(?:__MACOSX|@eaDir|#recycle|\$RECYCLE\.BIN|System Volume "
    r"Information|lost\+found)(?:/|\Z)"
)
_JUNK_FILES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "icon␍"))
"""Names in lower case."""
_ZONE = "zone.identifier"
"""Ending of the file that Windows keeps for a download, visible after copying to other systems."""
MAC_ICON, SHOWN_ICON = "Icon\r", "Icon␍"
"""File of a folder's icon. Its name has a control character, which no other name may have."""
_SHOWN_CHARS = 120


def quote_name(name: str | bytes, max_chars: int = _SHOWN_CHARS) -> str:
    """Quote a name for a message, shortened to about `max_chars` characters.

    Unprintable characters are escaped.
    """
    if isinstance(name, bytes):
        # A character has at most four bytes; the rest of a long name is not decoded.
        name = name[: 4 * max_chars].decode("utf-8" if _is_utf8(name) else "latin-1", "replace")
    # Cut before it is escaped, because a hostile name may be long.
    escaped = repr(name[: max_chars + 1])[1:-1]
    return f"“{escaped if len(escaped) <= max_chars else escaped[: max_chars - 1] + '…'}”"


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def normalise_to_nfc(text: str) -> str:
    """Return a path in Unicode NFC (composed letters), for comparisons."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def convert_label_to_stripped_nfc(text: str) -> str:
    """Return a class label in Unicode NFC without surrounding blanks, for comparisons."""
    return normalise_to_nfc(text).strip()


def is_hidden_path(path: str) -> bool:
    """Return True if a file, or a folder in its path, is hidden (has a leading dot)."""
    return path.startswith(".") or "/." in path


def is_junk_path(path: str) -> bool:
    """Return True if a path was made by a file manager: hidden, `__MACOSX`, `Thumbs.db`, `@eaDir` …"""
    if is_hidden_path(path):
        return True
    name = path[path.rfind("/") + 1 :].lower()
    return name in _JUNK_FILES or name.endswith(_ZONE) or _JUNK_FOLDER.search(path) is not None


def is_image_path(path: str) -> bool:
    """Return True if a path has the ending of a supported image."""
    return path.lower().endswith(IMAGE_SUFFIXES)


def is_clearly_no_image(path: str) -> bool:
    """Return True if a file's name is clearly not that of an image."""
    name = path.rpartition("/")[2].lower()
    return name.endswith(_OTHER_SUFFIXES) or name in _OTHER_NAMES


def is_archive_path(path: str) -> bool:
    """Return True if a path has the ending of an archive, which is rejected inside another one."""
    return path.lower().endswith(ARCHIVE_SUFFIXES)


def get_file_stem(path: str) -> str:
    """Return a file's name without its folders and its last ending."""
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def get_parent_folder(path: str) -> str:
    """Return the folder that contains a file; "" at the top."""
    return path.rpartition("/")[0]
