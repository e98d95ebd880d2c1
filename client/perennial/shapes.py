"""Answers of the service as frozen dataclasses: how they are read, and written back as JSON.

A field that this client does not know is kept in `extra`, so an answer of a newer service loses nothing. A
field that an older service does not send is None.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union

T = TypeVar("T")
Read = Callable[[Any], Any]
_readers: dict[Any, Read] = {}


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
    """A JSON value as the shape of that type; what does not fit the type stays what it is."""
    found: T = _reader(kind)(value)
    return found


def _reader(kind: Any) -> Read:
    """What turns JSON into a type that the annotations of a shape name."""
    if kind not in _readers:
        _readers[kind] = _made(kind)
    return _readers[kind]


def _made(kind: Any) -> Read:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _of_shape(kind)
    if origin in (Union, types.UnionType):
        return _of_union(tuple(one for one in arguments if one is not type(None)))
    if origin is list:
        item = _reader(arguments[0])
        return lambda value: [item(one) for one in value] if isinstance(value, list) else value
    if origin is dict:
        item = _reader(arguments[1])
        return lambda value: (
            {key: item(one) for key, one in value.items()} if isinstance(value, dict) else value
        )
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _of_union(kinds: tuple[Any, ...]) -> Read:
    """Of several shapes the one that knows most of an object's fields; without one, what it is."""
    if len(kinds) == 1:
        return _reader(kinds[0])
    shapes = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    others = [kind for kind in kinds if kind not in shapes and typing.get_origin(kind) in (list, dict)]

    def read(value: Any) -> Any:
        if isinstance(value, dict) and shapes:
            return _reader(max(shapes, key=lambda kind: _fit(kind, value)))(value)
        return _reader(others[0])(value) if others and isinstance(value, (list, dict)) else value

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
        if not isinstance(value, dict):
            return value
        if not plan:  # at first use: shapes may name each other in a circle
            hints = typing.get_type_hints(kind)
            names = [field.name for field in dataclasses.fields(kind) if field.name != "extra"]
            plan.extend((name, _name_in_json(name), _reader(hints[name])) for name in names)
        found = {name: of(value[key]) if value.get(key) is not None else None for name, key, of in plan}
        known = {key for _, key, _ in plan}
        return kind(**found, extra={key: one for key, one in value.items() if key not in known})

    return read


def _name_in_json(name: str) -> str:
    """`class_` and `from_` are `class` and `from`, which Python keeps for itself."""
    return name.removesuffix("_")
