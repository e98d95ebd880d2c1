"""What a value must be, in words: for people, so without the words of a schema language or of Python."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from core.nearest import did_you_mean

LONGEST = 40
"""Characters of a value that are repeated in a message."""

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


def kind(names: Iterable[str]) -> str:
    """JSON Schema's types in words: `a number or null`."""
    return " or ".join(_KINDS.get(name, name) for name in names)


def must_be(keyword: str, limit: Any) -> str | None:
    """What a keyword of JSON Schema asks for: `must be at least 1`; None for one that is not said here."""
    if keyword == "type":
        return f"must be {kind([limit] if isinstance(limit, str) else limit)}"
    if keyword in ("enum", "const"):
        options = limit if keyword == "enum" else [limit]
        return f"must be {'one of ' if len(options) > 1 else ''}{', '.join(map(shown, options))}"
    if keyword not in _LIMITS:
        return None
    said = f"must be {_LIMITS[keyword].format(_number(limit))}"
    return said.replace("entries", "entry").replace("characters", "character") if limit == 1 else said


def one_of(given: Any, options: Iterable[str]) -> str:
    """To end a message about a name that does not exist: the nearest one, and all that there are."""
    names = list(options)
    near = did_you_mean(given, names) if isinstance(given, str) else ""
    return f"{near}one of {', '.join(names)}"


def must_be_one_of(given: Any, options: Sequence[Any]) -> str:
    """The message for a value that is not among `options`: all that there are, what was found, and the nearest one."""
    names = [option for option in options if isinstance(option, str)]
    near = did_you_mean(given, names) if isinstance(given, str) else ""
    return f"{must_be('enum', options)}{found(given)}{near and '; ' + near.strip()}"


def found(value: Any) -> str:
    """`; found "abc"`: what was sent, where it is short enough to be repeated."""
    if isinstance(value, (dict, list)):
        return f"; found {_KINDS['object' if isinstance(value, dict) else 'array']}"
    if isinstance(value, str) and len(value) > LONGEST:
        return f"; found {len(value)} characters"
    return f"; found {shown(value, quoted=True)}"


def shown(value: Any, *, quoted: bool = False) -> str:
    """A JSON value as JSON has it; text without quotation marks unless `quoted`."""
    if isinstance(value, str) and not quoted:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _number(limit: Any) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)
