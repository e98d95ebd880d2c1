"""Responses of the service as frozen dataclasses: reading them, and writing them as JSON.

Unknown fields are kept in `extra`, so responses of a newer service lose nothing. Fields that an
older service does not send are None. A value of another type than its field is refused: text in
place of a number could otherwise become part of a path or a sentence. New values of an enumeration
are accepted.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

from perennial.errors import BadAnswer
from perennial.guard import quote_refused_value

if TYPE_CHECKING:
    from perennial.frames import DataFrame

T = TypeVar("T")
Read = Callable[[Any], Any]
# Cached, because type hints are slow to read, and a list may have a million items.
_readers: dict[Any, Read] = {}
_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
_LARGEST = 1 << 63


class _FieldTypeMismatch(Exception):
    """A JSON value has another type than the response's field."""


class ResponseObject:
    """Base class of all API responses; their field `extra` has unknown fields by name."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Convert the response to a dict of JSON values, including `extra`."""
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name == "extra":
                fields.update(value)
            # A required field may be null; an optional one that is None was not sent at all.
            elif value is not None or field.default is dataclasses.MISSING:
                fields[_get_json_field_name(field.name)] = convert_to_json(value)
        return fields

    def _repr_html_(self) -> str | None:
        """Return the response as HTML for notebooks, or None for types that have none."""
        from perennial.notebook import render_response_as_html

        return render_response_as_html(self)


class DataFrameResponse(ResponseObject):
    """Base class of API responses that can be converted to a pandas DataFrame."""

    __slots__ = ()

    def to_pandas(self) -> DataFrame:
        """Convert the response to a pandas DataFrame: see `perennial.frames`.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        from perennial.frames import build_data_frame_of_response

        return build_data_frame_of_response(self)


def convert_to_json(value: Any) -> Any:
    """Convert a value to JSON, including response objects in lists and dicts."""
    if isinstance(value, ResponseObject):
        return value.to_dict()
    if isinstance(value, list):
        return [convert_to_json(one) for one in value]
    if isinstance(value, dict):
        return {key: convert_to_json(one) for key, one in value.items()}
    return value


def convert_from_json(kind: type[T], value: Any) -> T:
    """Convert a JSON value to an object of the given type. Raises BadAnswer if it does not fit.

    Raises:
        BadAnswer: a value in it has another type.
    """
    try:
        shape: T = _get_json_reader_of_type(kind)(value)
    except _FieldTypeMismatch as error:
        raise BadAnswer(f"The service's answer cannot be used: {error}.") from None
    return shape


def _get_json_reader_of_type(kind: Any) -> Read:
    """Return the function that converts JSON to a type, built on first use."""
    if kind not in _readers:
        _readers[kind] = _build_json_reader(kind)
    return _readers[kind]


def _build_json_reader(kind: Any) -> Read:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _build_object_reader(kind)
    # `Union[X, Y]` and `X | Y` have different origins.
    if origin in (Union, types.UnionType):
        return _build_union_type_reader(arguments)
    if origin is list:
        item = _get_json_reader_of_type(arguments[0])
        return lambda value: [item(one) for one in _require_type(list, value)]
    if origin is dict:
        item = _get_json_reader_of_type(arguments[1])
        return lambda value: {key: item(one) for key, one in _require_type(dict, value).items()}
    scalars = _get_scalar_types(kind)
    return (lambda value: _require_one_of_types(scalars, value)) if scalars else _return_unchanged


def _return_unchanged(value: Any) -> Any:
    return value


def _get_scalar_types(kind: Any) -> tuple[type, ...]:
    """Return the scalar types that an annotation allows; for a Literal those of its values."""
    if typing.get_origin(kind) is Literal:
        return tuple({type(one) for one in typing.get_args(kind)})
    return (kind,) if kind in (int, float, str, bool, types.NoneType) else ()


def _is_value_of_type(kind: type, value: Any) -> bool:
    if kind is float:
        # `type` and not isinstance, because True is an int. Infinities cannot be written as JSON.
        return type(value) is int or (type(value) is float and math.isfinite(value))
    if kind is int:
        return type(value) is int and -_LARGEST <= value < _LARGEST
    return type(value) is kind


def _require_type(kind: type, value: Any) -> Any:
    return _require_one_of_types((kind,), value)


def _require_one_of_types(kinds: tuple[type, ...], value: Any) -> Any:
    if any(_is_value_of_type(kind, value) for kind in kinds):
        return value
    allowed = " or ".join(_WORDS[kind] for kind in kinds if kind in _WORDS)
    raise _FieldTypeMismatch(f"it has {quote_refused_value(value)} where {allowed} belongs")


def _build_union_type_reader(kinds: tuple[Any, ...]) -> Read:
    """Return a reader for a union type: for objects it picks the class that fits best."""
    shapes = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    by_type = {
        origin: _get_json_reader_of_type(kind)
        for kind in kinds
        if (origin := typing.get_origin(kind)) in (list, dict)
    }
    scalars = tuple(one for kind in kinds for one in _get_scalar_types(kind))
    allowed = (*scalars, *by_type, *((dict,) if shapes else ()))

    def read_union_value(value: Any) -> Any:
        # The JSON does not say which shape it is, so its keys decide.
        if isinstance(value, dict) and shapes:
            return _get_json_reader_of_type(
                max(shapes, key=lambda kind: _rank_response_class_fit(kind, value))
            )(value)
        read_typed = by_type.get(type(value))
        return _require_one_of_types(allowed, value) if read_typed is None else read_typed(value)

    return read_union_value


def _rank_response_class_fit(kind: Any, value: Mapping[str, Any]) -> tuple[bool, int, int]:
    """Rank how well a JSON object fits a response class; higher is better.

    It is (all required fields are present, minus the number of unknown fields, number of required
    fields).
    """
    fields = [field for field in dataclasses.fields(kind) if field.name != "extra"]
    names = {_get_json_field_name(field.name) for field in fields}
    required = {
        _get_json_field_name(field.name) for field in fields if field.default is dataclasses.MISSING
    }
    return required <= value.keys(), -len(value.keys() - names), len(required)


def _build_object_reader(kind: type[Any]) -> Read:
    plan: list[tuple[str, str, Read]] = []

    def build_dataclass_from_json(value: Any) -> Any:
        _require_type(dict, value)
        # Build it at first use, because shapes may refer to each other in a cycle.
        if not plan:
            hints = typing.get_type_hints(kind)
            names = [field.name for field in dataclasses.fields(kind) if field.name != "extra"]
            plan.extend(
                (name, _get_json_field_name(name), _get_json_reader_of_type(hints[name]))
                for name in names
            )
        values = {}
        for name, key, reader in plan:
            try:
                values[name] = None if value.get(key) is None else reader(value[key])
            except _FieldTypeMismatch as error:
                raise BadAnswer(
                    f"The service's answer cannot be used: {error}, as {kind.__name__}.{key}."
                ) from None
        keys = {key for _, key, _ in plan}
        return kind(**values, extra={key: one for key, one in value.items() if key not in keys})

    return build_dataclass_from_json


def _get_json_field_name(name: str) -> str:
    """Return the JSON name of a response field: `class_` becomes `class`, a keyword of Python."""
    return name.removesuffix("_")
