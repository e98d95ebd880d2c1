"""Strict JSON parsing that accepts only what the standard allows and the database can store.

Python's parser accepts NaN, repeated names, numbers of any size and lone surrogates. PostgreSQL
stores no NUL in text and no integer beyond 64 bits. All of these are refused here for every body
and header.
"""

import json
import math
from typing import Any, NoReturn

from core.errors import Invalid

MAX_INT = 2**63 - 1
MAX_DEPTH = 64


def parse_strict_json(data: bytes, what: str = "The body") -> Any:
    """Parse a JSON text in UTF-8.

    Args:
        what: subject of the error messages.

    Raises:
        Invalid: it is not UTF-8, not JSON, or contains values that cannot be stored.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{what} is not UTF-8: byte {error.start} is wrong.") from None
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_json_constant,
            parse_int=_parse_json_integer,
            parse_float=_parse_json_float,
            object_pairs_hook=_build_object_without_repeated_names,
        )
    except json.JSONDecodeError as error:
        raise Invalid(
            f"{what} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        ) from None
    except RecursionError:
        raise Invalid(f"{what} is nested too deeply.") from None
    except _UnstorableJson as error:
        raise Invalid(f"{what} cannot be taken: {error}.") from None
    try:
        # After parsing: the parser's hooks see neither depth nor strings.
        _check_json_value(value, 0)
    except _UnstorableJson as error:
        raise Invalid(f"{what} cannot be taken: {error}.") from None
    return value


def is_storable_text(text: str) -> bool:
    """Return True if a string can be encoded in UTF-8 and stored in PostgreSQL."""
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


class _UnstorableJson(ValueError):
    """A JSON text that parses, but that the database cannot store."""


def _refuse_json_constant(name: str) -> NoReturn:
    raise _UnstorableJson(f"{name} is not a JSON number")


def _parse_json_integer(digits: str) -> int:
    # Check the length first: converting very long digit strings takes quadratic time.
    if len(digits) > 20 or abs(value := int(digits)) > MAX_INT:
        raise _UnstorableJson(f"the integer {digits[:24]} does not fit 64 bits")
    return value


def _parse_json_float(digits: str) -> float:
    value = float(digits)
    # 1e999 is valid JSON, and becomes infinity.
    if not math.isfinite(value):
        raise _UnstorableJson(f"the number {digits[:24]} is too large")
    return value


def _build_object_without_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    # Python keeps the last of repeated names, and another program may keep the first.
    if len(value) != len(pairs):
        earlier_names: set[str] = set()
        twice = next(k for k, _ in pairs if k in earlier_names or earlier_names.add(k))  # type: ignore[func-returns-value]
        raise _UnstorableJson(f"the name {twice[:60]!r} appears twice in one object")
    return value


def _check_json_value(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _UnstorableJson(f"it is nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        if not is_storable_text(value):
            raise _UnstorableJson("a string holds a NUL character or half of a surrogate pair")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_json_value(key, depth)
            _check_json_value(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_json_value(item, depth + 1)
