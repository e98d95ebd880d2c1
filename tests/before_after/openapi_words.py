"""The difference between two OpenAPI documents in words: what was added, removed or given another
type.
"""

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def difference(before: Json, after: Json) -> list[str]:
    """Sentences about routes, their parameters, bodies and answers, and about the fields of named
    shapes.
    """
    return [
        *_between("route", _routes(before), _routes(after)),
        *_between("shape", _shapes(before), _shapes(after)),
    ]


def _between(
    what: str, before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"{what} {name} is removed"
        elif name not in before:
            yield f"{what} {name} is added"
        else:
            yield from _of_one(f"{what} {name}", before[name], after[name])


def _of_one(name: str, before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for field in sorted(before.keys() | after.keys()):
        if field not in after:
            yield f"{name}: {field} is removed"
        elif field not in before:
            yield f"{name}: {field} is added, {after[field]}"
        elif before[field] != after[field]:
            yield f"{name}: {field} was {before[field]}, is {after[field]}"


def _routes(document: Json) -> dict[str, dict[str, str]]:
    """`GET /path` → what it takes and answers, each with its type."""
    return {
        f"{method.upper()} {path}": dict(_operation(operation))
        for path, methods in document.get("paths", {}).items()
        for method, operation in methods.items()
    }


def _operation(operation: Json) -> Iterator[tuple[str, str]]:
    for parameter in operation.get("parameters", []):
        name = f"{parameter['in']} parameter {parameter['name']}"
        yield name, _kind(parameter.get("schema", {}), parameter.get("required", False))
    body = operation.get("requestBody", {})
    for media, content in body.get("content", {}).items():
        yield f"body {media}", _kind(content.get("schema", {}), body.get("required", False))
    for status, answer in operation.get("responses", {}).items():
        yield f"answer {status}", "declared"
        for media, content in answer.get("content", {}).items():
            yield f"answer {status} {media}", _kind(content.get("schema", {}), True)


def _shapes(document: Json) -> dict[str, dict[str, str]]:
    """Name of a shape → its fields, each with its type."""
    found: dict[str, dict[str, str]] = {}
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        required = schema.get("required", [])
        fields = schema.get("properties", {})
        found[name] = {
            f"field {field}": _kind(of, field in required) for field, of in fields.items()
        }
        if not fields:
            found[name]["it"] = _kind(schema, True)
    return found


def _kind(schema: Json, required: bool) -> str:
    """A schema in short, without its prose."""
    return f"{'required' if required else 'optional'} {_type(schema)}"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for joined in ("anyOf", "oneOf", "allOf"):
        if joined in schema:
            return " or ".join(sorted(_type(one) for one in schema[joined]))
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    limits = {key: value for key, value in sorted(schema.items()) if key not in _PROSE}
    kind = str(schema.get("type", "anything"))
    return f"{kind} {json.dumps(limits, sort_keys=True)}" if limits else kind


_PROSE = frozenset({"title", "description", "type", "examples"})
