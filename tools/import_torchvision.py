"""Turns a torchvision checkpoint (a .pth state dict) into a base that POST /v1/bases accepts.

    python tools/import_torchvision.py ARCH FILE.pth OUT.safetensors [--image-size 224]

ARCH is torchvision's name, as resnet18, vit_b_16 or convnext_tiny. Runs in a process of its own, by an operator
who trusts the file; it is still read with `weights_only=True`, which executes nothing. The classifier is left
out, floats become float32, and every name and shape is checked before OUT appears.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.learn.networks import ImageSpec, expected_base

_DTYPES = {"F32": torch.float32, "I64": torch.int64}


def convert(name: str, state: object, image_size: int) -> dict[str, Tensor]:
    """The backbone's tensors of a state dict. ValueError names what is missing, extra or of another shape."""
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError("the file does not hold a state dict (a mapping of names to tensors)")
    expected = expected_base({"name": name}, ImageSpec(image_size, 3))
    ignored = tuple(expected["ignored"])
    if not ignored:
        raise ValueError(f"{name} is not one of torchvision's architectures")
    for key in state:
        if key not in expected["tensors"] and not key.startswith(ignored):
            raise ValueError(f"{name} has no tensor {key}")
    tensors: dict[str, Tensor] = {}
    for key, entry in expected["tensors"].items():
        if key not in state and key in expected["optional"]:
            tensors[key] = torch.zeros(entry["shape"], dtype=_DTYPES[entry["dtype"]])
            continue
        if key not in state:
            raise ValueError(f"the file lacks the tensor {key}")
        tensor = state[key]
        if list(tensor.shape) != entry["shape"]:
            raise ValueError(f"{key} has shape {list(tensor.shape)}, {name} has {entry['shape']}")
        if tensor.is_floating_point() != (entry["dtype"] == "F32"):
            raise ValueError(f"{key} has dtype {tensor.dtype}, {name} has {entry['dtype']}")
        tensors[key] = (
            tensor.detach().to(_DTYPES[entry["dtype"]]).clone(memory_format=torch.contiguous_format)
        )
    return tensors


def main(arguments: list[str]) -> None:
    """Writes OUT, or raises SystemExit with a sentence and leaves OUT as it was."""
    parser = argparse.ArgumentParser(description="Make a base from a torchvision checkpoint.")
    parser.add_argument("arch", help="torchvision's name, as resnet18")
    parser.add_argument("file", type=Path, help="the state dict, .pth")
    parser.add_argument("out", type=Path, help="the base, .safetensors")
    parser.add_argument("--image-size", type=int, default=224, help="pixels a side (positions of a ViT)")
    chosen = parser.parse_args(arguments)
    try:
        state = torch.load(chosen.file, map_location="cpu", weights_only=True)  # noqa: TID251
        tensors = convert(chosen.arch, state, chosen.image_size)
    except Exception as error:
        # Whatever is wrong with the operator's file ends as one sentence on stderr.
        raise SystemExit(f"cannot import {chosen.file}: {error}") from error
    handle, temporary = tempfile.mkstemp(dir=chosen.out.parent, suffix=".part")
    os.close(handle)
    try:
        save_file(tensors, temporary)  # no metadata: equal weights give equal bytes
        Path(temporary).replace(chosen.out)
    finally:
        Path(temporary).unlink(missing_ok=True)
    size = sum(tensor.nbytes for tensor in tensors.values())
    print(f"{chosen.out}: {len(tensors)} tensors, {size:,} bytes of {chosen.arch}")


if __name__ == "__main__":
    main(sys.argv[1:])
