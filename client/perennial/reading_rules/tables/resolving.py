"""Assignment of a label table's entries to images, and the check of bad entries."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perennial.reading_rules.entries import (
    BatchReadingOptions,
    BatchReadingRemedy,
    LabelTableRow,
    LeftOutLabelTableEntry,
    Part,
    UnreadableBatchError,
)
from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables.found import FoundLabelTable
from perennial.reading_rules.tables.images import ImageNameIndex
from perennial.reading_rules.tables.values import find_dataset_part_in_path
from perennial.reading_rules.tables.words import format_share_as_percent


class ImageNumberWithLabelRow(NamedTuple):
    """An image of the batch, by its number, and the table entry that labels it."""

    number: int
    row: LabelTableRow


@dataclass
class ResolvedLabelTableEntries:
    """Entries of a label table after their names were looked up among the batch's images.

    Attributes:
        placed: each image once, in the table's order.
        bad: entries that are left out, those of the table first.
        unlabelled: entries that say that they have no label, and repetitions of an entry.
    """

    placed: list[ImageNumberWithLabelRow] = field(default_factory=list)
    bad: list[LeftOutLabelTableEntry] = field(default_factory=list)
    unlabelled: list[LeftOutLabelTableEntry] = field(default_factory=list)


def resolve_label_table_images(
    table: FoundLabelTable,
    names: Sequence[str],
    remaining: Sequence[int],
    options: BatchReadingOptions,
    *,
    images: ImageNameIndex | None = None,
) -> ResolvedLabelTableEntries:
    """Look up the image of each entry of a label table.

    An image that is named twice with one label counts once. With two labels it is left out, since
    neither is known to be right. `images` looks up images by name; by default it covers the files
    `remaining` without the table's own.

    Raises UnreadableBatchError if more than `options.max_bad` of the entries are bad, or none is good.
    """
    files = set(table.files)
    if images is None:
        images = ImageNameIndex(names, [i for i in remaining if i not in files])
    resolved = ResolvedLabelTableEntries(bad=list(table.bad), unlabelled=list(table.unlabelled))
    by_image: dict[int, LabelTableRow | None] = {}
    for row, file_index in zip(table.rows, table.of, strict=True):
        folder = table.folders[file_index] if table.folders else ""
        number = images.find_image_number(
            row.image,
            folder,
            row.part or (find_dataset_part_in_path(table.names[file_index]) if table.names else ""),
        )
        if number < 0:
            resolved.bad.append(
                LeftOutLabelTableEntry(row.where, images.describe_lookup_failure(row.image, number))
            )
            continue
        # None stands for an image that two rows have contradicted: further rows are bad as well.
        first = by_image.setdefault(number, row)
        if first is row:
            continue
        if first is not None and (first.label, first.part) == (row.label, row.part):
            resolved.unlabelled.append(
                LeftOutLabelTableEntry(row.where, f"names {quote_name(row.image)} again")
            )
            continue
        resolved.bad.append(
            LeftOutLabelTableEntry(row.where, _describe_label_contradiction(row, first))
        )
        if first is not None:
            resolved.bad.append(
                LeftOutLabelTableEntry(first.where, _describe_label_contradiction(first, row))
            )
            by_image[number] = None
    resolved.placed = [
        ImageNumberWithLabelRow(number, row) for number, row in by_image.items() if row is not None
    ]
    _require_few_unreadable_entries(table, resolved, options)
    return resolved


def select_held_out_parts(parts: Iterable[Part]) -> frozenset[Part]:
    """Return which dataset parts of a table are held out: test, or validation without test."""
    present = set(parts)
    candidates: tuple[Part, Part] = ("test", "validation")
    return frozenset(
        part for part in candidates if part in present and (part == "test" or "test" not in present)
    )


def _describe_label_contradiction(row: LabelTableRow, rival: LabelTableRow | None) -> str:
    if rival is None:
        return f"names {quote_name(row.image)} again, with the label {quote_name(row.label)}"
    contradiction = (
        f"the label {quote_name(rival.label)}"
        if rival.label != row.label
        else f"the part {quote_name(rival.part)}"
    )
    return f"names {quote_name(row.image)} with {quote_name(row.label)}; {rival.where} says {contradiction}"


def _require_few_unreadable_entries(
    table: FoundLabelTable, resolved: ResolvedLabelTableEntries, options: BatchReadingOptions
) -> None:
    bad, good = len(resolved.bad), len(resolved.placed)
    first = (
        resolved.bad
        or resolved.unlabelled
        or [LeftOutLabelTableEntry(table.title, "has no entries")]
    )[0]
    example = f"the first is {first.where}: {first.reason}"
    if not good:
        raise UnreadableBatchError(
            f"{table.title} {'labels' if bad else 'lists'} no images: {example}.", "labels"
        )
    # A single mistake never ends a batch, however small.
    if bad > max(options.max_bad * (bad + good), options.max_bad > 0):
        # Rounded up, or the share in the advice would be refused again.
        share = math.ceil(1000 * bad / (bad + good)) / 1000
        raise UnreadableBatchError(
            f"{bad:,} of {bad + good:,} entries of {table.title} cannot be read, more than "
            f"{format_share_as_percent(options.max_bad)}; {example}. Mend them, or leave them out with -o "
            f"max_bad={share:g} (?max_bad={share:g}).",
            "labels",
            [
                BatchReadingRemedy(
                    "max_bad", f"{share:g}", f"Leave out {bad:,} entries that cannot be read"
                )
            ],
        )
