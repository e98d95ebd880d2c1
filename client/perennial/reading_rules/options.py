"""Reading options as texts: from a query, from `-o NAME=VALUE`, and stored with a task."""

import math
from collections.abc import Mapping

from perennial.reading_rules.entries import BatchReadingOptions
from perennial.reading_rules.names import quote_name

OPTIONS = (
    "layout",
    "one_class",
    "classes",
    "max_bad",
    "image",
    "label",
    "table",
    "names_pattern",
    "names",
)
"""Names of the options that a sender may choose."""
HELD_OUT_ALONE = "held_out_alone"
MAX_CHARS = 200
MAX_LEVEL = 9
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


def parse_reading_option_texts(texts: Mapping[str, str]) -> BatchReadingOptions:
    """Parse the options for reading a batch from their texts by name; other names are ignored.

    Raises ValueError with a sentence that names the option and the allowed values.
    """
    for name in OPTIONS:
        if len(texts.get(name, "")) > MAX_CHARS:
            raise ValueError(f"{name} has {len(texts[name])} characters; {MAX_CHARS} are allowed.")
    layout = texts.get("layout") or "auto"
    if layout not in ("auto", "folders"):
        raise ValueError(f"layout is {quote_name(layout)}; possible are auto and folders.")
    return BatchReadingOptions(
        layout="folders" if layout == "folders" else "auto",
        one_class=_parse_boolean("one_class", texts.get("one_class") or "false"),
        class_level=_parse_folder_level(texts.get("classes") or ""),
        max_bad=_parse_max_bad_share(texts.get("max_bad") or ""),
        image_column=texts.get("image", ""),
        label_column=texts.get("label", ""),
        table=texts.get("table", ""),
        names_pattern=texts.get("names_pattern", ""),
        names=texts.get("names", ""),
        held_out_alone=_parse_boolean(HELD_OUT_ALONE, texts.get(HELD_OUT_ALONE) or "false"),
    )


def serialise_reading_options_to_texts(options: BatchReadingOptions) -> dict[str, str]:
    """Convert reading options to texts by name, which `parse_reading_option_texts` parses."""
    defaults = BatchReadingOptions()
    texts = {
        "layout": options.layout if options.layout != defaults.layout else "",
        "one_class": "true" if options.one_class else "",
        "classes": f"level:{options.class_level}" if options.class_level is not None else "",
        "max_bad": f"{options.max_bad:g}" if options.max_bad != defaults.max_bad else "",
        "image": options.image_column,
        "label": options.label_column,
        "table": options.table,
        "names_pattern": options.names_pattern,
        "names": options.names,
        HELD_OUT_ALONE: "true" if options.held_out_alone else "",
    }
    return {name: text for name, text in texts.items() if text}


def convert_reading_option_values_to_texts(values: Mapping[str, object]) -> dict[str, str]:
    """Convert values of reading options (true, 0.1) from JSON to texts; ignore other names."""
    texts = {name: values[name] for name in OPTIONS if values.get(name) not in (None, "")}
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in texts.items()
    }


def _parse_boolean(name: str, text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(f"{name} is {quote_name(text)}; possible are true and false.")
    return text.lower() in _TRUE


def _parse_folder_level(text: str) -> int | None:
    if not text:
        return None
    level = text.removeprefix("level:")
    # Three digits decide, whatever the length of the number.
    if not (level.isascii() and level.isdigit() and 1 <= int(level[:3]) <= MAX_LEVEL):
        raise ValueError(
            f"classes is {quote_name(text)}; possible are level:1 and level:2, up to level:{MAX_LEVEL}."
        )
    return int(level)


def _parse_max_bad_share(text: str) -> float:
    if not text:
        return BatchReadingOptions().max_bad
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    # NaN fails the comparison, too.
    if not 0 <= share <= 1:
        raise ValueError(
            f"max_bad is {quote_name(text)}; it must be a share from 0 to 1, such as 0.05."
        )
    return share
