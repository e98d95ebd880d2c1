"""torchvision beside a CPU build of torch.

torchvision's compiled operators may want CUDA libraries; without them its import fails because the schemas of
two operators are missing, although no classifier uses either. Then the schemas are declared and the import
repeated. Where the plain import works, nothing else happens. Imported late: it takes seconds.
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
