"""Generator of `client/perennial/_types.py`: the API's responses as dataclasses, from OpenAPI.

    python -m tools.client_types

No service is started: the document comes from the app in this process. A test fails if the file
differs from the generated one.
"""

import keyword
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from api.app import create_app
from core.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "client" / "perennial" / "_types.py"
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
JSON_TYPES = ("application/json", "application/problem+json")
ALSO = ("EventOut",)
"""Schemas that streams send and that no response of a route names by themselves."""
TABLES = ("Compare", "Metrics", "Predict")
"""Responses that are tables, which `perennial.frames` converts to DataFrames."""
HEAD = '''"""The answers of the API. \
Written by `python -m tools.client_types` from its OpenAPI document: change nothing here."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as _field
from typing import Any, Literal

from perennial.shapes import DataFrameResponse, ResponseObject
'''

Schema = Mapping[str, Any]


def main() -> None:
    """Write the file."""
    TARGET.write_text(generate_types_source(build_openapi_document()))


def build_openapi_document() -> Schema:
    """Return the OpenAPI document of the code in this checkout."""
    # The app wants a data directory, even though it serves no request.
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(data_dir=Path(folder)))
        content: Schema = app.openapi()
    return content


def generate_types_source(document: Schema) -> str:
    """Return the whole file for a document; the same document gives the same text."""
    schemas: dict[str, Schema] = document["components"]["schemas"]
    names = {name: _get_class_name(name, schemas) for name in schemas}
    used_names = sorted(_find_reachable_schemas(document, schemas), key=lambda name: names[name])
    types = _SchemaRenderer(schemas, names)
    classes = [
        types.render_class(name)
        for name in used_names
        if has_schema_own_fields(schemas[name]) and not is_page_schema(schemas[name])
    ]
    return "\n\n\n".join([HEAD.rstrip(), *classes]) + "\n"


def has_schema_own_fields(schema: Schema) -> bool:
    """Return whether a schema has its own fields and therefore becomes a class."""
    return "properties" in schema


def is_page_schema(schema: Schema) -> bool:
    """Return whether a schema is a page of a list, which the client reads page by page."""
    return set(schema.get("properties", ())) == {"items", "next_cursor"}


def _get_class_name(name: str, schemas: Mapping[str, Schema]) -> str:
    short = re.sub(r"\W", "_", name.removesuffix("Out")).lstrip("_")
    # `JobOut` becomes Job, unless another schema has that name.
    return short if short == name or short not in schemas else name


def _find_reachable_schemas(document: Schema, schemas: Mapping[str, Schema]) -> set[str]:
    """Return the names of all schemas that responses and the problem refer to, also indirectly."""
    roots = [name for name in ("Problem", *ALSO) if name in schemas]
    for operations in document["paths"].values():
        for operation in operations.values():
            if isinstance(operation, dict):
                roots += [
                    name
                    for schema in _list_response_schemas(operation)
                    for name in find_referenced_schemas(schema)
                ]
    reachable: set[str] = set()
    while roots:
        name = roots.pop()
        if name not in reachable:
            reachable.add(name)
            roots += find_referenced_schemas(schemas[name])
    return reachable


def _list_response_schemas(operation: Schema) -> Iterator[Any]:
    for status, response in operation.get("responses", {}).items():
        # Problems are one schema, which is a root; the client raises them as exceptions.
        if status < "400":
            contents = response.get("content", {}).items()
            yield from (
                content.get("schema", {}) for kind, content in contents if kind in JSON_TYPES
            )


def find_referenced_schemas(schema: Any) -> list[str]:
    """Return the names of the schemas that a schema refers to directly."""
    if isinstance(schema, list):
        return [name for one in schema for name in find_referenced_schemas(one)]
    if not isinstance(schema, dict):
        return []
    target_names = [_parse_schema_reference(schema["$ref"])] if "$ref" in schema else []
    return target_names + [
        name
        for key, one in schema.items()
        if key != "$ref"
        for name in find_referenced_schemas(one)
    ]


def _parse_schema_reference(reference: str) -> str:
    return reference.rpartition("/")[2]


class _SchemaRenderer:
    """Python types of schemas."""

    def __init__(self, schemas: Mapping[str, Schema], names: Mapping[str, str]) -> None:
        self._schemas, self._names = schemas, names

    def render_class(self, name: str) -> str:
        """Return the class of a schema."""
        schema = self._schemas[name]
        base = "DataFrameResponse" if self._names[name] in TABLES else "ResponseObject"
        class_lines = [
            # kw_only, because a required field may follow an optional one.
            "@dataclass(frozen=True, slots=True, kw_only=True)",
            f"class {self._names[name]}({base}):",
        ]
        class_lines += [*_format_docstring(schema.get("description", self._names[name])), ""]
        required = set(schema.get("required", ()))
        for field, field_schema in schema["properties"].items():
            kind = self.render_type(field_schema)
            # An older service does not send a field that is not required.
            if field not in required:
                kind = f"{kind} = None" if _does_type_allow_none(kind) else f"{kind} | None = None"
            class_lines.append(f"    {_get_python_name(field)}: {kind}")
        class_lines.append("    extra: dict[str, Any] = _field(default_factory=dict, repr=False)")
        return "\n".join(class_lines)

    def render_type(self, schema: Schema) -> str:
        """Return the type of a value."""
        if "$ref" in schema:
            name = _parse_schema_reference(schema["$ref"])
            inner = self._schemas[name]
            return (
                self._names[name]
                if has_schema_own_fields(inner) and not is_page_schema(inner)
                else self.render_type(inner)
            )
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            return f"Literal[{', '.join(_format_literal(value) for value in values)}]"
        for joined in ("anyOf", "oneOf"):
            if joined in schema:
                return _join_types([self.render_type(one) for one in schema[joined]])
        # A single entry only serves to put a description beside a reference.
        if len(schema.get("allOf", ())) == 1:
            return self.render_type(schema["allOf"][0])
        kind = schema.get("type")
        # OpenAPI 3.1 allows a list of types, such as one type and null.
        if isinstance(kind, list):
            return _join_types([self.render_type({**schema, "type": one}) for one in kind])
        if kind == "array":
            return f"list[{self.render_type(schema.get('items', {}))}]"
        if kind == "object":
            further = schema.get("additionalProperties")
            return f"dict[str, {self.render_type(further) if isinstance(further, dict) else 'Any'}]"
        return SIMPLE.get(str(kind), "Any")


def _join_types(kinds: list[str]) -> str:
    """Return the union of types, each once and None last; with Any, only Any."""
    each = list(dict.fromkeys(part for kind in kinds for part in _split_union_members(kind)))
    if "Any" in each:
        return "Any"
    return " | ".join([one for one in each if one != "None"] + (["None"] if "None" in each else []))


def _split_union_members(kind: str) -> list[str]:
    """Return the members of a union at its outermost level."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(kind):
        depth += (sign == "[") - (sign == "]")
        # Within brackets, it belongs to the items of a list.
        if sign == "|" and depth == 0:
            parts.append(kind[start:at].strip())
            start = at + 1
    return [*parts, kind[start:].strip()]


def _does_type_allow_none(kind: str) -> bool:
    return kind == "Any" or "None" in _split_union_members(kind)


def _get_python_name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _format_literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _format_docstring(text: str) -> list[str]:
    text_lines = text.replace("\\", "\\\\").replace('"""', "'''").strip().splitlines()
    if len(text_lines) == 1:
        return [f'    """{text_lines[0]}"""']
    return [
        f'    """{text_lines[0]}',
        *(f"    {text_line}".rstrip() for text_line in text_lines[1:]),
        '    """',
    ]


if __name__ == "__main__":
    main()
