"""Results of reading a label table: rows, entries that are left out, and the table's files."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from perennial.reading_rules.entries import (
    LabelTableRow,
    LeftOutLabelTableEntry,
    Part,
    UnreadableBatchError,
)
from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables.values import LabelParser

MAX_TABLE_BYTES = 32 << 20
"""Largest label file in bytes, and largest total of all candidates in a batch."""
MAX_NAME_CHARS = 1024


@dataclass(frozen=True)
class LabelTableCandidate:
    """A file of the batch that may be a label table: number, path, and bytes."""

    number: int
    name: str
    data: bytes

    @property
    def folder(self) -> str:
        """Folder of the possible label table; "" at the top."""
        return self.name.rpartition("/")[0]

    @property
    def ending(self) -> str:
        """File ending of the possible label table, with its dot and in lower case."""
        base = self.name.rpartition("/")[2].lower()
        return base[base.rfind(".") :] if "." in base else ""


@dataclass
class FoundLabelTable:
    """A label table that was found and read in a batch: its labelled images and unreadable entries.

    Attributes:
        kind: name of the kind for a person.
        files: numbers of the files that it was read from; empty if labels are in file names.
        rows: the labelled images.
        of: index in `files` for each row.
        bad: unreadable entries.
        unlabelled: entries that say that they have no label.
        folders, names: folder and path of each file.
    """

    kind: str
    files: list[int] = field(default_factory=list)
    rows: list[LabelTableRow] = field(default_factory=list)
    of: "array[int]" = field(default_factory=lambda: array("l"))
    bad: list[LeftOutLabelTableEntry] = field(default_factory=list)
    unlabelled: list[LeftOutLabelTableEntry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The label table's name for sentences: its file, or the first of several."""
        if not self.names:
            return f"The batch ({self.kind})"
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"{quote_name(self.names[0])}{more} ({self.kind})"


class LabelTableEntryCollector:
    """Collector of label table entries while the files of one kind are read.

    Raises UnreadableBatchError beyond the limit of entries.
    """

    def __init__(self, kind: str, max_entries: int) -> None:
        self.table = FoundLabelTable(kind)
        self.labels = LabelParser()
        self._max_entries = max_entries
        self._entries = 0

    def set_current_table_file(self, file: LabelTableCandidate) -> None:
        """Begin a label table file; the following entries belong to it."""
        self.table.files.append(file.number)
        self.table.folders.append(file.folder)
        self.table.names.append(file.name)

    def add_label_entry(self, image: object, label: object, where: str, part: Part = "") -> None:
        """Add an entry of a label table: its image's name and its label, as written in the table."""
        # Names of images may be numbers; a bool is an int in Python.
        if not isinstance(image, str | int) or isinstance(image, bool):
            return self.record_bad_entry(where, "names no image")
        name = str(image).strip()
        if not name or len(name) > MAX_NAME_CHARS:
            return self.record_bad_entry(
                where,
                f"has a name of more than {MAX_NAME_CHARS} characters"
                if name
                else "names no image",
            )
        read = self.labels.parse_label_or_describe_problem(label)
        if read.problem:
            return self.record_bad_entry(where, read.problem)
        self._count_entry_within_limit()
        if not read.label:
            self.table.unlabelled.append(
                LeftOutLabelTableEntry(where, f"{quote_name(name)} has no label")
            )
            return None
        self.table.rows.append(LabelTableRow(name, read.label, part, where))
        # Labels in the names of files belong to no file.
        self.table.of.append(max(0, len(self.table.files) - 1))
        return None

    def record_bad_entry(self, where: str, reason: str) -> None:
        """Add an unreadable entry of a label table, with its place and the reason."""
        # Bad entries are stored as well, so they count for the limit.
        self._count_entry_within_limit()
        self.table.bad.append(LeftOutLabelTableEntry(where, reason))

    def _count_entry_within_limit(self) -> None:
        self._entries += 1
        if self._entries > self._max_entries:
            raise UnreadableBatchError(
                f"{self.table.title} has more than {self._max_entries:,} entries. Send it in "
                f"several batches.",
                "too_large",
            )


Read = Callable[[int], bytes]
"""Function that returns the bytes of a file by its number. Raises UnreadableBatchError if it is unreadable."""
