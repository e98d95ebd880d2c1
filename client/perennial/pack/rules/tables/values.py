"""Values of a table as labels and parts: trimmed, `1.0` as `1`, and what says that there is no label."""

import re
from typing import NamedTuple

from perennial.pack.rules.entries import Part
from perennial.pack.rules.labels import MAX_LABEL_CHARS, wrong_label
from perennial.pack.rules.names import normal_label, show
from perennial.pack.rules.sentences import listed

SEVERAL = "has several labels, {}: one is read for each image"
_WHOLE = re.compile(r"-?\d{1,15}\.0+")
_NO_LABEL = frozenset({"", "nan", "-1"})
_PARTS: dict[str, Part] = {
    "": "",
    "unassigned": "",
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
}
_MAX_KNOWN = 100_000
_SURROGATES = re.compile("[\ud800-\udfff]")


class LabelValue(NamedTuple):
    """A value read as a label: the label, or why it is none; without either, the value says that there is none."""

    label: str
    problem: str


NOTHING = LabelValue("", "")


class Labels:
    """Reads values as labels; equal values are looked at once."""

    def __init__(self) -> None:
        self._known: dict[str, LabelValue] = {}

    def read(self, value: object) -> LabelValue:
        """The label that a cell, or a value of a JSON document, stands for."""
        if isinstance(value, list):
            return self._of_list(value)
        if isinstance(value, bool):
            value = "true" if value else "false"
        if value is None:
            return NOTHING
        if not isinstance(value, str | int | float):
            return LabelValue("", "has a label that is neither a text nor a number")
        text = value if isinstance(value, str) else str(value)
        known = self._known.get(text)
        if known is None:
            known = _read_text(text)
            if len(text) <= 2 * MAX_LABEL_CHARS and len(self._known) < _MAX_KNOWN:
                self._known[text] = known
        return known

    def _of_list(self, values: list[object]) -> LabelValue:
        if any(isinstance(value, list) for value in values):
            return LabelValue("", "has a list of lists for a label")
        different = sorted({str(value) for value in values})
        if len(different) > 1:
            return LabelValue("", SEVERAL.format(listed(different, 3)))
        return self.read(values[0]) if values else NOTHING


def _read_text(text: str) -> LabelValue:
    if _SURROGATES.search(text):
        return LabelValue("", "is not UTF-8: save the table as “CSV UTF-8”")
    label = normal_label(text)
    if _WHOLE.fullmatch(label):
        label = label.partition(".")[0]
    if label.lower() in _NO_LABEL:
        return NOTHING
    wrong = wrong_label(label)
    return LabelValue("", f"has the label {show(label)}, which {wrong}") if wrong else LabelValue(label, "")


def is_broken(text: str) -> bool:
    """Return whether a text has bytes that were not UTF-8."""
    return not text.isascii() and _SURROGATES.search(text) is not None


def part_of(word: str) -> Part | None:
    """The part that a word stands for, in any case; empty for none said, None where it is no such word."""
    return _PARTS.get(word.strip().lower())


def part_in(path: str) -> Part:
    """The last part that a path speaks of: `train.csv`, `valid/_classes.csv`; else empty."""
    found: Part = ""
    for word in re.split(r"[^a-z]+", path.lower()):
        found = _PARTS.get(word, "") or found
    return found
