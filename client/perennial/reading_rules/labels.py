"""Normal form of labels, and reasons why the service rejects a label.

The allowed characters are the service's rule (`core/text/characters.py`); the tests compare both.
"""

import re
import unicodedata

MAX_LABEL_CHARS = 100
# Repeated from `core.text.characters`, because the client's copy of this package has no `core`.
_CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
_TURNING = r"\u202a-\u202e\u2066-\u2069\u00ad\u061c\u200c-\u200f"
_HIDDEN = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_REFUSED = re.compile(f"[{_CONTROLS}{_TURNING}{_HIDDEN}{_SELECTORS}]")
_SELECTOR = re.compile(f"[{_SELECTORS}]")
# Unicode's combining class of the signs that join consonants in Indian scripts.
_VIRAMA = 9


def explain_invalid_label(label: str) -> str:
    """Return why the service would reject a class label in its normal form, or ""."""
    if not label:
        return "is empty"
    if len(label) > MAX_LABEL_CHARS:
        return f"is longer than {MAX_LABEL_CHARS} characters"
    # Shortcut for most labels: a table may have half a million entries.
    if label.isascii() and label.isprintable():
        return ""
    for match in _REFUSED.finditer(label):
        if not _is_invisible_character_allowed_at(label, match.start()):
            return (
                f"has the character U+{ord(match.group()):04X} at position {match.start() + 1}, "
                f"which cannot be seen"
            )
    return ""


def _is_invisible_character_allowed_at(text: str, at: int) -> bool:
    """Return True if the invisible character at index `at` changes the display of the text around
    it.
    """
    before = text[at - 1] if at else ""
    if not before:
        return False
    kind = unicodedata.category(before)
    # After RFC 5892, appendix A, as in `core.text.characters`.
    if text[at] in "\u200c\u200d":
        is_right_to_left = unicodedata.bidirectional(before) == "AL"
        is_pictograph = kind in ("So", "Sk") or before == "\ufe0f"
        joins = is_right_to_left or is_pictograph or unicodedata.combining(before) == _VIRAMA
        return joins and bool(text[at + 1 : at + 2]) and not _REFUSED.match(text, at + 1)
    if _SELECTOR.match(text[at]):
        return kind in ("So", "Sm", "Sk", "Po", "Nd", "Lo", "Nl")
    return False
