"""Libraries that only some kinds need: the extra `data`, `pip install 'perennial-client[data]'`."""

import importlib
from types import ModuleType

from perennial.pack.errors import ExtraMissing


def needed(module: str, purpose: str) -> ModuleType:
    """Import a module of the extra. Raises ExtraMissing with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissing(
            f"{purpose} needs {module.partition('.')[0]}, which is not installed: "
            "pip install 'perennial-client[data]'"
        ) from error
