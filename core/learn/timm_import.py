"""Imports timm beside a CPU build of torch.

timm imports torchvision, which may need `core.learn.torchvision_import` to be importable. It is imported late, since
both take seconds.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from core.learn.torchvision_import import torchvision_models


def timm_models() -> ModuleType:
    """`timm.models`. Raises ImportError when timm is not installed."""
    torchvision_models()
    return importlib.import_module("timm.models")
