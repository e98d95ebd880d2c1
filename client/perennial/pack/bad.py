"""Unusable entries of a source: left out and listed, up to a share of all entries."""

import math

from perennial.pack.errors import PackError
from perennial.pack.text import format_count_with_noun
from perennial.reading_rules.entries import BatchReadingOptions, LeftOutLabelTableEntry
from perennial.reading_rules.tables.words import format_share_as_percent

MAX_BAD = BatchReadingOptions().max_bad
_LISTED = 5


class BadEntryCollector:
    """Collects unusable entries of a source (images, rows, boxes), and limits their share.

    If the allowed share is above 0, one bad entry is always allowed, however small the batch.
    """

    def __init__(self, origin: str, max_bad: float = MAX_BAD) -> None:
        """Start a list of bad entries.

        Args:
            origin: description of the source, as the end of a sentence.
            max_bad: largest allowed share of bad entries, 0 to 1.

        Raises:
            PackError: `max_bad` is not a share.
        """
        if (
            # `True` is an integer in Python, and would pass as a share of 1.
            isinstance(max_bad, bool)
            or not isinstance(max_bad, int | float)
            or not 0 <= max_bad <= 1
        ):
            raise PackError(f"max_bad is {max_bad!r}; it is a share from 0 to 1, such as 0.05.")
        self._origin, self._most = origin, max_bad
        self._first: list[LeftOutLabelTableEntry] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def record_bad_entry(self, where: str, reason: str) -> None:
        """Record an unusable entry of the source.

        Args:
            where: its place, with file and line or key.
            reason: the end of a sentence.
        """
        self._count += 1
        # The first ones suffice for a person, and a hostile source may have millions.
        if len(self._first) < _LISTED:
            self._first.append(LeftOutLabelTableEntry(where, reason.strip().rstrip(".")))

    def check_bad_share_and_build_warning(self, good: int) -> list[str]:
        """Return a warning that lists the unusable entries. Raises PackError if there are too many.

        Args:
            good: number of usable entries.

        Raises:
            PackError: the share of bad entries is too large.
        """
        if not self._count:
            return []
        entry_count = format_count_with_noun(self._count, "entry", "entries")
        # `self._most > 0` is 1 if any share is allowed: one bad entry never stops a small batch.
        if not good or self._count > max(self._most * (good + self._count), self._most > 0):
            # Rounded up, so that the suggested max_bad admits exactly these entries.
            share = math.ceil(1000 * self._count / (good + self._count)) / 1000
            alternative = (
                f", or leave them out with -o max_bad={share:g} (max_bad={share:g})" if good else ""
            )
            raise PackError(
                f"{entry_count} of {good + self._count:,} in {self._origin} cannot be used, more "
                f"than {format_share_as_percent(self._most)}: {self._format_bad_entries()}. Mend them{alternative}."
            )
        return [f"{entry_count} of {self._origin} left out as bad: {self._format_bad_entries()}."]

    def _format_bad_entries(self) -> str:
        more = (
            f"; and {self._count - len(self._first):,} more"
            if self._count > len(self._first)
            else ""
        )
        return "; ".join(f"{entry.where} {entry.reason}" for entry in self._first) + more
