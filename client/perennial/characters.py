"""Characters allowed in texts from clients. All other code uses these rules.

A **name** (of a task, a class, a key, an owner) is one line that is compared and shown. It may
contain nothing that is invisible, changes the reading direction, or ends the line; otherwise two
names could look the same. **Prose** (a reason) may have several lines and the marks that keyboards
of right-to-left scripts insert. It may not contain characters that reverse or hide text. Both are
stored in NFC.

Two kinds of invisible characters belong to living scripts and are allowed in names where they
change the display:

- Joiners (U+200C, U+200D) after a virama, after a right-to-left letter, and after a pictograph or
  its selector, if another character follows. This is close to RFC 5892, appendix A.1 and A.2.
- Variation selectors after a symbol, a digit or an ideograph.

They are rejected elsewhere, as in `cat` followed by a joiner.
"""

import re
import unicodedata
from typing import NamedTuple

_CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
_TURNING = r"\u202a-\u202e\u2066-\u2069"
_MARKS = r"\u00ad\u061c\u200c-\u200f"
_HIDDEN = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
"""Default_Ignorable_Code_Point of Unicode without the other sets here, and the Braille blank."""
_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_IN_NAMES = re.compile(f"[{_CONTROLS}{_TURNING}{_MARKS}{_HIDDEN}{_SELECTORS}]")
# Prose has several lines, whose line breaks are control characters.
_IN_PROSE = re.compile(f"(?![\t\n\r])[{_CONTROLS}{_TURNING}{_HIDDEN}]")
_JOINERS = "\u200c\u200d"
_SELECTOR = re.compile(f"[{_SELECTORS}]")
_VIRAMA = 9
"""Canonical combining class of viramas."""
MAX_NAME_CHARS, MAX_PROSE_CHARS = 100, 1000
_C0 = {
    "\t": "TAB",
    "\n": "LINE FEED",
    "\r": "CARRIAGE RETURN",
    "\0": "NULL",
    "\x1b": "ESCAPE",
    "\x7f": "DELETE",
}


class InvalidCharacter(NamedTuple):
    """A character that a name or reason must not contain; `place` counts from 1."""

    character: str
    place: int

    def __str__(self) -> str:
        character_name = _C0.get(self.character) or unicodedata.name(self.character, "")
        code_point = (
            f"U+{ord(self.character):04X}{f' ({character_name})' if character_name else ''}"
        )
        return f"the character {code_point} at position {self.place}"


def find_invalid_name_character(text: str) -> InvalidCharacter | None:
    """Return the first character that a name must not contain, or None."""
    # Shortcut for most names: one request may have ten thousand of them.
    if text.isascii() and text.isprintable():
        return None
    for match in _IN_NAMES.finditer(text):
        if not _is_invisible_character_allowed_at(text, match.start()):
            return InvalidCharacter(match.group(), match.start() + 1)
    return None


def find_invalid_reason_character(text: str) -> InvalidCharacter | None:
    """Return the first character that a reason must not contain, or None."""
    match = _IN_PROSE.search(text)
    return None if match is None else InvalidCharacter(match.group(), match.start() + 1)


def validate_and_normalise_name(text: str) -> str:
    """Return a name in Unicode NFC, without surrounding white space.

    Raises:
        ValueError: the name is blank, is longer than `MAX_NAME_CHARS` characters, or has a
            character that names must not have. The message says which one and where.
    """
    # Checked before NFC, so that the position in the message is that of the text as it was sent.
    wrong = find_invalid_name_character(text)
    if wrong is not None:
        raise ValueError(
            f"must not have {wrong}, which cannot be seen or changes how the rest is read: remove "
            f"it"
        )
    clean = unicodedata.normalize("NFC", text).strip()
    if not clean:
        raise ValueError("must not be blank")
    if len(clean) > MAX_NAME_CHARS:  # checked after NFC, which turns a few characters into two
        raise ValueError(f"must be at most {MAX_NAME_CHARS} characters long")
    return clean


def validate_and_normalise_reason(text: str) -> str:
    """Return a person's reason as text in Unicode NFC.

    Raises:
        ValueError: the text is longer than `MAX_PROSE_CHARS` characters, or has a character that
            prose must not have. The message says which one and where.
    """
    wrong = find_invalid_reason_character(text)
    if wrong is not None:
        raise ValueError(
            f"must not have {wrong}, which cannot be seen or changes how the rest is read: remove "
            f"it"
        )
    clean = unicodedata.normalize("NFC", text)
    if len(clean) > MAX_PROSE_CHARS:
        raise ValueError(f"must be at most {MAX_PROSE_CHARS} characters long")
    return clean


def _is_invisible_character_allowed_at(text: str, at: int) -> bool:
    """Return True if the invisible character at index `at` changes the display of the text around
    it.
    """
    before = text[at - 1] if at else ""
    if not before:
        return False
    kind = unicodedata.category(before)
    # After RFC 5892, appendix A: elsewhere a joiner would only make two equal-looking names differ.
    if text[at] in _JOINERS:
        is_right_to_left = unicodedata.bidirectional(before) == "AL"
        is_pictograph = kind in ("So", "Sk") or before == "\ufe0f"
        joins = is_right_to_left or is_pictograph or unicodedata.combining(before) == _VIRAMA
        return joins and bool(text[at + 1 : at + 2]) and not _IN_NAMES.match(text, at + 1)
    if _SELECTOR.match(text[at]):
        return kind in ("So", "Sm", "Sk", "Po", "Nd", "Lo", "Nl")
    return False
