"""Quoted names, counts and lists for messages."""

from pathlib import Path

from perennial.reading_rules import names
from perennial.reading_rules.sentences import format_count_with_noun, format_first_names

__all__ = ["format_count_with_noun", "format_first_names", "quote_name"]


def quote_name(name: str | Path) -> str:
    """Quote a file name for a message, shortened and with unprintable characters escaped."""
    return names.quote_name(str(name))
