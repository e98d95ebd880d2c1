"""Any table with columns of images and labels: CSV and similar, JSON lists and objects, JSONL."""

from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables.columns import (
    LabelTableColumnPositions,
    NotALabelTable,
    choose_table_columns,
    find_column_position_ignoring_case,
    is_image_column_name,
)
from perennial.reading_rules.tables.documents import JsonTextReader, NotJson
from perennial.reading_rules.tables.records import (
    CELLS,
    LINES,
    LIST,
    TableRecords,
    read_whole_text_file,
    treat_header_as_entry,
)
from perennial.reading_rules.tables.source import LabelTableReadingContext
from perennial.reading_rules.tables.values import has_invalid_utf8, parse_dataset_part_word

_FORMS = {
    CELLS: "table of images and labels",
    LIST: "JSON list of images and labels",
    LINES: "JSONL of images and labels",
}
_PAIRS = "JSON object of images and labels"
_SAMPLE = 1000


def add_labels_if_plain_table(source: LabelTableReadingContext) -> bool:
    """Read labels from a plain table of images and labels; return False if the file is not one.

    Raises UnreadableBatchError if several columns fit.
    """
    if source.form == "object":
        return _add_labels_if_image_to_label_object(source)
    if source.records is None:
        return False
    records = _convert_header_naming_image_to_entry(source, source.records)
    try:
        columns = choose_table_columns(
            records, source.options, source.find_image_number, source.images, is_own=source.is_own
        )
    except NotALabelTable:
        return False
    _add_labels_of_plain_table(source, records, columns)
    return True


def is_plain_table_kind(kind: str) -> bool:
    """Return True if a label table is of the plain kind, not an export of a labelling tool."""
    return kind.startswith((*_FORMS.values(), _PAIRS))


def _convert_header_naming_image_to_entry(
    source: LabelTableReadingContext, records: TableRecords
) -> TableRecords:
    """Return the table without a header if its first row names an image.

    That row is then an entry, and the columns are named 1, 2 ….
    """
    options = source.options
    if any(
        name and find_column_position_ignoring_case(records, name) >= 0
        for name in (options.image_column, options.label_column)
    ):
        return records
    names_image = any(
        source.find_image_number(cell) >= 0
        for cell in records.columns
        # A header such as `image` may also be the stem of an image.
        if 0 < len(cell) <= 1024 and not is_image_column_name(cell)
    )
    return treat_header_as_entry(records) if records.form == CELLS and names_image else records


def _add_labels_of_plain_table(
    source: LabelTableReadingContext, records: TableRecords, columns: LabelTableColumnPositions
) -> None:
    image, label, part = columns
    kind = (
        f"{_FORMS[records.form]}, columns {quote_name(records.columns[image])} and "
        f"{quote_name(records.columns[label])}"
    )
    rows = source.start_collector_for_table_file(kind)
    for entry in records:
        if entry.problem:
            # A quote that is not closed swallows the lines after it, each of which is a lost entry.
            for _ in range(entry.line_count):
                rows.record_bad_entry(entry.where, entry.problem)
            continue
        values = entry.values
        name = values[image]
        part_word = "" if part < 0 else str(values[part] or "")
        part_name = parse_dataset_part_word(part_word)
        if part_name is None:
            rows.record_bad_entry(
                entry.where,
                f"has the split {quote_name(part_word)}; it must be train, test, validation or empty",
            )
        elif isinstance(name, str) and has_invalid_utf8(name):
            rows.record_bad_entry(entry.where, "is not UTF-8: save the table as “CSV UTF-8”")
        else:
            rows.add_label_entry(name, values[label], entry.where, part_name)


def _add_labels_if_image_to_label_object(source: LabelTableReadingContext) -> bool:
    """Read a JSON object whose keys are images and whose values are labels."""
    # An object has no columns, so another file must be meant.
    if source.options.image_column or source.options.label_column:
        return False
    try:
        if not _are_object_keys_images(source):
            return False
    except NotJson:
        return False
    rows = source.start_collector_for_table_file(_PAIRS)
    text = JsonTextReader(read_whole_text_file(source.file))
    try:
        for name in text.iterate_object_keys():
            rows.add_label_entry(
                name, text.read_value(), f"{quote_name(name)} in {source.file.name}"
            )
    except NotJson as error:
        rows.record_bad_entry(f"the rest of {source.file.name}", str(error))
    return True


def _are_object_keys_images(source: LabelTableReadingContext) -> bool:
    text = JsonTextReader(read_whole_text_file(source.file))
    checked = matches = 0
    for name in text.iterate_object_keys():
        if isinstance(text.read_value(), dict | list):
            return False
        checked += 1
        matches += 0 < len(name) <= 1024 and source.find_image_number(name) >= 0
        if checked == _SAMPLE:
            break
    return checked > 0 and 2 * matches >= checked
