"""Responses of the API as dataclasses, loaded on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perennial._types import *  # noqa: F403
else:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> Any:
        # Import machinery and tools probe special names, which must not load thousands of lines.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module("perennial._types"), name)
