"""The registry of methods: one file and one line here per method."""

from __future__ import annotations

from core.learn.methods.base import Method
from core.learn.methods.der_pp import DerPlusPlus
from core.learn.methods.er import Er
from core.learn.methods.ewc_online import EwcOnline
from core.learn.methods.finetune import Finetune

METHODS: dict[str, type[Method]] = {}


def register(method: type[Method]) -> type[Method]:
    """Add a method under its name. Raises ValueError when the name is taken or the class is incomplete."""
    if method.name in METHODS:
        raise ValueError(f"a method named {method.name!r} is registered already")
    if method.neutral is None and not method.no_neutral:
        raise ValueError(f"{method.name}: without neutral hyper-parameters it must say why")
    METHODS[method.name] = method
    return method


def get(name: str) -> type[Method]:
    """The method of that name. Raises KeyError with the names there are."""
    if name not in METHODS:
        raise KeyError(f"unknown method {name!r}: one of {', '.join(sorted(METHODS))}")
    return METHODS[name]


register(Finetune)
register(EwcOnline)
register(Er)
register(DerPlusPlus)
