"""The report of a batch whose archive's directory alone was read, and what of it outlives the decoding."""

from collections.abc import Sequence
from typing import Literal

from core.protocol.report import BatchReport, DuplicatesPolicy, EntryReason, FileReason

NAMES_AND_SIZES: Literal["names and sizes"] = "names and sizes"
IMAGES: Literal["images"] = "images"


def first_report(
    ignored: int,
    ignored_files: Sequence[FileReason],
    notes: Sequence[str],
    policy: DuplicatesPolicy,
    bad_entries: Sequence[EntryReason] = (),
    bad_entries_count: int = 0,
) -> BatchReport:
    """The report of a batch whose archive's directory alone was read."""
    return {
        "checked": NAMES_AND_SIZES,
        "rejected": [],
        "rejected_count": 0,
        "ignored": ignored,
        "ignored_files": list(ignored_files),
        "bad_entries": list(bad_entries),
        "bad_entries_count": bad_entries_count,
        "duplicates": 0,
        "duplicate_paths": [],
        "duplicates_policy": policy,
        "duplicates_dropped": 0,
        "conflicts": [],
        "conflicts_count": 0,
        "notes": list(notes),
    }


def after_decoding(before: BatchReport, found: BatchReport) -> BatchReport:
    """The report that decoding made, with what only the submit knew."""
    kept: BatchReport = {}
    if "classes" in before:
        kept["classes"] = before["classes"]
    if "duplicates_policy" in before:
        kept["duplicates_policy"] = before["duplicates_policy"]
    if "conflicts_policy" in before:
        kept["conflicts_policy"] = before["conflicts_policy"]
    if "reading" in before:
        kept["reading"] = before["reading"]
    return {**found, **kept}
