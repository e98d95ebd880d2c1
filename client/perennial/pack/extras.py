"""Optional libraries for some kinds of sources: the extras `data`, `s3`, `gs` and `az`."""

import importlib
from types import ModuleType

from perennial.pack.errors import ExtraMissing


def import_optional_module_or_raise(module: str, purpose: str, extra: str = "data") -> ModuleType:
    """Import a library of an optional extra. Raises ExtraMissing with the install command."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissing(
            f"{purpose} needs {module.partition('.')[0]}, which is not installed: "
            f"pip install 'perennial-client[{extra}]'"
        ) from error
