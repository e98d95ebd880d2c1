"""Text that is safe on a terminal: no escape sequences, other controls, or changes of direction."""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of controls, format characters, surrogates, and line and paragraph
separators.
"""
_PLAIN = frozenset("\n\t\u200c\u200d")
"""Harmless characters of these categories: line ends, tabs, and joiners of letters and emoji."""
_ASCII_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def escape_control_characters(text: str) -> str:
    r"""Return the text with controls written out, such as `\x1b`; line ends and tabs stay."""
    # Most texts: one pass of a regular expression instead of a look at every character.
    if text.isascii():
        return _ASCII_CONTROL.sub(lambda match: _escape_character(match[0]), text)
    return "".join(
        one if one in _PLAIN or not _is_invisible_character(one) else _escape_character(one)
        for one in text
    )


def make_text_one_line(text: str) -> str:
    """Return printable text on a single line, so that it cannot imitate a line of this client."""
    # Blanks are joined first, because `escape_control_characters` leaves line ends and tabs in the
    # text.
    return escape_control_characters(" ".join(text.split()))


def format_count_with_noun(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 image`, `1,200 images`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _is_invisible_character(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode()
