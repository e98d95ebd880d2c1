"""Roboflow's `_classes.csv`: a column for each class, with 1 in the image's class."""

from collections.abc import Sequence

from perennial.pack.rules.tables.records import CELLS, Records
from perennial.pack.rules.tables.source import Source

TITLE = "Roboflow export"
_NAME = "_classes.csv"
_ONE, _ZERO = frozenset({"1", "1.0"}), frozenset({"0", "0.0", ""})
_MOST_LISTED = 5


def read(source: Source) -> bool:
    """Read a table of classes; return False if the file is not one."""
    records = source.records
    if source.file.name.rpartition("/")[2] != _NAME or records is None or records.form != CELLS:
        return False
    # A table of other contents may have this name.
    if not all(_flags_of(row) for row in records.sample()):
        return False
    _read_rows(source, records)
    return True


def _flags_of(row: Sequence[object]) -> bool:
    return all(str(cell).strip() in _ONE | _ZERO for cell in row[1:])


def _read_rows(source: Source, records: Records) -> None:
    rows = source.begin_rows(TITLE)
    for entry in records:
        if entry.problem:
            # Each line that a broken quote swallowed is a lost entry, as in `plain`.
            for _ in range(entry.line_count):
                rows.add_bad(entry.where, entry.problem)
        elif not _flags_of(entry.values):
            rows.add_bad(entry.where, "has something else than 0 and 1 for a class")
        else:
            flags = [str(cell).strip() in _ONE for cell in entry.values[1:]]
            classes = [
                name for name, is_one in zip(records.columns[1:], flags, strict=True) if is_one
            ]
            # One label is read for each image, so more names only lengthen the message.
            rows.add(entry.values[0], classes[:_MOST_LISTED], entry.where)
