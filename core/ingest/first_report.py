"""The report of a batch whose archive's directory alone was read, and what of it outlives the decoding."""

from collections.abc import Sequence
from typing import Any

NAMES_AND_SIZES, IMAGES = "names and sizes", "images"
"""What a report rests on: the archive's directory, or every image."""
_GIVEN = ("classes", "duplicates_policy")
"""What a report says from the submit on: decoding does not know it."""


def first_report(
    ignored: int, ignored_files: Sequence[dict[str, str]], notes: Sequence[str], policy: str
) -> dict[str, Any]:
    """The report of a batch whose archive's directory alone was read."""
    return {
        "checked": NAMES_AND_SIZES,
        "rejected": [],
        "rejected_count": 0,
        "ignored": ignored,
        "ignored_files": list(ignored_files),
        "duplicates": 0,
        "duplicate_paths": [],
        "duplicates_policy": policy,
        "duplicates_dropped": 0,
        "conflicts": [],
        "conflicts_count": 0,
        "notes": list(notes),
    }


def after_decoding(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The report that decoding made, with what only the submit knew."""
    return {**found, **{key: before[key] for key in _GIVEN if key in before}}
