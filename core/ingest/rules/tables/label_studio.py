"""Exports of Label Studio: JSON with a task an entry, JSON-MIN and CSV with an annotation an entry."""

import json
from itertools import islice

from core.ingest.rules.tables.documents import NotJson
from core.ingest.rules.tables.records import CELLS, LIST, Records, objects_of
from core.ingest.rules.tables.source import Source
from core.ingest.rules.tables.values import NOTHING

TITLE = "Label Studio export"
_OF_ANNOTATIONS = frozenset({"annotation_id", "annotator", "lead_time"})
_MOST_CHOICES, _MOST_VALUES = 5, 20
"""Of a task: one choice is read, and one value names its image."""
_ABOUT = _OF_ANNOTATIONS | {"id", "created_at", "updated_at", "comment", "agreement", "predictions"}


def read(source: Source) -> bool:
    """Read an export: True where the file is one."""
    if source.form == LIST and isinstance(source.first, dict):
        first = source.first
        if isinstance(first.get("data"), dict) and ("annotations" in first or "completions" in first):
            _read_tasks(source)
            return True
    records = source.records
    if records is None or len(_OF_ANNOTATIONS & set(records.columns)) < 2:
        return False
    return _read_annotations(source, records)


def _read_tasks(source: Source) -> None:
    rows = source.begin(TITLE)
    for where, task in objects_of(source.file, LIST):
        if isinstance(task, NotJson):
            rows.spoil(where, str(task))
        elif not isinstance(task, dict) or not isinstance(task.get("data"), dict):
            rows.spoil(where, "is no task with data")
        else:
            choices = _choices_of(task)
            if choices is None:
                rows.spoil(where, "has annotations that are no list of results")
            else:
                rows.add(_image_of(source, task), choices, where)


def _image_of(source: Source, task: dict[str, object]) -> object:
    """The value of a task's data that names an image of the batch, else the file that was uploaded for it."""
    data = task["data"]
    assert isinstance(data, dict)
    values = islice(data.values(), _MOST_VALUES)
    texts = [value for value in values if isinstance(value, str) and 0 < len(value) <= 1024]
    for value in texts:
        if source.find(value) >= 0:
            return value
    upload = task.get("file_upload")
    if isinstance(upload, str) and source.find(upload) >= 0:
        return upload
    return data.get("image", texts[0] if texts else None)


def _choices_of(task: dict[str, object]) -> list[object] | None:
    """The different choices of a task's annotations; None where they are none."""
    annotations = task.get("annotations", task.get("completions"))
    if not isinstance(annotations, list):
        return None
    found: list[object] = []
    for annotation in annotations:
        if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
            continue
        results = annotation.get("result")
        for result in results if isinstance(results, list) else []:
            value = result.get("value") if isinstance(result, dict) else None
            choices = value.get("choices") if isinstance(value, dict) else None
            if isinstance(choices, list):
                found += [choice for choice in choices[:_MOST_CHOICES] if choice not in found]
            if len(found) > _MOST_CHOICES:
                return found
    return found


def _read_annotations(source: Source, records: Records) -> bool:
    """CSV and JSON-MIN: the columns beside those about the annotation are the task's data and its choice."""
    image = _best_image(source, records)
    others = [
        at
        for at, name in enumerate(records.columns)
        if at != image and name not in _ABOUT and not name.startswith("meta_")
    ]
    chosen = source.options.label_column
    label = records.columns.index(chosen) if chosen in records.columns else _choice_among(records, others)
    if image < 0 or label < 0:
        return False
    rows = source.begin(TITLE)
    for entry in records:
        if entry.problem:
            for _ in range(entry.lines):
                rows.spoil(entry.where, entry.problem)
        else:
            rows.add(entry.values[image], _choice(entry.values[label], records.form == CELLS), entry.where)
    return True


def _best_image(source: Source, records: Records) -> int:
    best, most, sample = -1, 0, records.sample()
    for at, name in enumerate(records.columns):
        if name in _ABOUT:
            continue
        values = [row[at] for row in sample]
        found = sum(isinstance(v, str) and 0 < len(v) <= 1024 and source.find(v) >= 0 for v in values)
        if found > most:
            best, most = at, found
    return best


def _choice_among(records: Records, others: list[int]) -> int:
    """The column of choices: the only one, or the one that Label Studio's templates call so."""
    usual = [at for at in others if records.columns[at] in ("choice", "choices", "label", "class")]
    fitting = usual if len(usual) == 1 else others
    return fitting[0] if len(fitting) == 1 else -1


def _choice(value: object, is_cell: bool) -> object:
    """A single choice is written as it is, several as `{"choices": […]}`."""
    if is_cell and isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, dict):
        return value.get("choices", NOTHING.label)
    return value
