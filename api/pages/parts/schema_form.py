"""HTML forms from a JSON Schema: the inputs of a schema, and the patch from the values of a form.

Every input starts empty, which keeps the current value (`current`): only differences are sent.
Supported are number, integer, boolean, enum, const, nullable values, and nested objects. Other
values are entered as JSON.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from core.contract.document import JsonObject

Kind = Literal["number", "integer", "choice", "group", "json"]
NONE = "none"
"""Text that a person enters for null."""
ON, OFF = "on", "off"
_NULL = {"type": "null"}


@dataclass(frozen=True)
class SchemaFormField:
    """An input of a form that is generated from a JSON Schema.

    Attributes:
        path: name in the form and path of its value, such as `optimizer.lr`.
        current: the value that applies if the input is empty.
        choices: for a choice, its values as written in the form.
        nullable: True if the value may be null; a group is then switched on and off.
        fields: inputs of a group.
    """

    path: str
    label: str
    kind: Kind
    current: object
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    nullable: bool = False
    fields: tuple["SchemaFormField", ...] = ()

    @property
    def displayed_text(self) -> str:
        """The field's current value as it is shown in the form."""
        if self.kind == "group":
            return OFF if self.current is None else ON
        return format_form_value(self.current)


class InvalidFormValues(Exception):
    """Form values that cannot be read; `errors`: path → reason."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(f"{len(errors)} inputs")
        self.errors = dict(errors)


def build_form_fields(
    schema: Mapping[str, Any],
    current: Mapping[str, Any],
    prefix: str = "",
    without: Sequence[str] = (),
) -> tuple[SchemaFormField, ...]:
    """Generate form inputs from the properties of a JSON Schema.

    Args:
        schema: JSON Schema of the object; `$ref` refers to its `$defs`.
        current: the current object.
        prefix: prefix of the paths, such as `method.`.
        without: properties that get no input.
    """
    definitions = cast(Mapping[str, Any], schema.get("$defs", {}))
    fields = (
        _build_form_field(
            definitions,
            property_schema,
            f"{prefix}{name}",
            name,
            current.get(name, property_schema.get("default")),
        )
        for name, property_schema in schema.get("properties", {}).items()
        if name not in without
    )
    return tuple(field for field in fields if field is not None)


def compute_patch_of_form_values(
    fields: Sequence[SchemaFormField], inputs: Mapping[str, str]
) -> JsonObject:
    """Return a patch of the fields whose form values differ from the current ones.

    Raises:
        InvalidFormValues: a value cannot be read. The schema is not checked here.
    """
    errors: dict[str, str] = {}
    patch = _build_patch_of_changed_inputs(fields, inputs, errors)
    if errors:
        raise InvalidFormValues(errors)
    return patch


def convert_patch_to_form_values(patch: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the form values from which `compute_patch_of_form_values` computes a given patch."""
    values: dict[str, str] = {}
    for name, value in patch.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            values |= {path: ON, **convert_patch_to_form_values(value, f"{path}.")}
        else:
            values[path] = format_form_value(value)
    return values


def format_form_value(value: object) -> str:
    """Return a JSON value as the text that a form input shows."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)


def iterate_form_input_names(fields: Sequence[SchemaFormField]) -> Iterator[str]:
    """Yield the names of all inputs of a generated form, including nested ones."""
    for field in fields:
        yield field.path
        yield from iterate_form_input_names(field.fields)


def _build_form_field(
    definitions: Mapping[str, Any], schema: Mapping[str, Any], path: str, name: str, current: object
) -> SchemaFormField | None:
    nullable, schema = _split_nullable_schema(definitions, schema)
    label = name.replace("_", " ")
    if "const" in schema:
        return None  # a constant leaves no choice
    if "enum" in schema:
        return SchemaFormField(
            path, label, "choice", current, tuple(map(str, schema["enum"])), nullable=nullable
        )
    kind = schema.get("type")
    if kind == "boolean":
        return SchemaFormField(path, label, "choice", current, ("yes", "no"), nullable=nullable)
    if kind in ("number", "integer"):
        low, high = (
            schema.get("minimum", schema.get("exclusiveMinimum")),
            schema.get("maximum", schema.get("exclusiveMaximum")),
        )
        return SchemaFormField(
            path, label, kind, current, minimum=low, maximum=high, nullable=nullable
        )
    if kind == "object" and schema.get("properties"):
        inner = current if isinstance(current, Mapping) else {}
        fields = build_form_fields({**schema, "$defs": definitions}, inner, f"{path}.")
        return SchemaFormField(path, label, "group", current, nullable=nullable, fields=fields)
    return SchemaFormField(path, label, "json", current, nullable=nullable)


def _split_nullable_schema(
    definitions: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[bool, Mapping[str, Any]]:
    """Return whether the value is nullable, and its schema without null, with `$ref` resolved."""
    nullable, non_null = False, [one for one in schema.get("anyOf", ()) if one != _NULL]
    if "anyOf" in schema and len(non_null) == 1:
        nullable, schema = len(schema["anyOf"]) == 2, non_null[0]
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    return nullable, schema


def _build_patch_of_changed_inputs(
    fields: Sequence[SchemaFormField], inputs: Mapping[str, str], errors: dict[str, str]
) -> JsonObject:
    patch: JsonObject = {}
    for field in fields:
        name, text = field.path.rpartition(".")[2], inputs.get(field.path, "").strip()
        if field.kind == "group":
            inner = _build_patch_of_changed_inputs(field.fields, inputs, errors)
            # `convert_patch_to_form_values` writes null as `none`, whatever the kind of the input.
            text = OFF if text == NONE else text
            if text not in ("", ON, OFF) or (text == OFF and not field.nullable):
                advice = f"choose {ON} or {OFF}" if field.nullable else "it has settings of its own"
                errors[field.path] = f"is {text[:40]!r}; {advice}"
            elif text == OFF:
                patch[name] = None
            elif inner or text == ON:
                patch[name] = inner
        elif text:
            try:
                value = _parse_field_value(field, text)
            except ValueError as error:
                errors[field.path] = str(error)
            else:
                # In Python True equals 1: compare the types, too.
                is_same_type = isinstance(value, bool) == isinstance(field.current, bool)
                if value != field.current or not is_same_type:
                    patch[name] = value
    return patch


def _parse_field_value(field: SchemaFormField, text: str) -> Any:
    """Parse the text of a form input as its field's type. Raises ValueError with the allowed
    values.
    """
    if field.nullable and text == NONE:
        return None
    if field.kind == "choice":
        if text not in field.choices:
            raise ValueError(f"is {text[:40]!r}; choose one of {', '.join(field.choices)}")
        return text == "yes" if field.choices == ("yes", "no") else text
    if field.kind == "json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("is no JSON") from None
    word = "whole number" if field.kind == "integer" else "number"
    try:
        # An integer stays one, also where the schema allows any number: 10, and not 10.0.
        number = int(text) if field.kind == "integer" or text.lstrip("-").isdigit() else float(text)
    except ValueError:
        allowed = f"a {word}, or {NONE}" if field.nullable else f"a {word}"
        raise ValueError(f"is {text[:40]!r}; write {allowed}") from None
    return number
