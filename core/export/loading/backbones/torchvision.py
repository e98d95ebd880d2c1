"""`models` of torchvision, for the families that are built of them."""

import torch

# The card begins here.
try:
    from torchvision import models
except RuntimeError:  # its compiled operators do not fit this build of torch, and no network here needs one
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        operators.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models
