"""A Hugging Face `imagefolder`: images with labels in metadata.csv or metadata.jsonl."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from perennial.pack import parts
from perennial.pack.bad import MAX_BAD, BadEntryCollector
from perennial.pack.errors import PackError
from perennial.pack.files import FileImages, SourceFolder
from perennial.pack.sources.csv_file import add_table_images
from perennial.pack.text import format_count_with_noun, format_first_names, quote_name

METADATA = ("metadata.csv", "metadata.jsonl")
_FILE = "file_name"


class MetadataImages(FileImages):
    """Labelled image files that metadata.csv or metadata.jsonl names (`datasets`' ImageFolder)."""

    def __init__(
        self,
        folder: Path,
        *,
        label: str = "label",
        max_bad: float = MAX_BAD,
        allow_outside: bool = False,
    ) -> None:
        """Read the metadata without reading images.

        Args:
            label: the column of labels.
            max_bad: largest allowed share of bad rows.

        Raises:
            PackError: the metadata cannot be used, or too many rows are bad.
        """
        super().__init__(f"the imagefolder {quote_name(folder.name or folder)}", folder)
        root = SourceFolder(folder, allow_outside)
        files = find_imagefolder_metadata_files(root.list_files())
        if not files:
            raise PackError(f"The folder {quote_name(folder)} has no {' or '.join(METADATA)}.")
        bad = BadEntryCollector(self.origin, max_bad)
        self._unlabelled = 0
        rows_with_parts = [
            (row, parts.find_dataset_part_in_name(row[0].partition("/")[0]))
            for file in files
            for row in self._iterate_metadata_rows(root, file, label, bad)
        ]
        if not rows_with_parts:
            # If all rows were bad, their reasons say more than the error below.
            bad.check_bad_share_and_build_warning(0)
            raise PackError(f"{format_first_names(files)} in {quote_name(folder)} list no images.")
        as_taken = parts.map_dataset_parts_to_splits(
            (part for _, part in rows_with_parts), quote_name(folder)
        )
        rows = (
            (path, name, as_taken[part], where) for (path, name, where), part in rows_with_parts
        )
        add_table_images(self, rows, root, bad)
        self.warnings = [*bad.check_bad_share_and_build_warning(len(self.rows)), *self.warnings]
        if self._unlabelled:
            self.warnings.append(
                f"{format_count_with_noun(self._unlabelled, 'row')} without a label left out."
            )

    def _iterate_metadata_rows(
        self, root: SourceFolder, file: str, label: str, bad: BadEntryCollector
    ) -> Iterator[tuple[str, str, str]]:
        """Yield path, label and place of each row of a metadata file. Raises PackError."""
        folder = f"{file.rpartition('/')[0]}/" if "/" in file else ""
        path = Path(root.resolve_named_path(file))
        rows = (
            _iterate_metadata_jsonl_lines(path)
            if file.endswith(".jsonl")
            else _iterate_metadata_csv_rows(path)
        )
        problem, is_any_whole = None, False
        for line_number, row in rows:
            where = f"Line {line_number} of {quote_name(file)}"
            if isinstance(row, str):
                bad.record_bad_entry(where, row)
                continue
            missing = [column for column in (_FILE, label) if column not in row]
            if missing:
                columns = format_first_names([str(key) for key in row], 20)
                problem = problem or f"{where} has no {format_first_names(missing)}, but {columns}"
                bad.record_bad_entry(where, f"has no {format_first_names(missing)}")
                continue
            is_any_whole = True
            name, value = row[_FILE], row[label]
            # `datasets` writes -1 for a missing label, as in hidden test parts.
            if value is None or value == "" or value == -1:
                self._unlabelled += 1
            elif (wrong := _explain_bad_row(name, value)) is not None:
                bad.record_bad_entry(where, wrong)
            else:
                yield folder + str(name), _format_label(value), where
        # If no row has the columns, the columns are wrong rather than the rows.
        if problem and not is_any_whole:
            raise PackError(
                f"{problem}. Say which column holds the label with label=, or pack class folders "
                f"with kind='folder'."
            )


def _explain_bad_row(name: object, label: object) -> str | None:
    """Explain why a row of a metadata file is bad, as the end of a sentence; None if it is not."""
    if not isinstance(name, str) or not name.strip():
        return f"names the file {quote_name(str(name))}"
    if isinstance(label, list | dict):
        return f"has several labels, {quote_name(json.dumps(label))} (multi-label); one is learned"
    if isinstance(label, bool) or not isinstance(label, str | int | float):
        return f"has the label {quote_name(str(label))} instead of a text or a number"
    if isinstance(label, float) and not label.is_integer():
        return f"has the label {label}, which is no whole number"
    return None


def _format_label(value: object) -> str:
    return str(int(value)) if isinstance(value, float) else str(value)


def find_imagefolder_metadata_files(names: Iterable[str]) -> list[str]:
    """Return the metadata.csv and metadata.jsonl files among a folder's files."""
    return [name for name in names if name.rpartition("/")[2] in METADATA]


_Line = tuple[int, dict[str, object] | str]
"""Line number, and cells by column; a text instead of cells says why the line is bad."""


def _iterate_metadata_csv_rows(path: Path) -> Iterator[_Line]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            # Without `strict`, csv guesses at broken quotes, and cells end up in other columns.
            reader = csv.DictReader(text, strict=True)
            for row in reader:
                # DictReader puts surplus cells under None, and fills missing ones with None.
                if None in row or None in row.values():
                    yield reader.line_num, "has more or fewer cells than the first line"
                else:
                    yield reader.line_num, {str(key): value for key, value in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PackError(f"{quote_name(path)} is no CSV in UTF-8: {error}.") from error


def _iterate_metadata_jsonl_lines(path: Path) -> Iterator[_Line]:
    try:
        with path.open(encoding="utf-8-sig") as text:
            for number, text_line in enumerate(text, start=1):
                if text_line.strip():
                    yield number, _parse_json_row_or_explain(text_line)
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"{quote_name(path)} is no JSON Lines in UTF-8: {error}.") from error


def _parse_json_row_or_explain(line: str) -> dict[str, object] | str:
    try:
        row = json.loads(line)
    # Deeply nested text makes the parser raise a RecursionError.
    except (ValueError, RecursionError) as error:
        return f"is no JSON: {error}"
    return row if isinstance(row, dict) else "is no JSON object"
