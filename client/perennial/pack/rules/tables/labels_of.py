"""Parts from the folders in an image's path."""

from perennial.pack.rules.entries import Part
from perennial.pack.rules.tables.values import part_of


def part_above(name: str, folders: int) -> Part:
    """Return the part that one of the first `folders` folders of a path is named after, or ""."""
    for folder in reversed(name.split("/")[:folders]):
        part = part_of(folder)
        if part:
            return part
    return ""
