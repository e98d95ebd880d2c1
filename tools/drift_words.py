"""Sentences about differences of database and store: the problem of each object, and its remedy."""

from collections import Counter
from collections.abc import Sequence

from core.text.counts import format_count_with_noun
from core.upkeep.consistency import Kind, StoreInconsistency

FOUND: dict[Kind, str] = {
    "missing": "Missing: {object} ({size}), {detail}. `perennial check --repair` looks for a copy "
    "on this machine; else restore it from a backup.",
    "size": "Another size than the database says ({size}): {object}, {detail}. `perennial check "
    "--repair` looks for a copy on this machine; else restore it from a backup.",
    "digest": "Damaged, its bytes are not those that were stored: {object} ({size}), {detail}. "
    "`perennial check --repair` looks for a sound copy on this machine; else restore it from a "
    "backup.",
    "overdue": "Left over: {object} ({size}), {detail}. `perennial sweep` removes it.",
    "foreign": "Not of this service: {object} ({size}), {detail}. Move it elsewhere if somebody "
    "needs it.",
    "lease": "Left by its worker: {object} is {detail}. `perennial check --repair` gives it to "
    "another one.",
}
"""Sentence for each kind of difference."""
COUNTED: dict[Kind, str] = {
    "missing": "missing",
    "size": "of another size",
    "digest": "damaged",
    "overdue": "left over",
    "foreign": "not of this service",
    "lease": "left by a worker",
}


def describe_store_inconsistency(drift: StoreInconsistency) -> str:
    """Describe one difference between database and object store, and its remedy."""
    return FOUND[drift.kind].format(
        object=drift.object, size=f"{drift.bytes:,} bytes", detail=drift.detail
    )


def summarise_store_comparison(
    drifts: Sequence[StoreInconsistency], objects: int, *, is_verified: bool
) -> str:
    """Summarise a comparison of database and object store in a sentence.

    Args:
        drifts: the differences.
        objects: number of objects that the database names.
        is_verified: whether each of them was read.
    """
    if drifts:
        kinds = ", ".join(
            f"{number} {COUNTED[kind]}"
            for kind, number in Counter(one.kind for one in drifts).items()
        )
        return (
            f"{format_count_with_noun(len(drifts), 'difference')}, {sum(one.bytes for one in drifts):,} "
            f"bytes: {kinds}."
        )
    if not objects:
        return "Database and store agree: both are empty."
    finding = "each was read and has the digest" if is_verified else "each is there with the size"
    more = "" if is_verified else " --verify reads them, too."
    return (
        f"Database and store agree. The database names {format_count_with_noun(objects, 'object')}: "
        f"{finding} that it says.{more}"
    )
