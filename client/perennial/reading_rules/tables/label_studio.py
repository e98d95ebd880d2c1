"""Label Studio exports: JSON with a task per entry, JSON-MIN and CSV with an annotation each."""

import json
from itertools import islice

from perennial.reading_rules.tables.documents import NotJson
from perennial.reading_rules.tables.records import CELLS, LIST, TableRecords, iterate_json_entries
from perennial.reading_rules.tables.source import LabelTableReadingContext
from perennial.reading_rules.tables.values import NOTHING

TITLE = "Label Studio export"
_OF_ANNOTATIONS = frozenset({"annotation_id", "annotator", "lead_time"})
_MOST_CHOICES, _MOST_VALUES = 5, 20
"""Bounds for a task, of which one choice is read and one value names the image."""
_ABOUT = _OF_ANNOTATIONS | {"id", "created_at", "updated_at", "comment", "agreement", "predictions"}


def add_labels_if_label_studio_export(source: LabelTableReadingContext) -> bool:
    """Read labels from a Label Studio export; return False if the file is not one."""
    if source.form == LIST and isinstance(source.first_entry, dict):
        first = source.first_entry
        if isinstance(first.get("data"), dict) and (
            "annotations" in first or "completions" in first
        ):
            _add_labels_of_label_studio_tasks(source)
            return True
    records = source.records
    # One such column alone may be in anybody's table.
    if records is None or len(_OF_ANNOTATIONS & set(records.columns)) < 2:
        return False
    return _add_labels_if_flat_label_studio_export(source, records)


def _add_labels_of_label_studio_tasks(source: LabelTableReadingContext) -> None:
    rows = source.start_collector_for_table_file(TITLE)
    for where, task in iterate_json_entries(source.file, LIST):
        if isinstance(task, NotJson):
            rows.record_bad_entry(where, str(task))
        elif not isinstance(task, dict) or not isinstance(task.get("data"), dict):
            rows.record_bad_entry(where, "is no task with data")
        else:
            choices = _list_annotation_choices(task)
            if choices is None:
                rows.record_bad_entry(where, "has annotations that are no list of results")
            else:
                rows.add_label_entry(_find_label_studio_image_name(source, task), choices, where)


def _find_label_studio_image_name(
    source: LabelTableReadingContext, task: dict[str, object]
) -> object:
    """Return the image name in the data of a Label Studio task, else its uploaded file."""
    data = task["data"]
    assert isinstance(data, dict)
    values = islice(data.values(), _MOST_VALUES)
    texts = [value for value in values if isinstance(value, str) and 0 < len(value) <= 1024]
    for value in texts:
        if source.find_image_number(value) >= 0:
            return value
    upload = task.get("file_upload")
    if isinstance(upload, str) and source.find_image_number(upload) >= 0:
        return upload
    return data.get("image", texts[0] if texts else None)


def _list_annotation_choices(task: dict[str, object]) -> list[object] | None:
    """Return the distinct classes chosen in a Label Studio task; None without a list of
    annotations.
    """
    # Older releases of Label Studio called annotations completions.
    annotations = task.get("annotations", task.get("completions"))
    if not isinstance(annotations, list):
        return None
    distinct_choices: list[object] = []
    for annotation in annotations:
        # An annotator who skips a task leaves a cancelled annotation.
        if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
            continue
        results = annotation.get("result")
        for result in results if isinstance(results, list) else []:
            value = result.get("value") if isinstance(result, dict) else None
            choices = value.get("choices") if isinstance(value, dict) else None
            if isinstance(choices, list):
                distinct_choices += [
                    choice for choice in choices[:_MOST_CHOICES] if choice not in distinct_choices
                ]
            # One label is read for each image, so more choices only lengthen the message.
            if len(distinct_choices) > _MOST_CHOICES:
                return distinct_choices
    return distinct_choices


def _add_labels_if_flat_label_studio_export(
    source: LabelTableReadingContext, records: TableRecords
) -> bool:
    """Read a Label Studio export in CSV or JSON-MIN.

    The columns that are not about the annotation are the task's data and its choice.
    """
    image = _choose_label_studio_image_column(source, records)
    data_columns = [
        at
        for at, name in enumerate(records.columns)
        if at != image and name not in _ABOUT and not name.startswith("meta_")
    ]
    chosen = source.options.label_column
    label = (
        records.columns.index(chosen)
        if chosen in records.columns
        else _find_choice_column(records, data_columns)
    )
    if image < 0 or label < 0:
        return False
    rows = source.start_collector_for_table_file(TITLE)
    for entry in records:
        if entry.problem:
            # Each line that a broken quote swallowed is a lost entry, as in `plain`.
            for _ in range(entry.line_count):
                rows.record_bad_entry(entry.where, entry.problem)
        else:
            rows.add_label_entry(
                entry.values[image],
                _parse_label_studio_choice(entry.values[label], records.form == CELLS),
                entry.where,
            )
    return True


def _choose_label_studio_image_column(
    source: LabelTableReadingContext, records: TableRecords
) -> int:
    best, most_matches, sample = -1, 0, records.sample_entry_values()
    for at, name in enumerate(records.columns):
        if name in _ABOUT:
            continue
        values = [row[at] for row in sample]
        matches = sum(
            isinstance(v, str) and 0 < len(v) <= 1024 and source.find_image_number(v) >= 0
            for v in values
        )
        if matches > most_matches:
            best, most_matches = at, matches
    return best


def _find_choice_column(records: TableRecords, columns: list[int]) -> int:
    """Return the column with the chosen class: the only one, or one named as in Label Studio's
    templates.
    """
    usual = [at for at in columns if records.columns[at] in ("choice", "choices", "label", "class")]
    fitting = usual if len(usual) == 1 else columns
    return fitting[0] if len(fitting) == 1 else -1


def _parse_label_studio_choice(value: object, is_cell: bool) -> object:
    """Return the class that a Label Studio cell states. Several are written as `{"choices": […]}`."""
    if is_cell and isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        # A hostile cell may nest deeply.
        except (ValueError, RecursionError):
            return value
    if isinstance(value, dict):
        return value.get("choices", NOTHING.label)
    return value
