"""The label table of a batch: which of its files it is, and what it says."""

from collections.abc import Callable, Sequence

from core.ingest.rules.entries import ReadingOptions, RuleError
from core.ingest.rules.names import CSV_NAME, is_junk, is_no_image, show
from core.ingest.rules.sentences import listed
from core.ingest.rules.tables import (
    edge_impulse,
    fiftyone,
    file_names,
    label_studio,
    make_sense,
    manifest,
    plain,
    roboflow,
    synsets,
    vertex,
)
from core.ingest.rules.tables.documents import NotJson
from core.ingest.rules.tables.found import MAX_TABLE_BYTES, FoundTable, Read, Rows, TableFile
from core.ingest.rules.tables.images import ImageNames
from core.ingest.rules.tables.source import Source
from core.ingest.rules.tables.values import part_in
from core.ingest.rules.tables.words import list_columns, write_value

MOST_ENTRIES = 500_000
_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".manifest", ".labels")
_TEXTS = (
    "annotations.txt",
    "labels.txt",
    "train.txt",
    "val.txt",
    "test.txt",
    "image_labels.txt",
    synsets.VALIDATION,
)
_MOST_FILES, _MOST_ALIKE = 40, 20
_MOST_DEPTH = 4
_MOST_TOO_LARGE = 4
"""Files beyond the bound that are read all the same, to see their size."""
_SHOWN = 60
_KINDS: tuple[Callable[[Source], bool], ...] = (
    label_studio.read,
    roboflow.read,
    vertex.read,
    manifest.read,
    fiftyone.read,
    edge_impulse.read,
    make_sense.read,
    plain.read,
)
"""From the ones that are known by their own keys to any table."""
_EXPECTED = (
    "a column of images and one of labels, such as “path,label” and then “images/1.jpg,cat”; -o image=COLUMN "
    "-o label=COLUMN (?image=COLUMN&label=COLUMN) name them"
)


def is_table_name(name: str) -> bool:
    """Return whether a file may be a label table by its name: those are the only ones that are read."""
    base = name.rpartition("/")[2].lower()
    return (base.endswith(_ENDINGS) and "submission" not in base) or base in (*_TEXTS, *synsets.FILES)


def find_table(
    names: Sequence[str],
    read: Read,
    options: ReadingOptions,
    *,
    kept: Sequence[int] | None = None,
    images: ImageNames | None = None,
    most: int = MOST_ENTRIES,
) -> FoundTable | None:
    """The label table of the files `names`; None where no file is one.

    `read(i)`: the bytes of file i; `kept`: the files that count, default those that are not hidden; `images`: what
    finds an image by its name, default the files; `most`: entries that a table may have.

    Raises RuleError: several tables or columns fit, an option names what is not there, `labels.csv` is no table, or a
    table is beyond the bounds.
    """
    kept = [i for i in range(len(names)) if not is_junk(names[i])] if kept is None else kept
    pictures = [i for i in kept if not is_no_image(names[i]) and not is_table_name(names[i])]
    if options.names_pattern:
        return _by_names(
            file_names.read_pattern(options.names_pattern), file_names.TITLE, names, pictures, most
        )
    if options.layout == "folders":
        return None
    search = _Search(names, read, options, ImageNames(names, pictures) if images is None else images, most)
    found = search.run(_candidates(names, kept, options), pictures)
    if found is not None:
        return found
    pattern = file_names.teachable_machine(names, [i for i in pictures if "." in names[i]])
    return _by_names(pattern, file_names.TEACHABLE_MACHINE, names, pictures, most) if pattern else None


def _by_names(
    pattern: file_names.Pattern, title: str, names: Sequence[str], pictures: Sequence[int], most: int
) -> FoundTable:
    rows = Rows(title, most)
    file_names.read(pattern, names, pictures, rows)
    return rows.found


def _candidates(names: Sequence[str], kept: Sequence[int], options: ReadingOptions) -> list[int]:
    """The files that may be tables, the upper ones first, without those of which a folder has many."""
    if options.table:
        wanted = options.table.removeprefix("./")
        fitting = [i for i in kept if names[i] == wanted or names[i].endswith(f"/{wanted}")]
        if not fitting:
            raise RuleError(f"There is no file {show(options.table)}, which -o table= names.", "labels")
        return fitting[:_MOST_FILES]
    alike: dict[tuple[str, str], list[int]] = {}
    for i in kept:
        if is_table_name(names[i]) and names[i].count("/") <= _MOST_DEPTH:
            folder, _, base = names[i].rpartition("/")
            alike.setdefault((folder, base[base.rfind(".") :].lower()), []).append(i)
    found = [i for few in alike.values() if len(few) <= _MOST_ALIKE for i in few]
    found.sort(key=lambda i: (names[i].count("/"), names[i]))
    own = [i for i in found if names[i].rpartition("/")[2] == CSV_NAME]
    return [*own[:1], *(i for i in found if i not in own[:1])][:_MOST_FILES]


class _Search:
    """Looks at the candidates in turn, until those of one kind are found."""

    def __init__(
        self, names: Sequence[str], read: Read, options: ReadingOptions, images: ImageNames, most: int
    ) -> None:
        self._names, self._read, self._options, self._images = names, read, options, images
        self._most, self._left, self._too_large = most, MAX_TABLE_BYTES, 0
        self._found: dict[str, Rows] = {}
        self._asked: list[RuleError] = []
        self._seen: list[Source] = []

    def run(self, candidates: list[int], pictures: Sequence[int]) -> FoundTable | None:
        """The table among the candidates. Raises RuleError."""
        wanted = bool(self._options.table)
        files = []
        for i in candidates:
            is_own = wanted or self._is_own(i)
            file = self._open(i, is_own)
            if file is None:
                continue
            if is_own and not self._is_read(file, is_own=True):
                by_ids = self._synsets([file], pictures)
                if by_ids is not None:
                    return by_ids
                raise self._asked[0] if self._asked else self._wrong(file)
            if is_own and not wanted:
                return self._one()
            files.append(file)
        if not wanted:
            by_ids = self._synsets(files, pictures)
            if by_ids is not None:
                return by_ids
            for file in files:
                self._is_read(file)
        return self._one()

    def _is_own(self, number: int) -> bool:
        folder, _, base = self._names[number].rpartition("/")
        return base == CSV_NAME and "/" not in folder  # meant as one: it is read, or the batch ends

    def _open(self, number: int, is_own: bool) -> TableFile | None:
        """A candidate's bytes; None where it cannot be read, or is too large, and need not be a table."""
        if not is_own and self._too_large >= _MOST_TOO_LARGE:
            return None
        try:
            data = self._read(number)
        except RuleError:
            if is_own:
                raise
            return None
        name = self._names[number]
        if len(data) > self._left:
            if not is_own:
                self._too_large += 1
                return None
            raise RuleError(f"{show(name)} is larger than {self._left:,} bytes.", "too_large")
        self._left -= len(data)
        return TableFile(number, name, data)

    def _is_read(self, file: TableFile, is_own: bool = False) -> bool:
        source = Source(file, self._images, self._options, self._rows_of, is_own)
        self._seen.append(source)
        try:
            return any(kind(source) for kind in _KINDS)
        except RuleError as error:
            if error.kind != "labels":
                raise
            self._asked.append(error)
        except NotJson:
            return False
        return False

    def _rows_of(self, kind: str) -> Rows:
        if kind not in self._found:
            self._found[kind] = Rows(kind, self._most)
        return self._found[kind]

    def _synsets(self, files: list[TableFile], pictures: Sequence[int]) -> FoundTable | None:
        mapping = next((f for f in files if f.name.rpartition("/")[2].lower() in synsets.FILES), None)
        if mapping is None or not synsets.has_folders(self._names, pictures):
            return None
        rows = Rows(synsets.TITLE, self._most)
        if not synsets.read(mapping, self._names, pictures, rows):
            return None
        for file in files:
            if file.name.rpartition("/")[2].lower() == synsets.VALIDATION:
                synsets.read_validation(file, mapping, rows)
        return rows.found

    def _one(self) -> FoundTable | None:
        """The table that was found. Raises RuleError where tables of several sorts were."""
        found = [rows.found for rows in self._found.values()]
        if not found:
            if self._asked:
                raise self._asked[0]
            self._refuse_unknown_columns()
            return None
        own = [table for table in found if not plain.is_plain(table.kind)]
        if len(own or found) > 1:
            files = [name for table in own or found for name in table.names]
            raise RuleError(
                f"The files {listed(files)} all look like label tables. Say which is meant with "
                f"-o table={write_value(files[0])}, or send the others apart.",
                "labels",
            )
        table = (own or found)[0]
        if len(table.files) > 1:
            parts = [part_in(name) for name in table.names]
            table.rows = [
                row if row.part else row._replace(part=parts[of])
                for row, of in zip(table.rows, table.of, strict=True)
            ]
        return table

    def _refuse_unknown_columns(self) -> None:
        """Raise RuleError for an option that names a column that no table has."""
        for option, column in (("image", self._options.image_column), ("label", self._options.label_column)):
            if column:
                seen = "; ".join(
                    f"{show(source.file.name)} has {list_columns(source.records.columns)}"
                    for source in self._seen[:3]
                    if source.records is not None
                )
                raise RuleError(
                    f"No table has a column {show(column)} that fits -o {option}={write_value(column)}"
                    f"{f': {seen}' if seen else ', and there is no table'}.",
                    "labels",
                )

    def _wrong(self, file: TableFile) -> RuleError:
        records = self._seen[-1].records
        self._refuse_unknown_columns()
        if records is None:
            first = file.data[:200].decode("utf-8", "replace").splitlines()
            found = f"begins with {show(first[0])}" if first and first[0].strip() else "is empty"
            return RuleError(f"{show(file.name)} is no table: it {found}. Expected is {_EXPECTED}.", "labels")
        row = next((list(map(str, entry.values)) for entry in records if not entry.problem), [])
        sample = (
            f"; its first entry is {show(','.join(row[:_SHOWN])[:_SHOWN], _SHOWN)}"
            if row
            else ", and it has no entries"
        )
        return RuleError(
            f"{show(file.name)} has the columns {list_columns(records.columns)}{sample}, and none of them names images "
            f"of the batch, or nothing stands beside them. Expected is {_EXPECTED}.",
            "labels",
        )
