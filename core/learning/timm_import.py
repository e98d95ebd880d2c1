"""Import of timm with a CPU build of torch.

timm imports torchvision, which may need `core.learning.torchvision_import` to be importable. Both are
imported late, since they take seconds.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from core.learning.torchvision_import import import_torchvision_models


def import_timm_models() -> ModuleType:
    """Import and return `timm.models`. Raises ImportError when timm is not installed."""
    import_torchvision_models()
    return importlib.import_module("timm.models")
