"""Search for the label table among the files of a batch."""

from collections.abc import Callable, Sequence

from perennial.reading_rules.entries import BatchReadingOptions, UnreadableBatchError
from perennial.reading_rules.names import CSV_NAME, is_clearly_no_image, is_junk_path, quote_name
from perennial.reading_rules.sentences import format_first_names
from perennial.reading_rules.tables import (
    fiftyone,
    file_names,
    label_studio,
    labelling_tools,
    plain,
    synsets,
    vertex,
)
from perennial.reading_rules.tables.documents import NotJson
from perennial.reading_rules.tables.found import (
    MAX_TABLE_BYTES,
    FoundLabelTable,
    LabelTableCandidate,
    LabelTableEntryCollector,
    Read,
)
from perennial.reading_rules.tables.images import ImageNameIndex
from perennial.reading_rules.tables.source import LabelTableReadingContext
from perennial.reading_rules.tables.values import find_dataset_part_in_path
from perennial.reading_rules.tables.words import format_column_names, quote_option_value_if_needed

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
"""Number of oversized files that are still read, to determine their size."""
_SHOWN = 60
_KINDS: tuple[Callable[[LabelTableReadingContext], bool], ...] = (
    label_studio.add_labels_if_label_studio_export,
    labelling_tools.add_labels_if_roboflow_table,
    vertex.add_labels_if_vertex_import,
    labelling_tools.add_labels_if_sagemaker_manifest,
    fiftyone.add_labels_if_fiftyone_export,
    labelling_tools.add_labels_if_edge_impulse_export,
    labelling_tools.add_labels_if_make_sense_export,
    plain.add_labels_if_plain_table,
)
"""Readers of all kinds, from those recognised by their own keys to any table."""
_EXPECTED = (
    "a column of images and one of labels, such as “path,label” and then “images/1.jpg,cat”; -o "
    "image=COLUMN -o label=COLUMN (?image=COLUMN&label=COLUMN) name them"
)


def may_be_label_table_name(name: str) -> bool:
    """Return True if a file may be a label table by its name; no other files are read."""
    base = name.rpartition("/")[2].lower()
    # Kaggle's sample_submission.csv has placeholders for labels.
    return (base.endswith(_ENDINGS) and "submission" not in base) or base in (
        *_TEXTS,
        *synsets.FILES,
    )


def find_label_table(
    names: Sequence[str],
    read: Read,
    options: BatchReadingOptions,
    *,
    remaining: Sequence[int] | None = None,
    images: ImageNameIndex | None = None,
    most: int = MOST_ENTRIES,
) -> FoundLabelTable | None:
    """Find and read the label table among the files `names`; None if there is none.

    Args:
        names: paths of the files.
        read: returns the bytes of a file by its number.
        options: choices of the sender.
        remaining: the files that count; by default those that are not hidden.
        images: look-up of images by name; by default over the files.
        most: largest number of entries of a table.

    Raises UnreadableBatchError if several tables or columns fit, an option names something missing,
    `labels.csv` is not a table, or a table exceeds the limits.
    """
    remaining = (
        [i for i in range(len(names)) if not is_junk_path(names[i])]
        if remaining is None
        else remaining
    )
    pictures = [
        i
        for i in remaining
        if not is_clearly_no_image(names[i]) and not may_be_label_table_name(names[i])
    ]
    if options.names_pattern:
        return _label_images_by_file_names(
            file_names.parse_file_name_pattern(options.names_pattern),
            file_names.TITLE,
            names,
            pictures,
            most,
        )
    if options.layout == "folders":
        return None
    search = _LabelTableSearch(
        names, read, options, ImageNameIndex(names, pictures) if images is None else images, most
    )
    table = search.find_label_table(_find_table_candidates(names, remaining, options), pictures)
    if table is not None:
        return table
    pattern = file_names.find_teachable_machine_pattern(
        names, [i for i in pictures if "." in names[i]]
    )
    return (
        _label_images_by_file_names(pattern, file_names.TEACHABLE_MACHINE, names, pictures, most)
        if pattern
        else None
    )


def _label_images_by_file_names(
    pattern: file_names.FileNamePattern,
    title: str,
    names: Sequence[str],
    pictures: Sequence[int],
    max_entries: int,
) -> FoundLabelTable:
    rows = LabelTableEntryCollector(title, max_entries)
    file_names.add_labels_by_file_name_pattern(pattern, names, pictures, rows)
    return rows.table


def _find_table_candidates(
    names: Sequence[str], remaining: Sequence[int], options: BatchReadingOptions
) -> list[int]:
    """Return the files of a batch that may be label tables, upper folders first.

    Files of which a folder has many are left out.
    """
    if options.table:
        path = options.table.removeprefix("./")
        fitting = [i for i in remaining if names[i] == path or names[i].endswith(f"/{path}")]
        if not fitting:
            raise UnreadableBatchError(
                f"There is no file {quote_name(options.table)}, which -o table= names.", "labels"
            )
        return fitting[:_MOST_FILES]
    files_by_ending: dict[tuple[str, str], list[int]] = {}
    for i in remaining:
        if may_be_label_table_name(names[i]) and names[i].count("/") <= _MOST_DEPTH:
            folder, _, base = names[i].rpartition("/")
            files_by_ending.setdefault((folder, base[base.rfind(".") :].lower()), []).append(i)
    candidates = [i for few in files_by_ending.values() if len(few) <= _MOST_ALIKE for i in few]
    # Upper folders first, and by name: the result must not depend on the order of the archive.
    candidates.sort(key=lambda i: (names[i].count("/"), names[i]))
    own_tables = [i for i in candidates if names[i].rpartition("/")[2] == CSV_NAME]
    return [*own_tables[:1], *(i for i in candidates if i not in own_tables[:1])][:_MOST_FILES]


class _LabelTableSearch:
    """Search for a batch's label table, through the candidate files in turn."""

    def __init__(
        self,
        names: Sequence[str],
        read: Read,
        options: BatchReadingOptions,
        images: ImageNameIndex,
        max_entries: int,
    ) -> None:
        self._names, self._read, self._options, self._images = names, read, options, images
        self._max_entries, self._remaining_bytes, self._too_large = max_entries, MAX_TABLE_BYTES, 0
        self._rows_by_kind: dict[str, LabelTableEntryCollector] = {}
        self._label_errors: list[UnreadableBatchError] = []
        self._sources: list[LabelTableReadingContext] = []

    def find_label_table(
        self, candidates: list[int], pictures: Sequence[int]
    ) -> FoundLabelTable | None:
        """Search the candidate files, and return the label table. Raises UnreadableBatchError."""
        is_table_named = bool(self._options.table)
        files = []
        for i in candidates:
            is_own = is_table_named or self._is_labels_csv_near_top(i)
            file = self._read_table_candidate(i, is_own)
            if file is None:
                continue
            if is_own and not self._add_labels_if_label_table(file, is_own=True):
                synset_table = self._label_images_by_synset_tables([file], pictures)
                if synset_table is not None:
                    return synset_table
                raise (
                    self._label_errors[0]
                    if self._label_errors
                    else self._build_unread_table_error(file)
                )
            if is_own and not is_table_named:
                return self._choose_found_table()
            files.append(file)
        if not is_table_named:
            synset_table = self._label_images_by_synset_tables(files, pictures)
            if synset_table is not None:
                return synset_table
            for file in files:
                self._add_labels_if_label_table(file)
        return self._choose_found_table()

    def _is_labels_csv_near_top(self, number: int) -> bool:
        folder, _, base = self._names[number].rpartition("/")
        # Named as a label table: it must be readable, or the batch ends.
        return base == CSV_NAME and "/" not in folder

    def _read_table_candidate(self, number: int, is_own: bool) -> LabelTableCandidate | None:
        """Open a file that may be a label table.

        None means that it is unreadable or too large, and need not be a table.
        """
        if not is_own and self._too_large >= _MOST_TOO_LARGE:
            return None
        try:
            data = self._read(number)
        except UnreadableBatchError:
            # The table that the sender means must not be passed over.
            if is_own:
                raise
            return None
        name = self._names[number]
        if len(data) > self._remaining_bytes:
            if not is_own:
                self._too_large += 1
                return None
            raise UnreadableBatchError(
                f"{quote_name(name)} is larger than {self._remaining_bytes:,} bytes.", "too_large"
            )
        self._remaining_bytes -= len(data)
        return LabelTableCandidate(number, name, data)

    def _add_labels_if_label_table(self, file: LabelTableCandidate, is_own: bool = False) -> bool:
        source = LabelTableReadingContext(
            file, self._images, self._options, self._get_entry_collector_of_kind, is_own
        )
        self._sources.append(source)
        try:
            return any(kind(source) for kind in _KINDS)
        except UnreadableBatchError as error:
            if error.kind != "labels":
                raise
            # Raised only if no other table can be read.
            self._label_errors.append(error)
        except NotJson:
            return False
        return False

    def _get_entry_collector_of_kind(self, kind: str) -> LabelTableEntryCollector:
        if kind not in self._rows_by_kind:
            self._rows_by_kind[kind] = LabelTableEntryCollector(kind, self._max_entries)
        return self._rows_by_kind[kind]

    def _label_images_by_synset_tables(
        self, files: list[LabelTableCandidate], pictures: Sequence[int]
    ) -> FoundLabelTable | None:
        mapping = next(
            (f for f in files if f.name.rpartition("/")[2].lower() in synsets.FILES), None
        )
        if mapping is None or not synsets.has_synset_folders(self._names, pictures):
            return None
        rows = LabelTableEntryCollector(synsets.TITLE, self._max_entries)
        if not synsets.label_images_by_synset_table(mapping, self._names, pictures, rows):
            return None
        for file in files:
            if file.name.rpartition("/")[2].lower() == synsets.VALIDATION:
                synsets.add_labels_of_tiny_imagenet_validation(file, mapping, rows)
        return rows.table

    def _choose_found_table(self) -> FoundLabelTable | None:
        """Return the label table of the search, after checking that there is only one kind.

        Raises UnreadableBatchError if there are tables of several kinds.
        """
        tables = [rows.table for rows in self._rows_by_kind.values()]
        if not tables:
            if self._label_errors:
                raise self._label_errors[0]
            self._refuse_options_naming_missing_columns()
            return None
        specific_tables = [table for table in tables if not plain.is_plain_table_kind(table.kind)]
        if len(specific_tables or tables) > 1:
            files = [name for table in specific_tables or tables for name in table.names]
            raise UnreadableBatchError(
                f"The files {format_first_names(files)} all look like label tables. Say which is meant "
                f"with -o table={quote_option_value_if_needed(files[0])}, or send the others apart.",
                "labels",
            )
        table = (specific_tables or tables)[0]
        # Only of several files: a lone `test.csv` would leave nothing to learn.
        if len(table.files) > 1:
            parts = [find_dataset_part_in_path(name) for name in table.names]
            table.rows = [
                row if row.part else row._replace(part=parts[file_index])
                for row, file_index in zip(table.rows, table.of, strict=True)
            ]
        return table

    def _refuse_options_naming_missing_columns(self) -> None:
        """Raise UnreadableBatchError for an option that names a column that no table has."""
        for option, column in (
            ("image", self._options.image_column),
            ("label", self._options.label_column),
        ):
            if column:
                table_columns = "; ".join(
                    f"{quote_name(source.file.name)} has {format_column_names(source.records.columns)}"
                    for source in self._sources[:3]
                    if source.records is not None
                )
                there_are = f": {table_columns}" if table_columns else ", and there is no table"
                raise UnreadableBatchError(
                    f"No table has a column {quote_name(column)} that fits -o "
                    f"{option}={quote_option_value_if_needed(column)}{there_are}.",
                    "labels",
                )

    def _build_unread_table_error(self, file: LabelTableCandidate) -> UnreadableBatchError:
        records = self._sources[-1].records
        self._refuse_options_naming_missing_columns()
        if records is None:
            first = file.data[:200].decode("utf-8", "replace").splitlines()
            finding = (
                f"begins with {quote_name(first[0])}" if first and first[0].strip() else "is empty"
            )
            return UnreadableBatchError(
                f"{quote_name(file.name)} is no table: it {finding}. Expected is {_EXPECTED}.",
                "labels",
            )
        row = next((list(map(str, entry.values)) for entry in records if not entry.problem), [])
        sample = (
            f"; its first entry is {quote_name(','.join(row[:_SHOWN])[:_SHOWN], _SHOWN)}"
            if row
            else ", and it has no entries"
        )
        return UnreadableBatchError(
            f"{quote_name(file.name)} has the columns {format_column_names(records.columns)}{sample}, and none "
            f"of them names images "
            f"of the batch, or nothing stands beside them. Expected is {_EXPECTED}.",
            "labels",
        )
