"""Manifests of SageMaker Ground Truth and Rekognition Custom Labels: JSONL with `source-ref`."""

from core.ingest.rules.tables.records import LINES, LIST, objects_of
from core.ingest.rules.tables.source import Source

TITLE = "SageMaker manifest"
_REF, _ABOUT = "source-ref", "-metadata"


def read(source: Source) -> bool:
    """Read a manifest; return False if the file is not one."""
    if source.form not in (LINES, LIST, "object"):
        return False
    # A manifest of one line has the form of one object.
    form = LINES if source.form == "object" else source.form
    first = next((value for _, value in objects_of(source.file, form)), None)
    if not isinstance(first, dict) or _REF not in first:
        return False
    rows = source.begin_rows(TITLE)
    for where, value in source.read_objects(rows, form):
        names = _class_names(value)
        if names is None:
            rows.add_bad(where, "has annotations that are no classes of whole images")
        else:
            rows.add(value.get(_REF), names, where)
    return True


def _class_names(entry: dict[str, object]) -> list[object] | None:
    """Return the classes of an entry, or None if it has only other annotations, such as boxes."""
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
