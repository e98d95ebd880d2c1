"""The answers of the API as dataclasses, loaded when the first of them is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perennial._types import *  # noqa: F403
else:  # a checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module("perennial._types"), name)
