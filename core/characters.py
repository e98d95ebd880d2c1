"""Which characters a text of a stranger may have: the one place that says so.

A **name** (of a task, a class, a key, an owner) is one line that is compared and shown: nothing in it may be
invisible, turn the direction of reading, or end the line, or two names would look like one. **Prose** (a reason) may
have several lines and the marks that keyboards of right-to-left scripts set, but nothing that turns text around or
hides in it. Both are kept in NFC.

Two invisible kinds belong to living scripts and are allowed in names where they change what is seen. Joiners (U+200C,
U+200D): after a virama, after a letter that is written from right to left and after a pictograph or its selector, with
a character to follow, nearly as RFC 5892 (appendix A.1, A.2) has it. Variation selectors: after a symbol, a digit or
an ideograph. Elsewhere, as in `cat` and a joiner, they are refused.
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
"""Default_Ignorable_Code_Point of Unicode without what the other lines have, and the blank of Braille."""
_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_IN_NAMES = re.compile(f"[{_CONTROLS}{_TURNING}{_MARKS}{_HIDDEN}{_SELECTORS}]")
_IN_PROSE = re.compile(f"(?![\t\n\r])[{_CONTROLS}{_TURNING}{_HIDDEN}]")
_JOINERS = "\u200c\u200d"
_SELECTOR = re.compile(f"[{_SELECTORS}]")
_VIRAMA = 9
"""Canonical combining class."""
MAX_NAME_CHARS, MAX_PROSE_CHARS = 100, 1000
_C0 = {
    "\t": "TAB",
    "\n": "LINE FEED",
    "\r": "CARRIAGE RETURN",
    "\0": "NULL",
    "\x1b": "ESCAPE",
    "\x7f": "DELETE",
}


class Wrong(NamedTuple):
    """A character that a text may not have; `place` counts from 1."""

    character: str
    place: int

    def __str__(self) -> str:
        called = _C0.get(self.character) or unicodedata.name(self.character, "")
        shown = f"U+{ord(self.character):04X}{f' ({called})' if called else ''}"
        return f"the character {shown} at position {self.place}"


def wrong_in_name(text: str) -> Wrong | None:
    """The first character that a name may not have, None without one."""
    if text.isascii() and text.isprintable():  # most names, and ten thousand of them come in one request
        return None
    for found in _IN_NAMES.finditer(text):
        if not _belongs(text, found.start()):
            return Wrong(found.group(), found.start() + 1)
    return None


def wrong_in_prose(text: str) -> Wrong | None:
    """The first character that a reason may not have, None without one."""
    found = _IN_PROSE.search(text)
    return None if found is None else Wrong(found.group(), found.start() + 1)


def name(text: str) -> str:
    """A name in NFC, without blanks around it.

    Raises:
        ValueError: it is blank or longer than `MAX_NAME_CHARS`, or has a character that names may not have; the
            message says which and where.
    """
    wrong = wrong_in_name(text)
    if wrong is not None:
        raise ValueError(
            f"must not have {wrong}, which cannot be seen or changes how the rest is read: remove it"
        )
    clean = unicodedata.normalize("NFC", text).strip()
    if not clean:
        raise ValueError("must not be blank")
    if len(clean) > MAX_NAME_CHARS:  # a few characters become two in NFC
        raise ValueError(f"must be at most {MAX_NAME_CHARS} characters long")
    return clean


def prose(text: str) -> str:
    """A reason in NFC.

    Raises:
        ValueError: it is longer than `MAX_PROSE_CHARS`, or has a character that prose may not have; the message says
            which and where.
    """
    wrong = wrong_in_prose(text)
    if wrong is not None:
        raise ValueError(
            f"must not have {wrong}, which cannot be seen or changes how the rest is read: remove it"
        )
    clean = unicodedata.normalize("NFC", text)
    if len(clean) > MAX_PROSE_CHARS:
        raise ValueError(f"must be at most {MAX_PROSE_CHARS} characters long")
    return clean


def _belongs(text: str, at: int) -> bool:
    """Whether an invisible character changes what is seen where it stands."""
    before = text[at - 1] if at else ""
    if not before:
        return False
    kind = unicodedata.category(before)
    if text[at] in _JOINERS:
        written_back = unicodedata.bidirectional(before) == "AL"
        pictograph = kind in ("So", "Sk") or before == "\ufe0f"
        joins = written_back or pictograph or unicodedata.combining(before) == _VIRAMA
        return joins and bool(text[at + 1 : at + 2]) and not _IN_NAMES.match(text, at + 1)
    if _SELECTOR.match(text[at]):
        return kind in ("So", "Sm", "Sk", "Po", "Nd", "Lo", "Nl")
    return False
