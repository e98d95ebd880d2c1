"""Manifests of SageMaker Ground Truth and Rekognition Custom Labels: JSONL with `source-ref`."""

from core.ingest.rules.tables.records import LINES, LIST, objects_of
from core.ingest.rules.tables.source import Source

TITLE = "SageMaker manifest"
_REF, _ABOUT = "source-ref", "-metadata"


def read(source: Source) -> bool:
    """Read a manifest: True where the file is one."""
    if source.form not in (LINES, LIST, "object"):
        return False
    form = LINES if source.form == "object" else source.form  # a manifest of one line is one object
    first = next((value for _, value in objects_of(source.file, form)), None)
    if not isinstance(first, dict) or _REF not in first:
        return False
    rows = source.begin(TITLE)
    for where, value in source.read_objects(rows, form):
        names = _class_names(value)
        if names is None:
            rows.spoil(where, "has annotations that are no classes of whole images")
        else:
            rows.add(value.get(_REF), names, where)
    return True


def _class_names(entry: dict[str, object]) -> list[object] | None:
    """The classes of an entry; None where all that it has is of another kind, such as boxes."""
    found: list[object] = []
    others = 0
    for key, about in entry.items():
        if not key.endswith(_ABOUT) or not isinstance(about, dict):
            continue
        if "class-name" in about:
            found.append(about["class-name"])
        elif isinstance(about.get("class-map"), dict) and "multilabel" in str(about.get("type")):
            found += about["class-map"].values()
        else:
            others += 1
    return None if others and not found else found
