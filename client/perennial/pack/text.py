"""Quoted names, counts and lists for messages."""

from pathlib import Path

from perennial.pack.rules import names
from perennial.pack.rules.sentences import count, listed

__all__ = ["count", "listed", "show"]


def show(name: str | Path) -> str:
    """Return `name` quoted for a message, with unprintable characters escaped, at most about 120
    long.
    """
    return names.show(str(name))
