"""Vertex AI import files: CSV without a header, `[TRAINING,]gs://bucket/x.jpg,label`, and JSONL."""

from collections.abc import Sequence

from core.ingest.rules.names import show
from core.ingest.rules.tables.records import CELLS, LINES, Records, without_header
from core.ingest.rules.tables.source import Source
from core.ingest.rules.tables.values import part_of

TITLE = "Vertex AI import file"
_URI, _USE = "imageGcsUri", "aiplatform.googleapis.com/ml_use"


def read(source: Source) -> bool:
    """Read an import file; return False if the file is not one."""
    records = source.records
    if records is None:
        return False
    if records.form == CELLS and any(cell.startswith("gs://") for cell in records.columns[:2]):
        _read_cells(source, without_header(records))
        return True
    if isinstance(source.first, dict) and _URI in source.first:
        _read_lines(source, records.form)
        return True
    return False


def _read_cells(source: Source, records: Records) -> None:
    rows = source.begin(TITLE)
    # Rows with several labels are longer than others, so rows are read regardless of their length.
    for entry in Records(source.file, CELLS, [], header=False, separator=records.separator).ragged():
        if entry.problem:
            for _ in range(entry.lines):
                rows.spoil(entry.where, entry.problem)
            continue
        uri, labels, use = _parted([str(value).strip() for value in entry.values])
        part = part_of(use)
        if part is None:
            rows.spoil(
                entry.where, f"has {show(use)} where TRAINING, VALIDATION, TEST or UNASSIGNED is expected"
            )
        else:
            rows.add(uri, [label for label in labels if label], entry.where, part)


def _parted(cells: Sequence[str]) -> tuple[str, Sequence[str], str]:
    if cells[0].startswith("gs://") or len(cells) < 2:
        return cells[0], cells[1:], ""
    return cells[1], cells[2:], cells[0]


def _read_lines(source: Source, form: str = LINES) -> None:
    rows = source.begin(TITLE)
    for where, value in source.read_objects(rows, form):
        use = _inner(value.get("dataItemResourceLabels"), _USE)
        part = part_of(use) if isinstance(use, str) else ""
        if part is None:
            rows.spoil(where, f"has the ml_use {show(str(use))}")
        else:
            rows.add(value.get(_URI), _labels(value), where, part)


def _labels(value: dict[str, object]) -> object:
    single, several = value.get("classificationAnnotation"), value.get("classificationAnnotations")
    if isinstance(several, list):
        return [_inner(one, "displayName") for one in several]
    return _inner(single, "displayName")


def _inner(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None
