"""Answers of the service as frozen dataclasses: how they are read, and written back as JSON.

A field that this client does not know is kept in `extra`, so an answer of a newer service loses nothing. A
field that an older service does not send is None. A value of another type than its field's is refused: a number
that is text would become part of a path or a sentence. New values of an enumeration are taken.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

from perennial.errors import BadAnswer
from perennial.guard import shown

if TYPE_CHECKING:
    from perennial.frames import DataFrame

T = TypeVar("T")
Read = Callable[[Any], Any]
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


class _Mismatch(Exception):
    """A value of another type than the field's."""


class Shape:
    """Base of all answers; a field `extra` of each holds by name what its dataclass does not know."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON, with all that is in `extra`."""
        found: dict[str, Any] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name == "extra":
                found.update(value)
            elif value is not None or field.default is dataclasses.MISSING:
                found[_name_in_json(field.name)] = as_json(value)
        return found

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows of a model, version, job, comparison or matrix; None: its usual text."""
        from perennial.notebook import describe

        return describe(self)


class Table(Shape):
    """Base of answers that are tables."""

    __slots__ = ()

    def to_pandas(self) -> DataFrame:
        """The table as a DataFrame of pandas: see `perennial.frames`. Raises ExtraMissing without pandas."""
        from perennial.frames import table_of

        return table_of(self)


def as_json(value: Any) -> Any:
    """Shapes, and what lists and dicts hold of them, as JSON."""
    if isinstance(value, Shape):
        return value.to_dict()
    if isinstance(value, list):
        return [as_json(one) for one in value]
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items()}
    return value


def read_as(kind: type[T], value: Any) -> T:
    """Return a JSON value as the shape of that type.

    Raises:
        BadAnswer: a value in it is of another type.
    """
    try:
        found: T = _reader(kind)(value)
    except _Mismatch as error:
        raise BadAnswer(f"The service's answer cannot be used: {error}.") from None
    return found


def _reader(kind: Any) -> Read:
    """Return what turns JSON into a type that the annotations of a shape name."""
    if kind not in _readers:
        _readers[kind] = _made(kind)
    return _readers[kind]


def _made(kind: Any) -> Read:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _of_shape(kind)
    if origin in (Union, types.UnionType):
        return _of_union(arguments)
    if origin is list:
        item = _reader(arguments[0])
        return lambda value: [item(one) for one in _require(list, value)]
    if origin is dict:
        item = _reader(arguments[1])
        return lambda value: {key: item(one) for key, one in _require(dict, value).items()}
    scalars = _scalars(kind)
    return (lambda value: _require_any(scalars, value)) if scalars else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _scalars(kind: Any) -> tuple[type, ...]:
    """Return the plain types of an annotation; of an enumeration those of its values."""
    if typing.get_origin(kind) is Literal:
        return tuple({type(one) for one in typing.get_args(kind)})
    return (kind,) if kind in (int, float, str, bool, types.NoneType) else ()


def _is_a(kind: type, value: Any) -> bool:
    if kind is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    if kind is int:
        return type(value) is int and -_LARGEST <= value < _LARGEST
    return type(value) is kind


def _require(kind: type, value: Any) -> Any:
    return _require_any((kind,), value)


def _require_any(kinds: tuple[type, ...], value: Any) -> Any:
    if any(_is_a(kind, value) for kind in kinds):
        return value
    allowed = " or ".join(_WORDS[kind] for kind in kinds if kind in _WORDS)
    raise _Mismatch(f"it has {shown(value)} where {allowed} belongs")


def _of_union(kinds: tuple[Any, ...]) -> Read:
    """Read an object as the shape that knows most of its fields, and anything else by its own type."""
    shapes = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    by_type = {origin: _reader(kind) for kind in kinds if (origin := typing.get_origin(kind)) in (list, dict)}
    scalars = tuple(one for kind in kinds for one in _scalars(kind))
    allowed = (*scalars, *by_type, *((dict,) if shapes else ()))

    def read(value: Any) -> Any:
        if isinstance(value, dict) and shapes:
            return _reader(max(shapes, key=lambda kind: _fit(kind, value)))(value)
        read_typed = by_type.get(type(value))
        return _require_any(allowed, value) if read_typed is None else read_typed(value)

    return read


def _fit(kind: Any, value: Mapping[str, Any]) -> tuple[bool, int, int]:
    """How well an object fits a shape: all required fields are there; how many are unknown; how many are known."""
    fields = [field for field in dataclasses.fields(kind) if field.name != "extra"]
    names = {_name_in_json(field.name) for field in fields}
    required = {_name_in_json(field.name) for field in fields if field.default is dataclasses.MISSING}
    return required <= value.keys(), -len(value.keys() - names), len(required)


def _of_shape(kind: type[Any]) -> Read:
    plan: list[tuple[str, str, Read]] = []

    def read(value: Any) -> Any:
        _require(dict, value)
        if not plan:  # at first use: shapes may name each other in a circle
            hints = typing.get_type_hints(kind)
            names = [field.name for field in dataclasses.fields(kind) if field.name != "extra"]
            plan.extend((name, _name_in_json(name), _reader(hints[name])) for name in names)
        found = {}
        for name, key, of in plan:
            try:
                found[name] = None if value.get(key) is None else of(value[key])
            except _Mismatch as error:
                raise BadAnswer(
                    f"The service's answer cannot be used: {error}, as {kind.__name__}.{key}."
                ) from None
        known = {key for _, key, _ in plan}
        return kind(**found, extra={key: one for key, one in value.items() if key not in known})

    return read


def _name_in_json(name: str) -> str:
    """`class_` and `from_` are `class` and `from`, which Python keeps for itself."""
    return name.removesuffix("_")
