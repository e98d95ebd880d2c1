"""Errors of a value against a JSON Schema, by field and in words for people."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsonschema
from jsonschema.validators import extend

from core.contract.document import JsonObject
from core.text.nearest import describe_unknown_field
from core.text.plain import (
    describe_allowed_and_invalid_value,
    describe_json_schema_requirement,
    describe_json_types,
)
from core.text.plain import describe_value_found as found_text

FieldError = tuple[str, str]
"""A dotted path and the error message for it."""
MAX_ERRORS = 20


def _is_json_integer(_checker: object, value: object) -> bool:
    """Return whether a JSON value is an integer, and no bool.

    JSON Schema also accepts 10.0, the learning code does not.
    """
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite_json_number(_checker: object, value: object) -> bool:
    """Return whether a JSON value is a finite number, and no bool.

    Python reads 1e999 as infinity, which satisfies every lower bound.
    """
    return _is_json_integer(None, value) or (isinstance(value, float) and math.isfinite(value))


_Validator = extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_json_integer, "number": _is_finite_json_number}
    ),
)


def find_json_schema_errors(
    schema: JsonObject, value: Any, root: str, known_fields: Sequence[str]
) -> Iterable[FieldError]:
    """Yield the errors of a value under a JSON Schema; their paths begin with `root`.

    Args:
        known_fields: the paths among which suggestions for an unknown field are looked up.
    """
    validator = _Validator(schema)
    # By texts, since the names and indices of a path cannot be compared with each other.
    for top_error in sorted(
        validator.iter_errors(value), key=lambda e: [str(p) for p in e.absolute_path]
    ):
        for error in _select_errors_of_best_alternative(top_error):
            path = ".".join([root, *(str(p) for p in error.absolute_path)])
            if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
                allowed = sorted(error.schema.get("properties", {}))
                # Limited, since each unknown name is compared with all known ones for a suggestion.
                for unknown in sorted(set(error.instance) - set(allowed))[:MAX_ERRORS]:
                    yield (
                        f"{path}.{unknown}",
                        describe_unknown_field(unknown, known_fields, path, allowed),
                    )
            else:
                yield path, _build_schema_error_message(error)


def list_first_field_errors(errors: Sequence[FieldError]) -> list[dict[str, str]]:
    """Build the `errors` list of an error response from the first `MAX_ERRORS` field errors."""
    return [{"field": field, "message": message} for field, message in errors[:MAX_ERRORS]]


def describe_recipe_errors(errors: Sequence[FieldError], what: str) -> str:
    """Describe a recipe's errors in a sentence: the first, and the number of others."""
    field, message = errors[0]
    more = f" ({len(errors) - 1} more in errors)" if len(errors) > 1 else ""
    return f"{what}: {field}: {message}{more}{'' if (more or message).endswith('?') else '.'}"


def _build_schema_error_message(error: jsonschema.ValidationError) -> str:
    if error.validator == "enum":
        return describe_allowed_and_invalid_value(error.instance, error.validator_value)
    types = [str(e.validator_value) for e in error.context or [] if e.validator == "type"]
    if error.validator == "anyOf" and types:
        return f"must be {describe_json_types(types)}{found_text(error.instance)}"
    requirement = describe_json_schema_requirement(str(error.validator), error.validator_value)
    return (
        f"{requirement}{found_text(error.instance)}"
        if requirement
        else _shorten_text(error.message)
    )


def _select_errors_of_best_alternative(
    error: jsonschema.ValidationError,
) -> list[jsonschema.ValidationError]:
    """Select the schema errors of the alternative (anyOf) that the value's type matches best.

    The alternatives matter for a value that may also be null.
    """
    inner = [e for e in error.context or [] if e.validator != "type" or e.relative_path]
    return inner if error.validator == "anyOf" and inner else [error]


def _shorten_text(text: str) -> str:
    # jsonschema quotes the whole value in its message.
    return text if len(text) <= 300 else f"{text[:297]}…"
