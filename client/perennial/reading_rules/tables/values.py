"""Conversion of table values to labels and parts: trimmed, `1.0` as `1`, with missing labels."""

import re
from typing import NamedTuple

from perennial.reading_rules.entries import Part
from perennial.reading_rules.labels import MAX_LABEL_CHARS, explain_invalid_label
from perennial.reading_rules.names import convert_label_to_stripped_nfc, quote_name
from perennial.reading_rules.sentences import format_first_names

SEVERAL = "has several labels, {}: one is read for each image"
_WHOLE = re.compile(r"-?\d{1,15}\.0+")
# Pandas writes a missing value as nan, and classifiers number a missing class as -1.
_NO_LABEL = frozenset({"", "nan", "-1"})
_PARTS: dict[str, Part] = {
    "": "",
    # Vertex AI's word for an image without a part.
    "unassigned": "",
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
}
_MAX_CACHED = 100_000
# `open_bytes_as_text` reads bytes that are not UTF-8 as surrogates.
_SURROGATES = re.compile("[\ud800-\udfff]")


class ParsedLabelValue(NamedTuple):
    """Result of parsing a table's value as a label: the label, or a problem.

    Either `label` or `problem` is set; without both, the value says that there is no label.
    """

    label: str
    problem: str


NOTHING = ParsedLabelValue("", "")


class LabelParser:
    """Parser of a table's values to labels, with a cache for equal values."""

    def __init__(self) -> None:
        self._cache: dict[str, ParsedLabelValue] = {}

    def parse_label_or_describe_problem(self, value: object) -> ParsedLabelValue:
        """Parse a table's cell or JSON value to a label."""
        if isinstance(value, list):
            return self._parse_json_list_as_label(value)
        # Before the numbers, because a bool is an int in Python.
        if isinstance(value, bool):
            value = "true" if value else "false"
        if value is None:
            return NOTHING
        if not isinstance(value, str | int | float):
            return ParsedLabelValue("", "has a label that is neither a text nor a number")
        text = value if isinstance(value, str) else str(value)
        label = self._cache.get(text)
        if label is None:
            label = _parse_label_text(text)
            # Bounds the memory of the cache for a hostile table.
            if len(text) <= 2 * MAX_LABEL_CHARS and len(self._cache) < _MAX_CACHED:
                self._cache[text] = label
        return label

    def _parse_json_list_as_label(self, values: list[object]) -> ParsedLabelValue:
        if any(isinstance(value, list) for value in values):
            return ParsedLabelValue("", "has a list of lists for a label")
        distinct = sorted({str(value) for value in values})
        if len(distinct) > 1:
            return ParsedLabelValue("", SEVERAL.format(format_first_names(distinct, 3)))
        return self.parse_label_or_describe_problem(values[0]) if values else NOTHING


def _parse_label_text(text: str) -> ParsedLabelValue:
    if _SURROGATES.search(text):
        return ParsedLabelValue("", "is not UTF-8: save the table as “CSV UTF-8”")
    label = convert_label_to_stripped_nfc(text)
    # Pandas writes whole numbers so where a column lacks some.
    if _WHOLE.fullmatch(label):
        label = label.partition(".")[0]
    if label.lower() in _NO_LABEL:
        return NOTHING
    wrong = explain_invalid_label(label)
    return (
        ParsedLabelValue("", f"has the label {quote_name(label)}, which {wrong}")
        if wrong
        else ParsedLabelValue(label, "")
    )


def has_invalid_utf8(text: str) -> bool:
    """Return True if a text has bytes that were not valid UTF-8."""
    return not text.isascii() and _SURROGATES.search(text) is not None


def parse_dataset_part_word(word: str) -> Part | None:
    """Return the dataset part that a word means, in any case: "" for unassigned, None for other
    words.
    """
    return _PARTS.get(word.strip().lower())


def find_dataset_part_in_path(path: str) -> Part:
    """Return the last dataset part that a path mentions, as `train.csv` and `valid/_classes.csv`
    do.
    """
    part: Part = ""
    for word in re.split(r"[^a-z]+", path.lower()):
        part = _PARTS.get(word, "") or part
    return part


def find_dataset_part_in_folders(path: str, folders: int) -> Part:
    """Return the dataset part that one of the first `folders` folders of a path is named after, or
    "".
    """
    # If several folders are named like parts, the one nearest to the file counts.
    for folder in reversed(path.split("/")[:folders]):
        part = parse_dataset_part_word(folder)
        if part:
            return part
    return ""
