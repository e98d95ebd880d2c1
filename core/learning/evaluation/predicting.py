"""Loading of a stored version as a network and a method, and its predictions.

The manifest names architecture, scenario, heads, the method and its changes of the network; the
parts have the tensors. Loading is strict: a version is rebuilt exactly or not at all. Version 0 has
no trained head: its weights come from the seed in its manifest, from an uploaded base, or from
another version's backbone. A version predicts through its method, exactly as it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from core.contract.architecture import Normalisation
from core.contract.manifest import Manifest, ManifestMethod
from core.learning.evaluation.evaluate import Predict
from core.learning.methods import registry
from core.learning.methods.method import Method
from core.learning.networks import (
    HeadSpec,
    ImageSpec,
    Network,
    build_network,
    build_uninitialised_network,
)
from core.learning.networks.families import rebuild_described_network
from core.learning.networks.network import get_type_of_part_name
from core.learning.precision import InputNormaliser, use_full_precision
from core.learning.problems.registry import get_problem
from core.learning.state import MethodState, load_tensors

BASE_PART = "base"


def load_version_network(manifest: Manifest, part_paths: Mapping[str, Path]) -> Network:
    """Load a version's network in eval mode, on the CPU, in float32.

    In version 0 the head may be missing: it is then zero rows for the classes that the manifest
    names.

    Args:
        manifest: describes the version.
        part_paths: part name to a safetensors file; other parts than the network's (a method's
            buffer or curvature) are ignored.

    Raises:
        ValueError: names the first tensor that is missing, extra or of another shape or dtype.
    """
    architecture, scenario = manifest.architecture.to_json(), manifest.scenario
    image = ImageSpec(manifest.image.size, manifest.image.channels)
    heads = HeadSpec(
        tuple(manifest.classes or ()),
        tuple((head.task, tuple(head.classes)) for head in manifest.heads or ()),
        get_problem(manifest.problem).make_head,
    )
    first = manifest.version == 0
    backbone = {name for name in part_paths if get_type_of_part_name(name) == "backbone"}
    if first and BASE_PART in part_paths:
        network = build_uninitialised_network(architecture, image, scenario, heads)
        network.backbone.load_base_weights(load_file(part_paths[BASE_PART]))
    elif backbone or not first:
        description = None if manifest.network is None else manifest.network.to_json()
        network = rebuild_described_network(
            build_uninitialised_network(architecture, image, scenario, heads), description
        )
        # By type: the parts of a method's state lie in the same folder.
        types = {get_type_of_part_name(part) for part in network.list_tensor_names_by_part()}
        parts = {
            name: load_file(path)
            for name, path in part_paths.items()
            if get_type_of_part_name(name) in types
        }
        # A base taken from another model's version has no head.
        if first and parts.keys() == backbone:
            network.load_backbone_parts(parts)
        else:
            network.load_parts(parts)
    else:
        if manifest.init is None or manifest.init.kind != "random":
            raise ValueError("the manifest names neither parts nor a random first version")
        network = build_network(architecture, image, scenario, heads, seed=manifest.init.seed)
        # Known only here: the tensors of a random start look like any other weights.
        network.pretrained = False
    return network.eval()


def load_prediction_method(
    manifest: Manifest, part_paths: Mapping[str, Path], device: torch.device | None = None
) -> Method:
    """Load the method that made a version, with only the state that its predictions read.

    A version that no method made (0) predicts by the network's forward pass, as fine-tuning does.
    Raises ValueError for an unknown method, or hyper-parameters that it does not accept.
    """
    manifest_method = manifest.method or ManifestMethod(name="finetune")
    try:
        method_type = registry.get_method(manifest_method.name)
    except KeyError as error:
        raise ValueError(f"the manifest names an {error.args[0]}") from error
    method = method_type(method_type.Hyper.model_validate(manifest_method.hyper), MethodState())
    # A replay buffer may be large, and no prediction reads it.
    kinds = method.predicts_with
    tensors = {kind: load_tensors(part_paths[kind]) for kind in kinds if kind in part_paths}
    values = {kind: json for kind, json in manifest_method.state.items() if kind in kinds}
    method.state.replace_content(tensors, values, device or torch.device("cpu"))
    return method


@dataclass(frozen=True)
class SoftmaxScoring:
    """Probabilities from a version's scores: the softmax of `predict` over `temperature`.

    Attributes:
        predict: the `predict_logits` of the version's method: logits, or other scores such as
            negative squared distances to class means.
    """

    predict: Predict = Network.forward
    temperature: float = 1.0


PLAIN = SoftmaxScoring()


def predict_images(
    network: Network,
    images: NDArray[np.uint8],
    task: int | None = None,
    normalise: Normalisation | None = None,
    batch: int = 256,
    scoring: SoftmaxScoring = PLAIN,
) -> tuple[list[str], NDArray[np.float32]]:
    """Predict images: return labels and class probabilities [N, C], whose rows sum to 1.

    Columns are `network.list_classes(task)`. Ties go to the first class. Runs in eval mode in
    float32 and restores the mode.

    Args:
        network: the version's network.
        images: uint8 [N, size, size, channels].
        task: the head in the task scenario.
        normalise: None for mean 0.5 and standard deviation 0.25.
        batch: images per pass.
        scoring: that of the version.

    Raises:
        ValueError: for a wrong shape or dtype, a network without classes (an unlearned version), an
            unknown task, or outputs that are not finite.
    """
    if images.ndim != 4 or images.dtype != np.uint8:
        raise ValueError(
            f"images must be uint8 [N, size, size, channels], not {images.dtype} {images.shape}"
        )
    classes = network.list_classes(task)
    if not classes:
        raise ValueError("this version knows no classes yet")
    inputs = InputNormaliser(normalise, images.shape[3], next(network.parameters()).device)
    # Restored below: callers predict with networks that they train.
    mode = network.training
    network.eval()
    outputs: list[Tensor] = []
    try:
        with use_full_precision(inputs.device), torch.inference_mode():
            # In batches, so that a large request does not multiply the memory for activations.
            for start in range(0, len(images), batch):
                x = inputs(torch.from_numpy(np.ascontiguousarray(images[start : start + batch])))
                scores = scoring.predict(network, x, task).float()
                outputs.append((scores / scoring.temperature).softmax(1).cpu())
    finally:
        network.train(mode)
    probabilities = (
        torch.cat(outputs).numpy() if outputs else np.zeros((0, len(classes)), np.float32)
    )
    if not np.isfinite(probabilities).all():
        raise ValueError("the network's outputs are not finite")
    return [classes[i] for i in probabilities.argmax(1)], probabilities
