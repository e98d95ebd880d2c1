"""The list of classes that comes with a classifier: a name for each row of its head, in order.

It is a name a line, a JSON list, or the JSON object that tools of the trade write: a map from row to
name (`{"0": "cat"}`), or from name to row, as torchvision's `class_to_idx`.
"""

import json

from core.errors import Invalid, LabelsInvalid
from core.ingest.names import check_and_normalise_class_label, quote_name

FEWEST = 2
"""Fewest classes: a head with one output cannot tell anything apart."""
_ALLOWED = (
    "Send one name a line, a JSON list of names, or a JSON object of rows and names, in the order "
    "of the classifier's outputs."
)


def parse_class_list(text: str, max_classes: int) -> list[str]:
    """Parse a list of class names, each checked as the label of a batch.

    Args:
        max_classes: largest number of classes.

    Raises:
        Invalid: there are too few or too many names, or one is there twice.
        LabelsInvalid: a name is empty, too long or unprintable.
    """
    # Some editors begin a UTF-8 file with a byte order mark.
    text = text.removeprefix("\ufeff").strip()
    raw = _parse_class_list_json(text) if text[:1] in ("[", "{") else text.splitlines()
    if not FEWEST <= len(raw) <= max_classes:
        raise _make_class_list_error(
            f"classes has {len(raw)} names; {FEWEST} to {max_classes} are allowed. {_ALLOWED}"
        )
    names: list[str] = []
    row_of: dict[str, int] = {}
    for row, one in enumerate(raw, 1):
        try:
            name = check_and_normalise_class_label(one, f"row {row} of classes")
        except LabelsInvalid as error:
            field = {"field": "classes", "message": f"row {row} cannot be a name"}
            raise LabelsInvalid(f"{error.detail} {_ALLOWED}", fields=[field]) from None
        if name in row_of:
            raise _make_class_list_error(
                f"classes names {quote_name(name)} in row {row_of[name]} and in row {row}. Each row "
                "of the classifier needs a name of its own."
            )
        row_of[name] = row
        names.append(name)
    return names


def _parse_class_list_json(text: str) -> list[str]:
    """Parse a JSON list or object of class names, and return them in the order of their output
    rows.
    """
    try:
        value = json.loads(text)
    # Deeply nested JSON exceeds Python's recursion limit, which is the client's error.
    except (ValueError, RecursionError):
        raise _make_class_list_error(f"classes begins like JSON and is none. {_ALLOWED}") from None
    if isinstance(value, dict):
        value = _order_class_names_by_row(value)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _make_class_list_error(f"classes holds something else than names. {_ALLOWED}")
    return value


def _order_class_names_by_row(value: dict[str, object]) -> list[object]:
    """Return class names in the order of their output rows, which must be 0, 1, 2 and so on."""
    named: dict[str, object] = {str(row): name for name, row in value.items()}
    by_row = named if _has_consecutive_row_keys(named) else value
    if not _has_consecutive_row_keys(by_row) or len(by_row) != len(value):
        raise _make_class_list_error(
            f"The rows in classes must be 0 to {max(0, len(value) - 1)}, each once. {_ALLOWED}"
        )
    return [by_row[str(row)] for row in range(len(value))]


def _has_consecutive_row_keys(by_row: dict[str, object]) -> bool:
    return by_row.keys() == {str(row) for row in range(len(by_row))}


def _make_class_list_error(detail: str) -> Invalid:
    return Invalid(detail, fields=[{"field": "classes", "message": "cannot be used"}])
