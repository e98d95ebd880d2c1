"""The difference between two OpenAPI documents in words: what was added, removed or given another
type.
"""

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def list_differences(before: Json, after: Json) -> list[str]:
    """Return sentences about changed routes, with their parameters, bodies and responses, and
    about changed fields of named shapes.
    """
    return [
        *_compare_entries("route", _collect_routes(before), _collect_routes(after)),
        *_compare_entries("shape", _collect_shapes(before), _collect_shapes(after)),
    ]


def _compare_entries(
    what: str, before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"{what} {name} is removed"
        elif name not in before:
            yield f"{what} {name} is added"
        else:
            yield from _compare_fields(f"{what} {name}", before[name], after[name])


def _compare_fields(name: str, before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for field in sorted(before.keys() | after.keys()):
        if field not in after:
            yield f"{name}: {field} is removed"
        elif field not in before:
            yield f"{name}: {field} is added, {after[field]}"
        elif before[field] != after[field]:
            yield f"{name}: {field} was {before[field]}, is {after[field]}"


def _collect_routes(document: Json) -> dict[str, dict[str, str]]:
    """Map each `GET /path` to what it takes and returns, each with its type."""
    return {
        f"{method.upper()} {path}": dict(_describe_operation(operation))
        for path, methods in document.get("paths", {}).items()
        for method, operation in methods.items()
    }


def _describe_operation(operation: Json) -> Iterator[tuple[str, str]]:
    for parameter in operation.get("parameters", []):
        name = f"{parameter['in']} parameter {parameter['name']}"
        yield name, _describe_schema(parameter.get("schema", {}), parameter.get("required", False))
    body = operation.get("requestBody", {})
    for media, content in body.get("content", {}).items():
        yield (
            f"body {media}",
            _describe_schema(content.get("schema", {}), body.get("required", False)),
        )
    for status, answer in operation.get("responses", {}).items():
        yield f"answer {status}", "declared"
        for media, content in answer.get("content", {}).items():
            yield f"answer {status} {media}", _describe_schema(content.get("schema", {}), True)


def _collect_shapes(document: Json) -> dict[str, dict[str, str]]:
    """Map the name of each shape to its fields, each with its type."""
    found: dict[str, dict[str, str]] = {}
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        required = schema.get("required", [])
        fields = schema.get("properties", {})
        found[name] = {
            f"field {field}": _describe_schema(of, field in required)
            for field, of in fields.items()
        }
        if not fields:
            found[name]["it"] = _describe_schema(schema, True)
    return found


def _describe_schema(schema: Json, required: bool) -> str:
    """Describe a schema in short, without its prose."""
    return f"{'required' if required else 'optional'} {_describe_type(schema)}"


def _describe_type(schema: Json) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for joined in ("anyOf", "oneOf", "allOf"):
        if joined in schema:
            return " or ".join(sorted(_describe_type(one) for one in schema[joined]))
    if "items" in schema:
        return f"list of {_describe_type(schema['items'])}"
    limits = {key: value for key, value in sorted(schema.items()) if key not in _PROSE}
    kind = str(schema.get("type", "anything"))
    return f"{kind} {json.dumps(limits, sort_keys=True)}" if limits else kind


_PROSE = frozenset({"title", "description", "type", "examples"})
