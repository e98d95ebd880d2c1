"""Imports torchvision beside a CPU build of torch.

torchvision's compiled operators may need CUDA libraries. Without them its import fails, because the schemas
of two operators are missing that no classifier uses. Then this module declares the schemas and imports again.
It is imported late, since torchvision takes seconds.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # a Library that is collected takes its operators with it


def torchvision_models() -> ModuleType:
    """`torchvision.models`. Raises ImportError when torchvision is not installed."""
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error) or _declared:
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    _declared.append(library)
    for operator in ("nms", "qnms"):
        library.define(operator + _SCHEMA)  # type: ignore[no-untyped-call]
    return importlib.import_module("torchvision.models")
