"""Counts and lists for sentences."""

from collections.abc import Iterable, Mapping

from perennial.reading_rules.names import quote_name

_LISTED = 5
_SHORT = 30
"""Characters of a name in a list with numbers, so that two such lists fit a screen."""


def format_count_with_noun(number: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: `1 image`, `1,200 images`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_first_names(names: Iterable[str], max_names: int = _LISTED) -> str:
    """Return the first names as a quoted list, and the number of further ones."""
    names = list(names)
    more = f" and {len(names) - max_names:,} more" if len(names) > max_names else ""
    return ", ".join(quote_name(name) for name in names[:max_names]) + more


def format_counts_by_name(numbers: Mapping[str, int], max_names: int = _LISTED) -> str:
    """Format the first names with their numbers: `“cat” 20, “dog” 12 and 3 more`."""
    names = sorted(numbers)
    more = f" and {len(names) - max_names:,} more" if len(names) > max_names else ""
    return (
        ", ".join(f"{quote_name(name, _SHORT)} {numbers[name]:,}" for name in names[:max_names])
        + more
    )
