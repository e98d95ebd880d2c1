"""Labels in file names: `{label}_{number}`, and Teachable Machine's `Class 1-!-0.jpg`.

A pattern is literal text around `{label}`, with `{number}` for digits and at most one `{any}` for
anything. The pieces before the label are matched from the front and those after it from the back,
so that each name takes one pass.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from perennial.reading_rules.entries import UnreadableBatchError
from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables.found import LabelTableEntryCollector
from perennial.reading_rules.tables.values import find_dataset_part_in_folders

TITLE = "labels in the names of files"
TEACHABLE_MACHINE = "Teachable Machine"
MAX_PATTERN_CHARS, MAX_NAME_CHARS = 200, 255
_TEACHABLE = "{label}-!-{number}"
_USUAL = ("{label}_{number}", "{label}-{number}", "{label}.{number}", "{label} ({number})", "{label} {number}",
          "{number}_{label}", "{number}-{label}", "{label}{number}")  # fmt: skip
_FITS = 0.95
_FIELD = re.compile(r"(\{label\}|\{number\}|\{any\})")
_OF_CAMERAS = frozenset(
    (
        "img",
        "image",
        "images",
        "dsc",
        "dscn",
        "dcim",
        "pict",
        "pic",
        "p",
        "photo",
        "picture",
        "frame",
        "scan",
    )
)


class FileNamePattern(NamedTuple):
    """Pattern that extracts a label from file names, in pieces before and after the label."""

    before: tuple[str, ...]
    after: tuple[str, ...]

    def extract_label(self, stem: str) -> str:
        """Extract the label from a file name without its ending; "" if the name does not fit the
        pattern.
        """
        start, end = 0, len(stem)
        for at, piece in enumerate(self.before):
            start = _match_pattern_piece_forwards(stem, start, piece, self.before[at + 1 :])
            if start < 0:
                return ""
        for at, piece in enumerate(self.after):
            end = _match_pattern_piece_backwards(stem, end, piece, self.after[at + 1 :], start)
            if end < start:
                return ""
        return stem[start:end].strip()


def parse_file_name_pattern(text: str) -> FileNamePattern:
    """Parse a file name pattern that the sender gave as an option. Raises UnreadableBatchError."""
    example = "such as {label}_{number}"
    if len(text) > MAX_PATTERN_CHARS:
        raise UnreadableBatchError(
            f"names_pattern is longer than {MAX_PATTERN_CHARS} characters.", "labels"
        )
    pieces = [piece for piece in _FIELD.split(text) if piece]
    if pieces.count("{label}") != 1:
        raise UnreadableBatchError(
            f"names_pattern is {quote_name(text)}; it must have {{label}} in it once, {example}. "
            "Regular expressions are read by the command line and the Python client, for folders.",
            "labels",
        )
    at = pieces.index("{label}")
    before, after = tuple(pieces[:at]), tuple(reversed(pieces[at + 1 :]))
    fields = [piece for piece in (*before, *after) if _FIELD.fullmatch(piece)]
    if fields.count("{any}") > 1 or any(
        "{" in p or "}" in p for p in pieces if not _FIELD.fullmatch(p)
    ):
        raise UnreadableBatchError(
            f"names_pattern is {quote_name(text)}; its fields are {{label}}, {{number}} and, once, "
            f"{{any}}, {example}.",
            "labels",
        )
    if (
        # Anything right beside the label would leave open where the label ends.
        _has_only_given_field(before[-1:], "{any}")
        or _has_only_given_field(after[-1:], "{any}")
        or _has_adjacent_pattern_fields(before)
        or _has_adjacent_pattern_fields(after)
    ):
        raise UnreadableBatchError(
            f"names_pattern is {quote_name(text)}; fields must have text between them, {example}.",
            "labels",
        )
    return FileNamePattern(before, after)


def add_labels_by_file_name_pattern(
    pattern: FileNamePattern,
    names: Sequence[str],
    images: Iterable[int],
    rows: LabelTableEntryCollector,
) -> None:
    """Label the images whose file names fit a pattern; the others become bad entries."""
    for i in images:
        folders, _, base = names[i].rpartition("/")
        stem = base[: base.rfind(".")] if "." in base else base
        label = pattern.extract_label(stem) if len(base) <= MAX_NAME_CHARS else ""
        if label:
            rows.add_label_entry(
                names[i],
                label,
                f"the name {quote_name(names[i])}",
                find_dataset_part_in_folders(names[i], folders.count("/") + 1),
            )
        else:
            rows.record_bad_entry(names[i], "does not fit the pattern of names")


def find_teachable_machine_pattern(
    names: Sequence[str], images: Sequence[int]
) -> FileNamePattern | None:
    """Return Teachable Machine's file name pattern if nearly all images have such names."""
    with_mark = sum("-!-" in names[i] for i in images)
    return (
        parse_file_name_pattern(_TEACHABLE) if images and with_mark >= _FITS * len(images) else None
    )


def suggest_file_name_pattern(names: Sequence[str], images: Sequence[int]) -> str:
    """Return a usual file name pattern that at least 95 % of the images fit, or "".

    Labels that differ for each image, or that cameras write, are not accepted.
    """
    stems = [names[i].rpartition("/")[2].rpartition(".")[0] for i in images]
    # The first that fits: the last one, without a separator, fits most numbered names.
    for text in _USUAL:
        pattern = parse_file_name_pattern(text)
        labels = [pattern.extract_label(stem) for stem in stems if len(stem) <= MAX_NAME_CHARS]
        fitting = [label for label in labels if label]
        distinct = set(fitting)
        if not fitting or len(fitting) < _FITS * len(stems) or len(distinct) * 2 > len(fitting):
            continue
        if not all(
            label.lower().strip("_- ") in _OF_CAMERAS or label.isdigit() for label in distinct
        ):
            return text
    return ""


def _has_only_given_field(last: tuple[str, ...], field: str) -> bool:
    return last == (field,)


def _has_adjacent_pattern_fields(pieces: tuple[str, ...]) -> bool:
    return any(a.startswith("{") and b.startswith("{") for a, b in pairwise(pieces))


def _match_pattern_piece_forwards(
    stem: str, at: int, piece: str, next_pieces: tuple[str, ...]
) -> int:
    """Match a piece of a file name pattern from the front; return the position after it, negative
    if it does not fit.

    `{any}` extends to the last occurrence of the next piece.
    """
    if piece == "{number}":
        end = at
        # Not isdigit(), which accepts the digits of all scripts.
        while end < len(stem) and "0" <= stem[end] <= "9":
            end += 1
        return end if end > at else -1
    if piece == "{any}":
        return stem.rfind(next_pieces[0], at) if next_pieces else -1
    return at + len(piece) if stem.startswith(piece, at) else -1


def _match_pattern_piece_backwards(
    stem: str, at: int, piece: str, next_pieces: tuple[str, ...], start: int
) -> int:
    """Match a piece of a file name pattern from the back; return the position before it, negative
    if it does not fit.
    """
    if piece == "{number}":
        begin = at
        while begin > start and "0" <= stem[begin - 1] <= "9":
            begin -= 1
        return begin if begin < at else -1
    if piece == "{any}":
        position = stem.find(next_pieces[0], start, at) if next_pieces else -1
        return -1 if position < 0 else position + len(next_pieces[0])
    return at - len(piece) if stem.endswith(piece, start, at) else -1
