"""Validation errors of a request's fields, in words that people understand.

FastAPI names fields by internal paths (with names of Python types for unions) and describes them in
its own terms. Here fields are named as in the request, with what they must be.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from core.text.nearest import describe_unknown_field, list_schema_property_paths
from core.text.plain import (
    describe_allowed_and_invalid_value,
    describe_json_schema_requirement,
    describe_json_types,
    describe_value_found,
)

MAX_FIELDS = 20
"""Maximum number of fields named in one response."""

_PLACES = ("path", "query", "header", "cookie", "body")
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


def list_invalid_fields(
    error: RequestValidationError, route: APIRoute | None, recipe: Sequence[str] = ()
) -> list[dict[str, str]]:
    """Return the invalid fields, each with one message; at most `MAX_FIELDS`.

    Args:
        route: the called route; None if unknown.
        recipe: dotted paths of a recipe, which the schemas of bodies leave open.
    """
    body = error.body if isinstance(error.body, Mapping) else {}
    field_paths = _list_body_field_paths_of_route(route)
    if "recipe" in field_paths:
        field_paths += [f"recipe.{path}" for path in recipe]
    messages_by_path: dict[str, list[str]] = {}
    for each in _sort_errors_by_parameter(error.errors(), route):
        path = _find_path_of_invalid_field(each, body)
        if path not in messages_by_path and len(messages_by_path) == MAX_FIELDS:
            break
        message = _describe_field_error(each, path, field_paths)
        # A union reports an error for each of its types: name the field once.
        messages_by_path.setdefault(path, [])
        if message not in messages_by_path[path]:
            messages_by_path[path].append(message)
    return [
        {"field": path, "message": _join_alternative_messages(messages)}
        for path, messages in messages_by_path.items()
    ]


def _sort_errors_by_parameter(
    errors: Sequence[Mapping[str, Any]], route: APIRoute | None
) -> list[Mapping[str, Any]]:
    """Return validation errors in the order in which the OpenAPI document lists the parameters.

    FastAPI checks the parameters of dependencies before the handler's own.
    """
    documented = [] if route is None else list(_list_parameters(route.dependant))

    def find_parameter_position_of_error(error: Mapping[str, Any]) -> tuple[int, int]:
        location, *names = error["loc"]
        is_parameter = location != "body" and names and names[0] in documented
        return _PLACES.index(location), documented.index(names[0]) if is_parameter else 0

    return sorted(errors, key=find_parameter_position_of_error)


def _list_parameters(dependant: Dependant) -> Iterator[str]:
    for field in (*dependant.path_params, *dependant.query_params, *dependant.header_params):
        yield field.alias
    for dependency in dependant.dependencies:
        yield from _list_parameters(dependency)


def _list_body_field_paths_of_route(route: APIRoute | None) -> list[str]:
    if route is None or route.body_field is None:
        return []
    annotation: Any = route.body_field.field_info.annotation
    return list(_list_property_paths_of_type(annotation))


@lru_cache(maxsize=64)
def _list_property_paths_of_type(annotation: Any) -> tuple[str, ...]:
    return tuple(list_schema_property_paths(TypeAdapter(annotation).json_schema()))


def _find_path_of_invalid_field(error: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    """Return the dotted path of an invalid field, without the type names that unions add."""
    location, *parts = error["loc"]
    if location != "body":
        return ".".join(str(part) for part in parts)
    names, value = [], body
    for number, part in enumerate(parts):
        last = number + 1 == len(parts)
        if isinstance(value, Mapping) and (part in value or (last and error["type"] == "missing")):
            names.append(str(part))
            value = value.get(part)  # type: ignore[assignment]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            names.append(str(part))
            value = value[part]
    return ".".join(names)


def _describe_field_error(error: Mapping[str, Any], path: str, field_paths: Sequence[str]) -> str:
    named, context = str(error["type"]), error.get("ctx") or {}
    if named == "missing":
        return "is missing"
    if named == "extra_forbidden":
        inside, _, name = path.rpartition(".")
        return describe_unknown_field(name, field_paths, inside)
    if named in ("literal_error", "enum"):
        return describe_allowed_and_invalid_value(
            error["input"], _split_pydantic_allowed_values(str(context["expected"]))
        )
    if named in _LIMITS:
        keyword, limit = _LIMITS[named]
        message = describe_json_schema_requirement(keyword, context[limit])
        # Do not quote texts and lists: their length is the error, and repeating them does not help.
        return f"{message}{'' if 'too_' in named else describe_value_found(error['input'])}"
    root = named.partition("_")[0]
    if root in _TYPES and named.endswith(("_type", "_parsing", "_from_float")):
        return (
            f"must be {describe_json_types([_TYPES[root]])}{describe_value_found(error['input'])}"
        )
    if named == "finite_number":
        return "must be a finite number"
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return message[:1].lower() + message[1:]


def _split_pydantic_allowed_values(expected: str) -> list[str]:
    """Split pydantic's list of allowed values, such as `'data', 'task' or 'class'`, into names."""
    return [one.strip(" '") for one in expected.replace(" or ", ", ").split(",")]


def _join_alternative_messages(messages: Sequence[str]) -> str:
    """Combine the error messages of a union field's alternatives into one sentence."""
    if len(messages) > 1 and all(m.startswith("must be ") for m in messages):
        *first_messages, last = messages
        return " or ".join(
            [*(m.partition("; found")[0] for m in first_messages), last.removeprefix("must be ")]
        )
    return "; ".join(messages)
