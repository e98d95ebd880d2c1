"""Conversion of a torchvision checkpoint (a .pth state dict) to a base for POST /v1/bases.

    python -m tools.import_torchvision ARCH FILE.pth OUT.safetensors [--image-size 224]
        [--stem STEM] [--patch N]

ARCH is torchvision's name, as resnet18, vit_b_16 or convnext_tiny. An operator who trusts the file
runs this in a separate process; it is still read with `weights_only=True`, which executes nothing.
The classifier is left out, floats become float32, and every name and shape is checked before OUT
appears. At the end, the request that uploads OUT is printed, with the fields of a model that starts
from it.

A checkpoint for images of 224 pixels has a large stem (ResNet, ConvNeXt); with `--stem standard` it
fits a model of small images. The positions of a vision transformer determine the image size:
`--image-size` over `--patch` a side.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.bases.base_advice import (
    advise_on_wrong_stem_or_patch_size,
    format_base_upload_query,
    format_model_creation_request,
)
from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.learning.networks import ImageSpec, describe_expected_base_tensors, get_architectures

_DTYPES = {"F32": torch.float32, "I64": torch.int64}


def convert_torchvision_state_dict(
    architecture: Mapping[str, Any], state: object, image_size: int
) -> dict[str, Tensor]:
    """Convert a torchvision classifier's state dict to the tensors of a Perennial base.

    Raises:
        ValueError: a tensor is missing, extra or of another shape; the message names it.
    """
    name = architecture["name"]
    if not isinstance(state, dict) or not all(
        isinstance(value, Tensor) for value in state.values()
    ):
        raise ValueError("the file does not hold a state dict (a mapping of names to tensors)")
    expected = describe_expected_base_tensors(architecture, ImageSpec(image_size, 3))
    ignored = tuple(expected["ignored"])
    if not ignored:
        raise ValueError(f"{name} is not one of torchvision's architectures")
    for key in state:
        if key not in expected["tensors"] and not key.startswith(ignored):
            raise ValueError(f"{name} has no tensor {key}")
    tensors: dict[str, Tensor] = {}
    for key, entry in expected["tensors"].items():
        # Old checkpoints lack the counters of BatchNorm, which start at zero.
        if key not in state and key in expected["optional"]:
            tensors[key] = torch.zeros(entry["shape"], dtype=_DTYPES[entry["dtype"]])
            continue
        if key not in state:
            raise ValueError(f"the file lacks the tensor {key}")
        tensor = state[key]
        if list(tensor.shape) != entry["shape"]:
            shapes = (_format_shape(tensor.shape), _format_shape(entry["shape"]))
            difference = (
                f"{key} has shape {shapes[0]}, {name} for images of {image_size} pixels "
                f"has {shapes[1]}"
            )
            raise ValueError(
                difference + _suggest_fitting_options(architecture, image_size, state, expected)
            )
        if tensor.is_floating_point() != (entry["dtype"] == "F32"):
            raise ValueError(f"{key} has dtype {tensor.dtype}, {name} has {entry['dtype']}")
        # safetensors refuses tensors that share memory or are not contiguous.
        tensors[key] = (
            tensor.detach().to(_DTYPES[entry["dtype"]]).clone(memory_format=torch.contiguous_format)
        )
    return tensors


def _format_shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "a single number"


def _suggest_fitting_options(
    architecture: Mapping[str, Any],
    image_size: int,
    state: Mapping[str, Tensor],
    expected: Mapping[str, Any],
) -> str:
    """Suggest options with which the checkpoint would fit, as the end of a sentence; "" if none
    does.
    """
    ignored, expected_tensors = tuple(expected["ignored"]), expected["tensors"]
    present_shapes = {
        key: list(tensor.shape) for key, tensor in state.items() if not key.startswith(ignored)
    }
    shapes = {
        key: entry["shape"] for key, entry in expected_tensors.items() if key in present_shapes
    }
    family = get_architectures()[architecture["name"]].family
    image: ImageOut = {"size": image_size, "channels": 3}
    fitting = advise_on_wrong_stem_or_patch_size(
        cast(ArchitectureChoice, architecture), image, family, present_shapes, shapes
    )
    # The files of torchvision have three channels; other advice would not help.
    if fitting is None or fitting.image["channels"] != 3:
        return ""
    hyper: Mapping[str, Any] = fitting.architecture
    chosen = {"image-size": fitting.image["size"]}
    chosen |= {key: hyper[key] for key in ("stem", "patch") if hyper.get(key)}
    return "; it fits with " + " ".join(f"--{key} {value}" for key, value in chosen.items())


def _load_pth_state_dict(file: Path) -> object:
    """Load the state dict in a `.pth` file without running pickled code.

    Raises:
        ValueError: the file is a pickled module, which could run code.
    """
    try:
        return torch.load(file, map_location="cpu", weights_only=True)  # noqa: TID251
    except Exception as error:
        # PyTorch's refusal has no type of its own, only this text.
        if "weights only" not in str(error).lower():
            raise
        raise ValueError(
            "it is no PyTorch file, or holds more than tensors (a whole pickled model, for "
            "example), which is never read. Where you trust it, load it in Python and save its "
            "state dict: torch.save(model.state_dict(), 'FILE.pth')"
        ) from error


def main(arguments: list[str]) -> None:
    """Convert a torchvision checkpoint to a base file; on an error exit with an explanation."""
    parser = argparse.ArgumentParser(description="Make a base from a torchvision checkpoint.")
    parser.add_argument("arch", help="torchvision's name, as resnet18")
    parser.add_argument("file", type=Path, help="the state dict, .pth")
    parser.add_argument("out", type=Path, help="the base, .safetensors")
    parser.add_argument(
        "--image-size", type=int, default=224, help="pixels a side (positions of a ViT)"
    )
    parser.add_argument(
        "--stem", choices=("small", "standard"), help="of a ResNet or ConvNeXt; else by size"
    )
    parser.add_argument("--patch", type=int, help="pixels a side of a ViT's patch; else by size")
    chosen = parser.parse_args(arguments)
    options = {"name": chosen.arch, "stem": chosen.stem, "patch": chosen.patch}
    architecture = {key: value for key, value in options.items() if value is not None}
    try:
        tensors = convert_torchvision_state_dict(
            architecture, _load_pth_state_dict(chosen.file), chosen.image_size
        )
    except Exception as error:
        # Any problem with the operator's file ends as one sentence on stderr.
        raise SystemExit(f"cannot import {chosen.file}: {error}") from error
    # In OUT's folder, since a rename replaces OUT at once only on one disk.
    handle, temporary = tempfile.mkstemp(dir=chosen.out.parent, suffix=".part")
    os.close(handle)
    try:
        save_file(tensors, temporary)  # no metadata: equal weights give equal bytes
        Path(temporary).replace(chosen.out)
    finally:
        # Renamed already, unless writing has failed.
        Path(temporary).unlink(missing_ok=True)
    size = sum(tensor.nbytes for tensor in tensors.values())
    print(f"{chosen.out}: {len(tensors)} tensors, {size:,} bytes of {chosen.arch}")
    image: ImageOut = {"size": chosen.image_size, "channels": 3}
    choice = cast(ArchitectureChoice, architecture)
    print(f"upload it: POST /v1/bases?{format_base_upload_query(choice, image)}")
    print(f"a model that fits: {format_model_creation_request(choice, image)}")


if __name__ == "__main__":
    main(sys.argv[1:])
