"""Words of sentences: quoted names, counts and lists."""

from collections.abc import Iterable, Sequence
from pathlib import Path

_SHOWN_CHARS = 120
_LISTED = 5


def show(name: str | Path) -> str:
    """`name` quoted for a message: escapes for everything unprintable, at most about 120 characters."""
    escaped = repr(str(name))[1:-1]
    return f"“{escaped if len(escaped) <= _SHOWN_CHARS else escaped[: _SHOWN_CHARS - 1] + '…'}”"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 image`, `1,200 images`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str] | Iterable[str], most: int = _LISTED) -> str:
    """The first names, quoted, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(show(name) for name in names[:most]) + more
