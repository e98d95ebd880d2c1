"""Validation of answers against `/openapi.json`, where every object is closed.

A field that the document does not name is a fault. An object stays open if the document describes
the values of its further fields: it is then a map, such as label → count.
"""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema

JSON_TYPES = ("application/json", "application/problem+json")


def check_schema(client: Any, name: str, value: Any) -> None:
    """Fail if a value does not match the schema with that name.

    The schema is in the OpenAPI document of this process.
    """
    if not _contracts:
        _contracts.append(Contract(client.get("/openapi.json").json()))
    _contracts[0].check(name, value)


_contracts: list["Contract"] = []
"""The contract of this process, once it is known: writing the document takes long."""


class Contract:
    """The OpenAPI contract of a service's answers.

    Args:
        document: the `/openapi.json` of the service.
    """

    def __init__(self, document: Any) -> None:
        self.document = document
        self._components = close_schema(document["components"])
        self._routes = [
            (re.compile(re.sub(r"{\w+}", "[^/]+", path)), operations)
            for path, operations in document["paths"].items()
        ]

    def check(self, name: str, value: Any) -> None:
        """Fail if a value does not have the shape with that name."""
        assert not list(self._errors({"$ref": f"#/components/schemas/{name}"}, value))

    def faults(self, response: httpx2.Response) -> list[str]:
        """Return the places where an answer differs from the document.

        A difference is a part that the document does not describe, or describes otherwise.
        """
        request = response.request
        asked = f"{request.method} {request.url.path} → {response.status_code}"
        found = [of for path, of in self._routes if path.fullmatch(request.url.path)]
        operations = [of[request.method.lower()] for of in found if request.method.lower() in of]
        if not operations:  # no such path or method: a problem, of which no route tells
            return [f"{asked}: {error}" for error in self._errors(_PROBLEM, response.json())]
        described = operations[0]["responses"].get(str(response.status_code))
        if described is None:
            return [f"{asked}: the status is not named"]
        kind = response.headers.get("content-type", "").partition(";")[0]
        if kind not in JSON_TYPES:
            return (
                [] if not response.content or kind in described["content"] else [f"{asked}: {kind}"]
            )
        if kind not in described.get("content", {}):
            return [f"{asked}: {kind} is not named"]
        errors = self._errors(close_schema(described["content"][kind]["schema"]), response.json())
        return [f"{asked}: {error}" for error in errors]

    def _errors(self, schema: Any, value: Any) -> Iterator[str]:
        validator = jsonschema.Draft202012Validator({**schema, "components": self._components})
        for error in validator.iter_errors(value):
            deepest = max(_walk_errors(error), key=lambda one: len(one.absolute_path))
            yield f"{deepest.json_path}: {deepest.message[:300]}"


_PROBLEM = {"$ref": "#/components/schemas/Problem"}


def _walk_errors(error: jsonschema.ValidationError) -> Iterator[jsonschema.ValidationError]:
    yield error
    for inner in error.context or []:
        yield from _walk_errors(inner)


def close_schema(schema: Any) -> Any:
    """Return the same schema with no further fields in any object that names some.

    An object that describes its further fields stays unchanged.
    """
    if isinstance(schema, list):
        return [close_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: close_schema(value) for key, value in schema.items()}
    if (
        "properties" in found
        and "type" in found
        and not isinstance(found.get("additionalProperties"), dict)
    ):
        found["additionalProperties"] = False
    return found


def find_bare_objects(document: Any) -> set[str]:
    """Return the places where the document only says "an object", or says nothing about a value.

    Each has the name of the schema, and the path to it.
    """
    found = set()
    for name, schema in document["components"]["schemas"].items():
        found |= {f"{name}{way}" for way in _find_bare_paths(schema)}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for content in _list_json_contents(operation):
                found |= {
                    f"{method.upper()} {path}{way}"
                    for way in _find_bare_paths(content.get("schema", {}))
                }
    return found


def _list_json_contents(operation: Any) -> Iterator[Any]:
    """Yield what an operation accepts and returns as JSON."""
    for described in (operation.get("requestBody", {}), *operation["responses"].values()):
        yield from (of for kind, of in described.get("content", {}).items() if kind in JSON_TYPES)


def _find_bare_paths(schema: Any, way: str = "") -> Iterator[str]:
    if not {"$ref", "type", "anyOf", "oneOf", "allOf", "enum", "const"} & schema.keys():
        yield way
    for joined in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(joined, []):
            yield from _find_bare_paths(one, way)
    if schema.get("type") == "object" and "properties" not in schema:
        values = schema.get("additionalProperties")
        if not isinstance(values, dict):
            yield way
    for name, field in schema.get("properties", {}).items():
        yield from _find_bare_paths(field, f".{name}" if not way else f"{way}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from _find_bare_paths(schema[inner], f"{way}[]")
    if schema.get("type") == "array" and "items" not in schema:
        yield f"{way}[]"
