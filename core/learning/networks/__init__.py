"""Architectures by name, and networks built from them.

An architecture is a JSON object: `{"name": "mlp", "hidden": [400, 400]}`. A frozen pydantic model
checks its other fields, and the catalogue publishes its JSON Schema. A backbone is made on the meta
device, where constructors draw nothing, then filled from a given generator. So its first weights
are a pure function of (architecture, image, seed), and the global generator is neither used nor
advanced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import BaseModel

from core.contract.base import ExpectedBaseTensors
from core.learning.networks.backbone import Backbone, ImageSpec, is_batch_norm_counter
from core.learning.networks.init import initialise_weights
from core.learning.networks.network import HeadSpec, Network
from core.learning.networks.registry import ARCHITECTURES, RegisteredArchitecture

__all__ = [
    "Backbone",
    "HeadSpec",
    "ImageSpec",
    "Network",
    "RegisteredArchitecture",
    "build_backbone_on_meta_device",
    "build_initialised_backbone",
    "build_network",
    "build_uninitialised_network",
    "describe_expected_base_tensors",
    "get_architectures",
    "list_backbone_tensor_dtypes_and_shapes",
    "parse_architecture",
]

_DTYPES = {torch.float32: "F32", torch.int64: "I64"}  # names in safetensors


def get_architectures() -> dict[str, RegisteredArchitecture]:
    """Return every registered architecture by name."""
    return dict(ARCHITECTURES)


def parse_architecture(architecture: Mapping[str, Any]) -> tuple[RegisteredArchitecture, BaseModel]:
    """Parse an architecture's JSON: return the registered entry and validated hyper-parameters.

    Raises ValueError for an unknown name or field.
    """
    name = architecture.get("name")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {name!r}; known: {', '.join(ARCHITECTURES)}")
    info = ARCHITECTURES[name]
    return info, info.hyper.model_validate(
        {key: value for key, value in architecture.items() if key != "name"}
    )


def build_initialised_backbone(
    architecture: Mapping[str, Any], image: ImageSpec, generator: torch.Generator
) -> Backbone:
    """Build a backbone on the CPU in float32, with initial weights from a CPU generator.

    Raises ValueError for an unknown architecture, bad hyper-parameters, or an image that it cannot
    take.
    """
    info, _ = parse_architecture(architecture)
    backbone = _build_uninitialised_backbone(architecture, image)
    if info.rule is None:
        backbone.draw_initial_weights(generator)
    else:
        initialise_weights(backbone, info.rule, generator)
    return backbone


def build_network(
    architecture: Mapping[str, Any],
    image: ImageSpec,
    scenario: str,
    heads: HeadSpec | None = None,
    seed: int = 0,
) -> Network:
    """Build a network with initial backbone weights from `seed` and heads of zeros.

    Raises ValueError as `build_initialised_backbone` does.
    """
    return Network(
        build_initialised_backbone(architecture, image, torch.Generator().manual_seed(seed)),
        scenario,
        heads,
    )


def build_uninitialised_network(
    architecture: Mapping[str, Any], image: ImageSpec, scenario: str, heads: HeadSpec | None = None
) -> Network:
    """Build a network with an uninitialised backbone, whose weights are loaded right after."""
    return Network(_build_uninitialised_backbone(architecture, image), scenario, heads)


def list_backbone_tensor_dtypes_and_shapes(
    architecture: Mapping[str, Any], image: ImageSpec
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """List the tensors of a backbone's state dict: name → (safetensors dtype, shape).

    Nothing is allocated.
    """
    state = build_backbone_on_meta_device(architecture, image).state_dict()
    return {name: (_DTYPES[tensor.dtype], tuple(tensor.shape)) for name, tensor in state.items()}


def describe_expected_base_tensors(
    architecture: Mapping[str, Any], image: ImageSpec
) -> ExpectedBaseTensors:
    """Describe as JSON the tensors that an uploaded base must contain.

    `tensors`: name → dtype and shape. `optional`: names that may be missing. `ignored`: name
    prefixes that may be present (the reference's classifier). `width`: numbers in a feature
    vector. `stages`: names of each stage's tensors.
    """
    backbone = build_backbone_on_meta_device(architecture, image)
    tensors = list_backbone_tensor_dtypes_and_shapes(architecture, image)
    return {
        "tensors": {
            name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in tensors.items()
        },
        "optional": [name for name in tensors if is_batch_norm_counter(name)],
        "ignored": list(backbone.ignored),
        "width": backbone.width,
        "stages": [
            backbone.list_tensor_names_of_stage(stage)
            for stage in range(len(backbone.stage_prefixes))
        ],
    }


def build_backbone_on_meta_device(architecture: Mapping[str, Any], image: ImageSpec) -> Backbone:
    """Build a backbone on the meta device, without memory: for names, shapes and stages.

    Raises ValueError as `build_initialised_backbone` does.
    """
    info, hyper = parse_architecture(architecture)
    # Refused here with the size: deeper in, a pooling layer would fail with a message about shapes.
    if image.size < info.min_size:
        raise ValueError(
            f"{info.name} needs images of at least {info.min_size} pixels, not {image.size}"
        )
    # Constructors draw from the global generator, which must not advance.
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return info.build(hyper, image)


def _build_uninitialised_backbone(architecture: Mapping[str, Any], image: ImageSpec) -> Backbone:
    """Build a backbone with uninitialised weights on the CPU."""
    backbone = build_backbone_on_meta_device(architecture, image)
    # Not initialised, since every value is overwritten by a load or a rule.
    backbone.to_empty(device="cpu")
    return backbone
