"""make-sense exports of labels for whole images: `x.jpg,"[cat]"` without a header, or JSON."""

from core.ingest.rules.tables.records import CELLS, LIST, without_header
from core.ingest.rules.tables.source import Source

TITLE = "make-sense export"


def read(source: Source) -> bool:
    """Read an export; return False if the file is not one."""
    records = source.records
    if records is None:
        return False
    if source.form == LIST:
        first = source.first
        if not isinstance(first, dict) or set(first) != {"image", "annotations"}:
            return False
        rows = source.begin_rows(TITLE)
        for where, value in source.read_objects(rows, LIST):
            rows.add(value.get("image"), value.get("annotations"), where)
        return True
    # The file has no header, so that its first row was taken as the names of columns.
    if records.form != CELLS or len(records.columns) != 2 or not _is_list(records.columns[1]):
        return False
    rows = source.begin_rows(TITLE)
    for entry in without_header(records):
        if entry.problem or not _is_list(str(entry.values[1])):
            rows.add_bad(entry.where, entry.problem or "has labels without brackets")
        else:
            names = [name.strip() for name in str(entry.values[1]).strip()[1:-1].split(",")]
            rows.add(entry.values[0], [name for name in names if name], entry.where)
    return True


def _is_list(cell: str) -> bool:
    return cell.strip().startswith("[") and cell.strip().endswith("]")
