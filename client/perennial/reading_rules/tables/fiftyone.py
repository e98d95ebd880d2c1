"""FiftyOne's `labels.json` for classification: `{"classes": […], "labels": {"name": 0}}`."""

from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables.documents import JsonTextReader, NotJson
from perennial.reading_rules.tables.found import LabelTableEntryCollector
from perennial.reading_rules.tables.records import read_whole_text_file
from perennial.reading_rules.tables.source import LabelTableReadingContext

TITLE = "FiftyOne export"


def add_labels_if_fiftyone_export(source: LabelTableReadingContext) -> bool:
    """Read labels from a FiftyOne export; return False if the file is not one."""
    if source.form != "object":
        return False
    try:
        classes, has_labels = _read_class_names_and_detect_labels(source)
    except NotJson:
        return False
    if not has_labels:
        return False
    rows = source.start_collector_for_table_file(TITLE)
    # A second pass, because the classes may follow the labels.
    text = JsonTextReader(read_whole_text_file(source.file))
    try:
        for key in text.iterate_object_keys():
            if key == "labels":
                _add_labels_of_fiftyone_images(text, classes, rows, source.file.name)
            else:
                text.skip_value()
    except NotJson as error:
        rows.record_bad_entry(f"the rest of {source.file.name}", str(error))
    return True


def _read_class_names_and_detect_labels(
    source: LabelTableReadingContext,
) -> tuple[list[object] | None, bool]:
    """Return the class names of a FiftyOne export, and True if it has an object of labels.

    The class names are None if labels are names themselves.
    """
    text = JsonTextReader(read_whole_text_file(source.file))
    classes: list[object] | None = None
    has_labels = has_classes = False
    for key in text.iterate_object_keys():
        if key == "classes":
            value = text.read_value()
            has_classes = isinstance(value, list | None)
            classes = value if isinstance(value, list) else None
        elif key == "labels" and text.peek_nonblank_character() == "{":
            has_labels = True
            if has_classes:
                break  # the exporter writes the classes first
            text.skip_value()
        else:
            text.skip_value()
    return classes, has_labels and has_classes


def _add_labels_of_fiftyone_images(
    text: JsonTextReader, classes: list[object] | None, rows: LabelTableEntryCollector, name: str
) -> None:
    for image in text.iterate_object_keys():
        value = text.read_value()
        where = f"the label of {quote_name(image)} in {name}"
        if isinstance(value, dict):
            value = value.get("label")
        # JSON's true is an int in Python, but no number of a class.
        if classes is not None and isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value < len(classes):
                if value == -1:
                    rows.add_label_entry(image, None, where)
                else:
                    rows.record_bad_entry(
                        where, f"has the class {value}, and there are {len(classes)} names"
                    )
                continue
            value = classes[value]
        rows.add_label_entry(image, value, where)
