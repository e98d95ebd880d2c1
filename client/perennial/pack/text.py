"""Words of sentences: quoted names, counts and lists."""

from pathlib import Path

from perennial.pack.rules import names
from perennial.pack.rules.sentences import count, listed

__all__ = ["count", "listed", "show"]


def show(name: str | Path) -> str:
    """`name` quoted for a message: escapes for everything unprintable, at most about 120 characters."""
    return names.show(str(name))
