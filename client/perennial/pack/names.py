"""The service's rules for paths, and names that satisfy them."""

import re

from perennial.reading_rules.names import (
    CSV_NAME,
    IMAGE_SUFFIXES,
    is_image_path,
    is_junk_path,
    normalise_to_nfc,
)

__all__ = [
    "CSV_NAME",
    "IMAGE_SUFFIXES",
    "build_sortable_numbered_name",
    "explain_invalid_path",
    "is_image_path",
    "is_junk_path",
    "normalise_to_nfc",
]

MAX_NAME_BYTES = 1024
"""Maximum bytes of a path in UTF-8."""
MAX_DEPTH = 32
"""Maximum number of folders in a path."""
_DRIVE = re.compile(r"^[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def explain_invalid_path(path: str) -> str:
    """Explain why the service would refuse a file path in an archive; "" if it would not."""
    if _CONTROL.search(path):
        return "has a control character, or bytes that are not UTF-8, in its name"
    if "\\" in path:
        return "has a backslash in its name"
    if not path or path.startswith("/") or _DRIVE.match(path):
        return "has an absolute path"
    if ".." in path.split("/"):
        return "climbs out of its folder with “..”"
    # Composed, because the service composes names before it measures them.
    if len(normalise_to_nfc(path).encode()) > MAX_NAME_BYTES:
        return f"has a name of more than {MAX_NAME_BYTES:,} bytes"
    if path.count("/") >= MAX_DEPTH:
        return f"lies deeper than {MAX_DEPTH} folders"
    return ""


def build_sortable_numbered_name(number: int, name: str = "") -> str:
    """Build a file name that sorts by its number and keeps valid characters: `00000012-cat.png`."""
    # The end of a long name has its suffix, and usually what tells it apart.
    base = normalise_to_nfc(name.rsplit("/", 1)[-1])[-60:].strip()
    return f"{number:08d}" if not base or explain_invalid_path(base) else f"{number:08d}-{base}"
