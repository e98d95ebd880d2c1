"""Edge Impulse's `info.labels`.

Its form is `{"version": 1, "files": [{"path": …, "category": …, "label": {"label": …}}]}`.
"""

from core.ingest.rules.entries import Part
from core.ingest.rules.tables.documents import JsonText, NotJson
from core.ingest.rules.tables.found import Rows
from core.ingest.rules.tables.records import text_of
from core.ingest.rules.tables.source import Source
from core.ingest.rules.tables.values import part_of

TITLE = "Edge Impulse export"


def read(source: Source) -> bool:
    """Read an export; return False if the file is not one."""
    if source.file.ending != ".labels" or source.form not in ("object", "lines"):
        return False
    rows: Rows | None = None
    text = JsonText(text_of(source.file))
    try:
        for key in text.iterate_members():
            if key == "files" and text.peek() == "[":
                rows = source.begin_rows(TITLE)
                for number in text.iterate_items():
                    _read_file(text.read_value(), f"entry {number} of {source.file.name}", rows)
            else:
                text.skip_value()
    except NotJson as error:
        # Nothing was read yet, so that another kind of table may still fit.
        if rows is None:
            return False
        rows.add_bad(f"the rest of {source.file.name}", str(error))
    return rows is not None


def _read_file(value: object, where: str, rows: Rows) -> None:
    label = value.get("label") if isinstance(value, dict) else None
    if not isinstance(value, dict):
        rows.add_bad(where, "is no JSON object")
    elif not isinstance(label, dict):
        rows.add(value.get("path"), label, where, _read_part(value))
    elif label.get("type") == "unlabeled":
        rows.add(value.get("path"), None, where)
    elif label.get("type", "label") == "label":
        rows.add(value.get("path"), label.get("label"), where, _read_part(value))
    else:
        rows.add_bad(
            where,
            f"has a label of the type {str(label.get('type'))[:40]!r}: one for the whole image is "
            f"read",
        )


def _read_part(value: dict[object, object]) -> Part:
    return part_of(str(value.get("category", ""))) or ""
