"""Parts by the folders that an image lies in."""

from perennial.pack.rules.entries import Part
from perennial.pack.rules.tables.values import part_of


def part_above(name: str, folders: int) -> Part:
    """The part that one of the first `folders` folders of a path is called by; empty for none."""
    for folder in reversed(name.split("/")[:folders]):
        found = part_of(folder)
        if found:
            return found
    return ""
