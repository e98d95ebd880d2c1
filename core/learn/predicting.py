"""A stored version as a network again, and what it says about images.

The manifest names architecture, scenario and heads; the parts hold the tensors. Loading is strict: a version
is rebuilt exactly or not at all. Version 0 has no trained head: its weights come from the seed in its
manifest, from an uploaded base, or from another version's backbone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from core.learn.networks import HeadSpec, ImageSpec, Network, build_network, empty_network
from core.learn.precision import Inputs

BASE_PART = "base"


def load(manifest: Mapping[str, Any], part_paths: Mapping[str, Path]) -> Network:
    """The version's network in eval mode, on the CPU, in float32.

    `part_paths`: part name to a safetensors file; parts that are not the network's (a method's buffer or
    curvature) are left alone. In version 0 (assumed when the manifest has no `version`) the head may be missing:
    it is then zero rows for the classes that the manifest names. Raises ValueError naming the first tensor that
    is missing, extra or of another shape or dtype, and for a manifest without a needed field.
    """
    try:
        architecture, scenario = manifest["architecture"], manifest["scenario"]
        image = ImageSpec.of(manifest["image"])
    except KeyError as error:
        raise ValueError(f"the manifest lacks {error}") from error
    heads = HeadSpec.of(manifest)
    first = manifest.get("version", 0) == 0
    backbone = {name: path for name, path in part_paths.items() if name.startswith("backbone.")}
    head = {name: path for name, path in part_paths.items() if name == "head" or name.startswith("head.")}
    if first and BASE_PART in part_paths:
        network = empty_network(architecture, image, scenario, heads)
        network.backbone.load_base(load_file(part_paths[BASE_PART]))
    elif backbone or not first:
        network = empty_network(architecture, image, scenario, heads)
        parts = {name: load_file(path) for name, path in {**backbone, **head}.items()}
        if head or not first:
            network.load_parts(parts)
        else:
            network.load_backbone_parts(parts)
    else:
        init = manifest.get("init") or {}
        if init.get("kind") != "random":
            raise ValueError("the manifest names neither parts nor a random first version")
        network = build_network(architecture, image, scenario, heads, seed=int(init["seed"]))
    return network.eval()


def predict(
    network: Network,
    images: NDArray[np.uint8],
    task: int | None = None,
    normalise: Mapping[str, Any] | None = None,
    batch: int = 256,
) -> tuple[list[str], NDArray[np.float32]]:
    """Labels and class probabilities [N, C] (columns: `network.classes_of(task)`; rows sum to 1).

    `images`: uint8 [N, size, size, channels]. `normalise`: {"mean": […], "std": […]} per channel of pixel
    values in [0, 1]. Ties go to the first class. Runs in eval mode in float32 and restores the mode. Raises ValueError for a wrong shape or dtype, a network without classes (an unlearned version), an unknown
    task, or outputs that are not finite.
    """
    if images.ndim != 4 or images.dtype != np.uint8:
        raise ValueError(f"images must be uint8 [N, size, size, channels], not {images.dtype} {images.shape}")
    classes = network.classes_of(task)
    if not classes:
        raise ValueError("this version knows no classes yet")
    inputs = Inputs(normalise, images.shape[3], next(network.parameters()).device)
    mode = network.training
    network.eval()
    outputs: list[Tensor] = []
    try:
        with torch.inference_mode():
            for start in range(0, len(images), batch):
                x = inputs(torch.from_numpy(np.ascontiguousarray(images[start : start + batch])))
                outputs.append(network(x, task).float().softmax(1).cpu())
    finally:
        network.train(mode)
    probabilities = torch.cat(outputs).numpy() if outputs else np.zeros((0, len(classes)), np.float32)
    if not np.isfinite(probabilities).all():
        raise ValueError("the network's outputs are not finite")
    return [classes[i] for i in probabilities.argmax(1)], probabilities
