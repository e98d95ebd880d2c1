"""Tables as records with named columns: CSV and similar, a JSON list of objects, JSONL."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from perennial.reading_rules.tables import cells
from perennial.reading_rules.tables.documents import JsonTextReader, NotJson, parse_jsonl_line
from perennial.reading_rules.tables.found import LabelTableCandidate

SAMPLE = 1000
"""Entries from which the columns are determined."""
_FEWEST, _SAMPLE_VALUES = 20, 100_000
_MOST_COLUMNS, _MOST_KEYS = 10_000, 256
"""Limits for cells, and for JSON objects, of which each key is looked up in each entry."""
_JSON_LINES = (".jsonl", ".ndjson", ".manifest")
CELLS, LIST, LINES = "cells", "list", "lines"


class TableRecord(NamedTuple):
    """An entry of a label table: its place and its value.

    Attributes:
        where: its place.
        values: its values by column.
        problem: why it has no values; "" if it has.
        line_count: number of lines that it occupies; the problem counts once for each.
    """

    where: str
    values: Sequence[object]
    problem: str
    line_count: int = 1


@dataclass(frozen=True)
class TableRecords:
    """Records of a table file: rows of cells with column names, or JSON objects.

    Attributes:
        file: the file.
        form: CELLS, LIST (JSON) or LINES (JSONL).
        columns: names in the order of an entry's values.
        header: whether the file has column names; otherwise they are `1`, `2` ….
        separator: character between cells.
    """

    file: LabelTableCandidate
    form: str
    columns: list[str]
    header: bool = True
    separator: str = ","

    def __iter__(self) -> Iterator[TableRecord]:
        """Yield all entries in order. Each iteration reads the file again."""
        return (
            self._iterate_cell_rows()
            if self.form == CELLS
            else self._iterate_entries_of_json_objects()
        )

    def sample_entry_values(self) -> list[Sequence[object]]:
        """Return the values of a table's first entries that have some, as a sample.

        Many columns reduce the number of entries.
        """
        max_entries = max(_FEWEST, min(SAMPLE, _SAMPLE_VALUES // len(self.columns)))
        return [entry.values for entry in islice(self, max_entries) if not entry.problem]

    def iterate_rows_of_any_length(self) -> Iterator[TableRecord]:
        """Yield all rows of cells of a table, regardless of their lengths."""
        for line_number, line_count, values, problem in cells.read_table_rows(
            self.file.data, self.separator
        ):
            yield TableRecord(
                f"line {line_number} of {self.file.name}", values, problem, line_count
            )

    def _iterate_cell_rows(self) -> Iterator[TableRecord]:
        width, name, passed = len(self.columns), self.file.name, not self.header
        for line_number, line_count, values, problem in cells.read_table_rows(
            self.file.data, self.separator
        ):
            if not passed:
                passed = True
                continue
            where = f"line {line_number} of {name}"
            if not problem and len(values) != width:
                # Spreadsheets end rows with empty cells.
                if len(values) > width and not any(values[width:]):
                    values = values[:width]
                else:
                    problem = f"has {len(values):,} cells instead of {width:,}"
            yield TableRecord(where, values, problem, line_count if problem else 1)

    def _iterate_entries_of_json_objects(self) -> Iterator[TableRecord]:
        columns = self.columns
        for where, value in iterate_json_entries(self.file, self.form):
            if isinstance(value, NotJson):
                yield TableRecord(where, (), str(value))
            elif isinstance(value, dict):
                yield TableRecord(where, [value.get(column) for column in columns], "")
            else:
                yield TableRecord(where, (), "is no JSON object")


def iterate_json_entries(file: LabelTableCandidate, form: str) -> Iterator[tuple[str, object]]:
    """Yield (place, value) of each entry of a JSON list or JSONL file; a bad one is a NotJson."""
    if form == LINES:
        for line_number, text in enumerate(cells.open_bytes_as_text(file.data), start=1):
            if text.strip():
                where = f"line {line_number} of {file.name}"
                try:
                    yield where, parse_jsonl_line(text.strip())
                except NotJson as error:
                    yield where, error
        return
    try:
        document = JsonTextReader(read_whole_text_file(file))
        for number in document.iterate_array_item_numbers():
            yield f"entry {number} of {file.name}", document.read_value()
    # The place is lost after an error, so that no further entry can be read.
    except NotJson as error:
        yield f"the rest of {file.name}", error


def read_whole_text_file(file: LabelTableCandidate) -> str:
    """Read the whole text of a file. Raises NotJson if it is not text."""
    try:
        # A few wrong bytes spoil their own entries, but not the whole table.
        return file.data.decode(cells.detect_text_file_encoding(file.data), "surrogateescape")
    except UnicodeDecodeError as error:
        raise NotJson("is not the UTF-16 that it begins as") from error


def detect_cells_or_json_form(file: LabelTableCandidate) -> str:
    """Detect by its first characters if a table file has cells, a JSON list, JSON lines or an
    object.
    """
    first = (
        file.data[:1024].decode(cells.detect_text_file_encoding(file.data), "replace").lstrip()[:1]
    )
    if first == "[":
        return LIST
    if first == "{":
        return LINES if file.ending in _JSON_LINES or _is_jsonl(file) else "object"
    # A .json that begins otherwise is damaged, and its commas separate no cells.
    return "" if file.ending == ".json" else CELLS


def _is_jsonl(file: LabelTableCandidate) -> bool:
    """Return True if a file's first line is a complete JSON object that another line follows."""
    first_lines = [text.strip() for text in islice(cells.open_bytes_as_text(file.data), 2)]
    if len(first_lines) < 2 or not first_lines[1].startswith("{"):
        return False
    try:
        return isinstance(parse_jsonl_line(first_lines[0]), dict)
    except NotJson:
        return False


def open_table_records(file: LabelTableCandidate, form: str) -> TableRecords | None:
    """Open a table file as records; None if it does not have two columns."""
    if form in (LIST, LINES):
        columns: dict[str, None] = {}
        for _, value in islice(iterate_json_entries(file, form), SAMPLE):
            if isinstance(value, dict) and len(columns) < _MOST_KEYS:
                columns |= dict.fromkeys(islice(value, _MOST_KEYS - len(columns)))
        return TableRecords(file, form, list(columns)) if len(columns) >= 2 else None
    # In other files than lists of text, blanks belong to the cells.
    separator = cells.find_cell_separator(file.data, with_blanks=file.ending == ".txt")
    if not separator:
        return None
    # A file may name its separator and hold nothing else.
    first = next(cells.read_table_rows(file.data, separator), None)
    if first is None or not 2 <= len(first.cells) <= _MOST_COLUMNS:
        return None
    return TableRecords(file, CELLS, [cell.strip() for cell in first.cells], separator=separator)


def treat_header_as_entry(records: TableRecords) -> TableRecords:
    """Return a table's records with the first row as an entry, not as a header."""
    names = [str(number) for number in range(1, len(records.columns) + 1)]
    return TableRecords(
        records.file, records.form, names, header=False, separator=records.separator
    )
