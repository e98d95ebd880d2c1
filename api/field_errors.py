"""What is wrong with the fields of a request, in words a person understands.

The framework names fields by its own path (with names of Python types where there are alternatives) and explains them
in its own terms; here they are named as they stand in the request, and told what they must be.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from core.nearest import paths_of, unknown_field
from core.plain import found, kind, must_be, must_be_one_of

MAX_FIELDS = 20
"""Fields that are named in one answer."""

_TYPES = {
    "string": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "model": "object",
    "mapping": "object",
    "list": "array",
}
_LIMITS = {
    "greater_than": ("exclusiveMinimum", "gt"),
    "greater_than_equal": ("minimum", "ge"),
    "less_than": ("exclusiveMaximum", "lt"),
    "less_than_equal": ("maximum", "le"),
    "string_too_short": ("minLength", "min_length"),
    "string_too_long": ("maxLength", "max_length"),
    "too_short": ("minItems", "min_length"),
    "too_long": ("maxItems", "max_length"),
    "string_pattern_mismatch": ("pattern", "pattern"),
}


def fields_of(
    error: RequestValidationError, route: APIRoute | None, recipe: Sequence[str] = ()
) -> list[dict[str, str]]:
    """The wrong fields, each with one message; at most `MAX_FIELDS`.

    Args:
        route: the one that was called; None where it is not known.
        recipe: the dotted paths of a recipe, which the schemas of bodies leave open.
    """
    body = error.body if isinstance(error.body, Mapping) else {}
    known = _paths(route)
    if "recipe" in known:
        known += [f"recipe.{path}" for path in recipe]
    told: dict[str, list[str]] = {}
    for each in error.errors():
        path = _path(each, body)
        if path not in told and len(told) == MAX_FIELDS:
            break
        message = _message(each, path, known)
        told.setdefault(path, [])
        if message not in told[path]:
            told[path].append(message)
    return [{"field": path, "message": _joined(messages)} for path, messages in told.items()]


def _paths(route: APIRoute | None) -> list[str]:
    if route is None or route.body_field is None:
        return []
    annotation: Any = route.body_field.field_info.annotation
    return list(_schema_paths(annotation))


@lru_cache(maxsize=64)
def _schema_paths(annotation: Any) -> tuple[str, ...]:
    return tuple(paths_of(TypeAdapter(annotation).json_schema()))


def _path(error: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    """Where the field stands in the request: without the names of types among which there was a choice."""
    place, *parts = error["loc"]
    if place != "body":
        return ".".join(str(part) for part in parts)
    kept, value = [], body
    for number, part in enumerate(parts):
        last = number + 1 == len(parts)
        if isinstance(value, Mapping) and (part in value or (last and error["type"] == "missing")):
            kept.append(str(part))
            value = value.get(part)  # type: ignore[assignment]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            kept.append(str(part))
            value = value[part]
    return ".".join(kept)


def _message(error: Mapping[str, Any], path: str, known: Sequence[str]) -> str:
    named, context = str(error["type"]), error.get("ctx") or {}
    if named == "missing":
        return "is missing"
    if named == "extra_forbidden":
        inside, _, name = path.rpartition(".")
        return unknown_field(name, known, inside)
    if named in ("literal_error", "enum"):
        return must_be_one_of(error["input"], _options(str(context["expected"])))
    if named in _LIMITS:
        keyword, limit = _LIMITS[named]
        said = must_be(keyword, context[limit])
        # Of text and lists it is the length that is wrong; to repeat them says nothing.
        return f"{said}{'' if 'too_' in named else found(error['input'])}"
    root = named.partition("_")[0]
    if root in _TYPES and named.endswith(("_type", "_parsing", "_from_float")):
        return f"must be {kind([_TYPES[root]])}{found(error['input'])}"
    if named == "finite_number":
        return "must be a finite number"
    said = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return said[:1].lower() + said[1:]


def _options(expected: str) -> list[str]:
    """The names in `'data', 'task' or 'class'`."""
    return [one.strip(" '") for one in expected.replace(" or ", ", ").split(",")]


def _joined(messages: Sequence[str]) -> str:
    """One sentence of what a field's alternatives say of it."""
    if len(messages) > 1 and all(m.startswith("must be ") for m in messages):
        *others, last = messages
        return " or ".join([*(m.partition("; found")[0] for m in others), last.removeprefix("must be ")])
    return "; ".join(messages)
