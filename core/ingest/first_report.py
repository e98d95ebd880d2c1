"""First report of a batch, from the archive's directory, and its fields that survive decoding."""

from collections.abc import Sequence
from typing import Literal

from core.contract.reports.report import BatchReport, DuplicatesPolicy, EntryReason, FileReason

NAMES_AND_SIZES: Literal["names and sizes"] = "names and sizes"
IMAGES: Literal["images"] = "images"


def build_batch_report_before_decoding(
    ignored: int,
    ignored_files: Sequence[FileReason],
    notes: Sequence[str],
    policy: DuplicatesPolicy,
    bad_entries: Sequence[EntryReason] = (),
    bad_entries_count: int = 0,
) -> BatchReport:
    """Return the report of a batch before decoding, when only the archive's directory was read."""
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


def keep_submission_fields_in_decoded_report(
    first: BatchReport, decoded_report: BatchReport
) -> BatchReport:
    """Return the report made by decoding, with the fields that only the submission knew."""
    submitted: BatchReport = {}
    if "classes" in first:
        submitted["classes"] = first["classes"]
    if "duplicates_policy" in first:
        submitted["duplicates_policy"] = first["duplicates_policy"]
    if "conflicts_policy" in first:
        submitted["conflicts_policy"] = first["conflicts_policy"]
    if "reading" in first:
        submitted["reading"] = first["reading"]
    # The submit's fields come last: a report of decoding that was stopped has defaults in their
    # place.
    return {**decoded_report, **submitted}
