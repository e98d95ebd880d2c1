"""Requirements on values, in words for people instead of terms of JSON Schema or Python."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from core.text.nearest import format_field_path_suggestion

LONGEST = 40
"""Characters of a value that a message repeats."""

_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters long",
    "maxLength": "at most {} characters long",
    "minItems": "a list of at least {} entries",
    "maxItems": "a list of at most {} entries",
    "multipleOf": "a multiple of {}",
    "pattern": "of the form {}",
}


def describe_json_types(names: Iterable[str]) -> str:
    """Describe JSON Schema types in words, such as `a number or null`."""
    return " or ".join(_KINDS.get(name, name) for name in names)


def describe_json_schema_requirement(keyword: str, limit: Any) -> str | None:
    """Return the requirement of a JSON Schema keyword in words, such as `must be at least 1`.

    Unknown keywords return None.
    """
    if keyword == "type":
        return f"must be {describe_json_types([limit] if isinstance(limit, str) else limit)}"
    if keyword in ("enum", "const"):
        options = limit if keyword == "enum" else [limit]
        return f"must be {'one of ' if len(options) > 1 else ''}{', '.join(map(format_value_as_json, options))}"
    if keyword not in _LIMITS:
        return None
    text = f"must be {_LIMITS[keyword].format(_format_number(limit))}"
    return (
        text.replace("entries", "entry").replace("characters", "character") if limit == 1 else text
    )


def describe_allowed_names(value: Any, options: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest name and all allowed
    ones.
    """
    names = list(options)
    near = format_field_path_suggestion(value, names) if isinstance(value, str) else ""
    return f"{near}one of {', '.join(names)}"


def describe_allowed_and_invalid_value(value: Any, options: Sequence[Any]) -> str:
    """Return the message for a value that is not among `options`.

    It has all options, the value found, and the nearest option.
    """
    names = [option for option in options if isinstance(option, str)]
    near = format_field_path_suggestion(value, names) if isinstance(value, str) else ""
    requirement = describe_json_schema_requirement("enum", options)
    return f"{requirement}{describe_value_found(value)}{near and '; ' + near.strip()}"


def describe_value_found(value: Any) -> str:
    """Return the end of an error message that shows the value found, such as `; found 3`."""
    if isinstance(value, (dict, list)):
        return f"; found {_KINDS['object' if isinstance(value, dict) else 'array']}"
    if isinstance(value, str) and len(value) > LONGEST:
        return f"; found {len(value)} characters"
    return f"; found {format_value_as_json(value, quoted=True)}"


def format_value_as_json(value: Any, *, quoted: bool = False) -> str:
    """Format a value as JSON for a message; text has no quotation marks unless `quoted`."""
    if isinstance(value, str) and not quoted:
        return value
    # For people, who cannot read letters beyond ASCII as escapes.
    return json.dumps(value, ensure_ascii=False, default=str)


def _format_number(limit: Any) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)
