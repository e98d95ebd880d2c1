"""Import of torchvision with a CPU build of torch.

torchvision's compiled operators may need CUDA libraries. Without them its import fails, because the
schemas of two operators are missing that no classifier uses. This module then declares the schemas
and imports again. torchvision is imported late, since that takes seconds.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # garbage collection of a Library removes its operators


def import_torchvision_models() -> ModuleType:
    """Import and return `torchvision.models`. Raises ImportError when it is not installed."""
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError as error:
        # Another cause, or the declared schemas did not help.
        if "torchvision::nms" not in str(error) or _declared:
            raise
    # Half-imported modules would break the second import.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    _declared.append(library)
    for operator in ("nms", "qnms"):
        library.define(operator + _SCHEMA)  # type: ignore[no-untyped-call]
    return importlib.import_module("torchvision.models")
