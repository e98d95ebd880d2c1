"""Where methods register themselves; `core.learn.methods.registry` is what has them all."""

from typing import TypeVar

from core.learn.method import Method

_Method = TypeVar("_Method", bound=Method)

METHODS: dict[str, type[Method]] = {}


def register(method: type[_Method]) -> type[_Method]:
    """Add a method under its name: a decorator of its class.

    Raises:
        ValueError: the name is taken, or the class is incomplete.
    """
    if method.name in METHODS:
        raise ValueError(f"a method named {method.name!r} is registered already")
    if method.neutral is None and not method.no_neutral:
        raise ValueError(f"{method.name}: without neutral hyper-parameters it must say why")
    METHODS[method.name] = method
    return method


def get(name: str) -> type[Method]:
    """The method of that name. Raises KeyError that lists the known names."""
    if name not in METHODS:
        raise KeyError(f"unknown method {name!r}: one of {', '.join(sorted(METHODS))}")
    return METHODS[name]
