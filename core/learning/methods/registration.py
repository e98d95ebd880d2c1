"""Registration of methods, without imports of any.

`core.learning.methods.registry` imports them all.
"""

from typing import TypeVar

from core.learning.methods.method import Method

_Method = TypeVar("_Method", bound=Method)

METHODS: dict[str, type[Method]] = {}


def register_method(method: type[_Method]) -> type[_Method]:
    """Register a method class under its name, as a decorator.

    Raises:
        ValueError: the name is taken, or the class is incomplete.
    """
    # A second one would silently replace the first, and stored versions name their method.
    if method.name in METHODS:
        raise ValueError(f"a method named {method.name!r} is registered already")
    # The conformance kit compares each method at strength 0 with fine-tuning; an exception needs a
    # reason.
    if method.neutral is None and not method.no_neutral:
        raise ValueError(f"{method.name}: without neutral hyper-parameters it must say why")
    METHODS[method.name] = method
    return method


def get_method(name: str) -> type[Method]:
    """Return the learning method of that name. Raises KeyError that lists the known names."""
    if name not in METHODS:
        raise KeyError(f"unknown method {name!r}: one of {', '.join(sorted(METHODS))}")
    return METHODS[name]
