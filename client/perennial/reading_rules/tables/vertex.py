"""Vertex AI import files: CSV without a header, `[TRAINING,]gs://bucket/x.jpg,label`, and JSONL."""

from collections.abc import Sequence

from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables.records import CELLS, LINES, TableRecords, treat_header_as_entry
from perennial.reading_rules.tables.source import LabelTableReadingContext
from perennial.reading_rules.tables.values import parse_dataset_part_word

TITLE = "Vertex AI import file"
_URI, _USE = "imageGcsUri", "aiplatform.googleapis.com/ml_use"


def add_labels_if_vertex_import(source: LabelTableReadingContext) -> bool:
    """Read labels from a Vertex AI import file; return False if the file is not one."""
    records = source.records
    if records is None:
        return False
    # The file has no header, so that its first row was taken as the names of columns.
    if records.form == CELLS and any(cell.startswith("gs://") for cell in records.columns[:2]):
        _add_labels_of_vertex_cells(source, treat_header_as_entry(records))
        return True
    if isinstance(source.first_entry, dict) and _URI in source.first_entry:
        _add_labels_of_vertex_jsonl(source, records.form)
        return True
    return False


def _add_labels_of_vertex_cells(source: LabelTableReadingContext, records: TableRecords) -> None:
    rows = source.start_collector_for_table_file(TITLE)
    # Rows with several labels are longer than others, so rows are read regardless of their length.
    for entry in TableRecords(
        source.file, CELLS, [], header=False, separator=records.separator
    ).iterate_rows_of_any_length():
        if entry.problem:
            # Each line that a broken quote swallowed is a lost entry, as in `plain`.
            for _ in range(entry.line_count):
                rows.record_bad_entry(entry.where, entry.problem)
            continue
        uri, labels, use = _parse_vertex_row([str(value).strip() for value in entry.values])
        part = parse_dataset_part_word(use)
        if part is None:
            rows.record_bad_entry(
                entry.where,
                f"has {quote_name(use)} where TRAINING, VALIDATION, TEST or UNASSIGNED is expected",
            )
        else:
            rows.add_label_entry(uri, [label for label in labels if label], entry.where, part)


def _parse_vertex_row(cells: Sequence[str]) -> tuple[str, Sequence[str], str]:
    if cells[0].startswith("gs://") or len(cells) < 2:
        return cells[0], cells[1:], ""
    return cells[1], cells[2:], cells[0]


def _add_labels_of_vertex_jsonl(source: LabelTableReadingContext, form: str = LINES) -> None:
    rows = source.start_collector_for_table_file(TITLE)
    for where, value in source.iterate_object_entries(rows, form):
        use = _get_value_of_json_object(value.get("dataItemResourceLabels"), _USE)
        part = parse_dataset_part_word(use) if isinstance(use, str) else ""
        if part is None:
            rows.record_bad_entry(where, f"has the ml_use {quote_name(str(use))}")
        else:
            rows.add_label_entry(value.get(_URI), _find_vertex_label(value), where, part)


def _find_vertex_label(value: dict[str, object]) -> object:
    single, several = value.get("classificationAnnotation"), value.get("classificationAnnotations")
    if isinstance(several, list):
        return [_get_value_of_json_object(annotation, "displayName") for annotation in several]
    return _get_value_of_json_object(single, "displayName")


def _get_value_of_json_object(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None
