"""A file that may be a label table, as each kind of table looks at it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from perennial.pack.rules.entries import ReadingOptions
from perennial.pack.rules.tables.documents import NotJson
from perennial.pack.rules.tables.found import Rows, TableFile
from perennial.pack.rules.tables.images import ImageNames
from perennial.pack.rules.tables.records import Records, form_of, objects_of, open_records
from perennial.pack.rules.tables.values import part_in


@dataclass
class Source:
    """A file, the images that it may name, and where its entries go: `rows_of` gives a kind's rows by its title;
    `is_own`: the file is meant as a label table, whatever its images are."""

    file: TableFile
    images: ImageNames
    options: ReadingOptions
    rows_of: Callable[[str], Rows]
    is_own: bool = False

    @cached_property
    def form(self) -> str:
        """See `form_of`."""
        return form_of(self.file)

    @cached_property
    def records(self) -> Records | None:
        """The file as records; None where it is none."""
        return open_records(self.file, self.form) if self.form not in ("", "object") else None

    @cached_property
    def first(self) -> object:
        """The first entry of a JSON list or of JSONL that can be read; None without one."""
        for _, value in objects_of(self.file, self.form):
            if not isinstance(value, NotJson):
                return value
        return None

    def begin(self, kind: str) -> Rows:
        """The rows of a kind, to which those of this file are added."""
        rows = self.rows_of(kind)
        rows.begin(self.file)
        return rows

    def read_objects(self, rows: Rows, form: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Read the JSON objects of the file with their places; anything else is a bad entry of `rows`."""
        for where, value in objects_of(self.file, form):
            if isinstance(value, NotJson):
                rows.spoil(where, str(value))
            elif isinstance(value, dict):
                yield where, value
            else:
                rows.spoil(where, "is no JSON object")

    def find(self, name: str) -> int:
        """The number of the image that a name in this file means; negative for none."""
        return self.images.find(name, self.file.folder, part_in(self.file.name))
