"""Conversion of the ImageNet base's checkpoint: `python -m core.bases.hub.imagenet OUT.safetensors`.

It runs in a process of its own, which imports torch and ends. The file is read with
`torch.load(weights_only=True)` after its digest was compared; the rest of the service reads only
safetensors.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from core.learning.networks import ImageSpec, describe_expected_base_tensors
from core.learning.state import save_tensors
from core.packaged import imagenet_base

SIZE = 224
"""Side of an image in pixels; the network's tensors are the same for every size."""


def convert_imagenet_checkpoint_to_timm(checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert an ImageNet checkpoint's backbone to the tensor names of timm.

    Both list the same layers in the same order; the classifier comes last and is left out.

    Raises:
        ValueError: a shape differs.
    """
    expected = describe_expected_base_tensors(imagenet_base.ARCHITECTURE, ImageSpec(SIZE, 3))[
        "tensors"
    ]
    tensors = {}
    # Not strict, since the checkpoint's classifier has no counterpart.
    for (name, entry), (theirs, tensor) in zip(expected.items(), checkpoint.items(), strict=False):
        if list(tensor.shape) != entry["shape"]:
            raise ValueError(
                f"{theirs} has the shape {list(tensor.shape)}, and {name} {entry['shape']}"
            )
        tensors[name] = tensor
    return tensors


def main() -> int:
    """Convert the installed checkpoint, and return the exit status."""
    path, problem = (
        imagenet_base.find_imagenet_checkpoint(),
        imagenet_base.explain_missing_imagenet_base(),
    )
    if path is None or problem:
        print(problem, file=sys.stderr)
        return 1
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251 - its digest is known
    save_tensors(convert_imagenet_checkpoint_to_timm(checkpoint), Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
