"""Small exports of labelling tools: Roboflow, Edge Impulse, make-sense and SageMaker.

- Roboflow's `_classes.csv`: a column for each class, with 1 in the image's class.
- Edge Impulse's `info.labels`: `{"version": 1, "files": [{"path": …, "category": …, "label":
  {"label": …}}]}`.
- make-sense exports of labels for whole images: `x.jpg,"[cat]"` without a header, or JSON.
- Manifests of SageMaker Ground Truth and Rekognition Custom Labels: JSONL with `source-ref`.
"""

from collections.abc import Sequence

from perennial.reading_rules.entries import Part
from perennial.reading_rules.tables.documents import JsonTextReader, NotJson
from perennial.reading_rules.tables.found import LabelTableEntryCollector
from perennial.reading_rules.tables.records import (
    CELLS,
    LINES,
    LIST,
    TableRecords,
    iterate_json_entries,
    read_whole_text_file,
    treat_header_as_entry,
)
from perennial.reading_rules.tables.source import LabelTableReadingContext
from perennial.reading_rules.tables.values import parse_dataset_part_word

ROBOFLOW_TITLE = "Roboflow export"
_ROBOFLOW_NAME = "_classes.csv"
_ONE, _ZERO = frozenset({"1", "1.0"}), frozenset({"0", "0.0", ""})
_MOST_LISTED = 5


def add_labels_if_roboflow_table(source: LabelTableReadingContext) -> bool:
    """Read labels from a Roboflow table of classes; return False if the file is not one."""
    records = source.records
    if (
        source.file.name.rpartition("/")[2] != _ROBOFLOW_NAME
        or records is None
        or records.form != CELLS
    ):
        return False
    # A table of other contents may have this name.
    if not all(_are_label_cells_zero_or_one(row) for row in records.sample_entry_values()):
        return False
    _add_labels_of_roboflow_one_hot_table(source, records)
    return True


def _are_label_cells_zero_or_one(row: Sequence[object]) -> bool:
    return all(str(cell).strip() in _ONE | _ZERO for cell in row[1:])


def _add_labels_of_roboflow_one_hot_table(
    source: LabelTableReadingContext, records: TableRecords
) -> None:
    rows = source.start_collector_for_table_file(ROBOFLOW_TITLE)
    for entry in records:
        if entry.problem:
            # Each line that a broken quote swallowed is a lost entry, as in `plain`.
            for _ in range(entry.line_count):
                rows.record_bad_entry(entry.where, entry.problem)
        elif not _are_label_cells_zero_or_one(entry.values):
            rows.record_bad_entry(entry.where, "has something else than 0 and 1 for a class")
        else:
            flags = [str(cell).strip() in _ONE for cell in entry.values[1:]]
            classes = [
                name for name, is_one in zip(records.columns[1:], flags, strict=True) if is_one
            ]
            # One label is read for each image, so more names only lengthen the message.
            rows.add_label_entry(entry.values[0], classes[:_MOST_LISTED], entry.where)


EDGE_IMPULSE_TITLE = "Edge Impulse export"


def add_labels_if_edge_impulse_export(source: LabelTableReadingContext) -> bool:
    """Read labels from an Edge Impulse export; return False if the file is not one."""
    if source.file.ending != ".labels" or source.form not in ("object", "lines"):
        return False
    rows: LabelTableEntryCollector | None = None
    text = JsonTextReader(read_whole_text_file(source.file))
    try:
        for key in text.iterate_object_keys():
            if key == "files" and text.peek_nonblank_character() == "[":
                rows = source.start_collector_for_table_file(EDGE_IMPULSE_TITLE)
                for number in text.iterate_array_item_numbers():
                    _add_labels_of_edge_impulse_entry(
                        text.read_value(), f"entry {number} of {source.file.name}", rows
                    )
            else:
                text.skip_value()
    except NotJson as error:
        # Nothing was read yet, so that another kind of table may still fit.
        if rows is None:
            return False
        rows.record_bad_entry(f"the rest of {source.file.name}", str(error))
    return rows is not None


def _add_labels_of_edge_impulse_entry(
    value: object, where: str, rows: LabelTableEntryCollector
) -> None:
    label = value.get("label") if isinstance(value, dict) else None
    if not isinstance(value, dict):
        rows.record_bad_entry(where, "is no JSON object")
    elif not isinstance(label, dict):
        rows.add_label_entry(value.get("path"), label, where, _parse_edge_impulse_category(value))
    elif label.get("type") == "unlabeled":
        rows.add_label_entry(value.get("path"), None, where)
    elif label.get("type", "label") == "label":
        rows.add_label_entry(
            value.get("path"), label.get("label"), where, _parse_edge_impulse_category(value)
        )
    else:
        rows.record_bad_entry(
            where,
            f"has a label of the type {str(label.get('type'))[:40]!r}: one for the whole image is "
            f"read",
        )


def _parse_edge_impulse_category(value: dict[object, object]) -> Part:
    return parse_dataset_part_word(str(value.get("category", ""))) or ""


MAKE_SENSE_TITLE = "make-sense export"


def add_labels_if_make_sense_export(source: LabelTableReadingContext) -> bool:
    """Read labels from a Make Sense export; return False if the file is not one."""
    records = source.records
    if records is None:
        return False
    if source.form == LIST:
        first = source.first_entry
        if not isinstance(first, dict) or set(first) != {"image", "annotations"}:
            return False
        rows = source.start_collector_for_table_file(MAKE_SENSE_TITLE)
        for where, value in source.iterate_object_entries(rows, LIST):
            rows.add_label_entry(value.get("image"), value.get("annotations"), where)
        return True
    # The file has no header, so that its first row was taken as the names of columns.
    if (
        records.form != CELLS
        or len(records.columns) != 2
        or not _is_bracketed_list_cell(records.columns[1])
    ):
        return False
    rows = source.start_collector_for_table_file(MAKE_SENSE_TITLE)
    for entry in treat_header_as_entry(records):
        if entry.problem or not _is_bracketed_list_cell(str(entry.values[1])):
            rows.record_bad_entry(entry.where, entry.problem or "has labels without brackets")
        else:
            names = [name.strip() for name in str(entry.values[1]).strip()[1:-1].split(",")]
            rows.add_label_entry(entry.values[0], [name for name in names if name], entry.where)
    return True


def _is_bracketed_list_cell(cell: str) -> bool:
    return cell.strip().startswith("[") and cell.strip().endswith("]")


SAGEMAKER_TITLE = "SageMaker manifest"
_REF, _ABOUT = "source-ref", "-metadata"


def add_labels_if_sagemaker_manifest(source: LabelTableReadingContext) -> bool:
    """Read labels from a SageMaker manifest; return False if the file is not one."""
    if source.form not in (LINES, LIST, "object"):
        return False
    # A manifest of one line has the form of one object.
    form = LINES if source.form == "object" else source.form
    first = next((value for _, value in iterate_json_entries(source.file, form)), None)
    if not isinstance(first, dict) or _REF not in first:
        return False
    rows = source.start_collector_for_table_file(SAGEMAKER_TITLE)
    for where, value in source.iterate_object_entries(rows, form):
        names = _list_classes_of_manifest_entry(value)
        if names is None:
            rows.record_bad_entry(where, "has annotations that are no classes of whole images")
        else:
            rows.add_label_entry(value.get(_REF), names, where)
    return True


def _list_classes_of_manifest_entry(entry: dict[str, object]) -> list[object] | None:
    """Return the classes of a SageMaker manifest's entry, or None if it has only others, such as
    boxes.
    """
    classes: list[object] = []
    other_annotations = 0
    for key, about in entry.items():
        if not key.endswith(_ABOUT) or not isinstance(about, dict):
            continue
        if "class-name" in about:
            classes.append(about["class-name"])
        elif isinstance(about.get("class-map"), dict) and "multilabel" in str(about.get("type")):
            classes += about["class-map"].values()
        else:
            other_annotations += 1
    return None if other_annotations and not classes else classes
