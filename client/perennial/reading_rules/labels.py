"""Reasons why the service rejects a class label in its normal form."""

from perennial.characters import MAX_NAME_CHARS as MAX_LABEL_CHARS
from perennial.characters import find_invalid_name_character

__all__ = ["MAX_LABEL_CHARS", "explain_invalid_label"]


def explain_invalid_label(label: str) -> str:
    """Return why the service would reject a class label in its normal form, or ""."""
    if not label:
        return "is empty"
    if len(label) > MAX_LABEL_CHARS:
        return f"is longer than {MAX_LABEL_CHARS} characters"
    wrong = find_invalid_name_character(label)
    return "" if wrong is None else f"has {wrong}, which cannot be seen"
