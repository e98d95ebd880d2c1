"""Labels as the service normalizes them, and a check for labels that it would refuse.

The normal form and the check are those of `perennial.reading_rules`.
"""

from collections.abc import Iterable

from perennial.pack.errors import PackError
from perennial.pack.images import BatchImageEntry
from perennial.pack.text import format_count_with_noun, format_first_names, quote_name
from perennial.reading_rules.labels import MAX_LABEL_CHARS, explain_invalid_label
from perennial.reading_rules.names import convert_label_to_stripped_nfc

__all__ = [
    "MAX_LABEL_CHARS",
    "convert_label_to_stripped_nfc",
    "explain_invalid_label",
    "require_valid_labels_with_training_images",
]

_EXAMPLES = 5


def require_valid_labels_with_training_images(rows: Iterable[BatchImageEntry], origin: str) -> None:
    """Raise PackError for labels that the service would refuse, or a class without training images."""
    example: dict[str, str] = {}
    learned: set[str] = set()
    for row in rows:
        example.setdefault(row.label, row.name)
        if row.part != "test":
            learned.add(row.label)
    # All wrong labels at once, so that a person can rename them in one go.
    wrong = [(label, why) for label in sorted(example) if (why := explain_invalid_label(label))]
    if wrong:
        examples = "; ".join(
            f"{quote_name(label)} (of {quote_name(example[label])}) {why}"
            for label, why in wrong[:_EXAMPLES]
        )
        more = f"; and {len(wrong) - _EXAMPLES:,} more" if len(wrong) > _EXAMPLES else ""
        raise PackError(
            f"The service would refuse {format_count_with_noun(len(wrong), 'label')} of {origin}: "
            f"{examples}{more}. Rename them."
        )
    unlearned = sorted(set(example) - learned)
    # Only the service knows if the model waits for held-out images alone.
    if unlearned and learned:
        raise PackError(
            f"In {origin}, {'the class' if len(unlearned) == 1 else 'the classes'} "
            f"{format_first_names(unlearned)} {'has' if len(unlearned) == 1 else 'have'} test images but "
            "none to learn. Add some to the train part, or leave the class out."
        )
