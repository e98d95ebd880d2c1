"""A candidate for a label table, as the readers of all kinds see it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from perennial.reading_rules.entries import BatchReadingOptions
from perennial.reading_rules.tables.documents import NotJson
from perennial.reading_rules.tables.found import LabelTableCandidate, LabelTableEntryCollector
from perennial.reading_rules.tables.images import ImageNameIndex
from perennial.reading_rules.tables.records import (
    TableRecords,
    detect_cells_or_json_form,
    iterate_json_entries,
    open_table_records,
)
from perennial.reading_rules.tables.values import find_dataset_part_in_path


@dataclass
class LabelTableReadingContext:
    """A possible label table with what reading it needs: records, image names and collectors.

    Attributes:
        file: the file.
        images: look-up of the batch's images.
        options: choices of the sender.
        rows_of: returns a kind's collector by its title.
        is_own: whether the file is named as the label table, even if it lists no images.
    """

    file: LabelTableCandidate
    images: ImageNameIndex
    options: BatchReadingOptions
    rows_of: Callable[[str], LabelTableEntryCollector]
    is_own: bool = False

    # Cached, because the readers of all kinds look at the same file in turn.
    @cached_property
    def form(self) -> str:
        """Form of the table file (cells, list, lines or object); see `detect_cells_or_json_form`."""
        return detect_cells_or_json_form(self.file)

    @cached_property
    def records(self) -> TableRecords | None:
        """Records of the table file, or None if it has no such form."""
        return open_table_records(self.file, self.form) if self.form not in ("", "object") else None

    @cached_property
    def first_entry(self) -> object:
        """First readable entry of a JSON list or JSONL table, or None."""
        for _, value in iterate_json_entries(self.file, self.form):
            if not isinstance(value, NotJson):
                return value
        return None

    def start_collector_for_table_file(self, kind: str) -> LabelTableEntryCollector:
        """Return the collector of labels for a kind of table, ready for this table's file."""
        rows = self.rows_of(kind)
        rows.set_current_table_file(self.file)
        return rows

    def iterate_object_entries(
        self, rows: LabelTableEntryCollector, form: str
    ) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the JSON objects of the table file with their places; other values are bad entries."""
        for where, value in iterate_json_entries(self.file, form):
            if isinstance(value, NotJson):
                rows.record_bad_entry(where, str(value))
            elif isinstance(value, dict):
                yield where, value
            else:
                rows.record_bad_entry(where, "is no JSON object")

    def find_image_number(self, name: str) -> int:
        """Return the number of the image that a name in this table means; negative for none."""
        return self.images.find_image_number(
            name, self.file.folder, find_dataset_part_in_path(self.file.name)
        )
