"""The base that the rows other than Perennial's start from: its weights and its images."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load, load_file
from torch import Tensor

from core.contract.architecture import Normalisation
from core.ingest.decoding.resizing import LATEST, SquareResizingSettings
from core.learning.networks import ImageSpec, Network, build_network
from core.learning.networks.backbones.timm_names import get_timm_weights_properties
from core.learning.precision import InputNormaliser, move_network_to_device
from core.packaged import imagenet_base, packaged_base
from core.processes import helper_process
from tools.compare_methods.errors import ComparisonImpossible

BASES = (imagenet_base.NAME, packaged_base.PACKAGED)
CONVERT_TIMEOUT_S = 300.0
CPU = torch.device("cpu")
CHANNELS = 3


@dataclass(frozen=True)
class ComparisonBase:
    """Pretrained backbone that the compared methods start from, and its image format.

    Attributes:
        name: name of the base.
        architecture: its architecture with hyper-parameters.
        size: pixels a side of its images.
        resizing: conversion of files to such images.
        normalise: statistics of its training images.
        tensors: weights by name.
    """

    name: str
    architecture: dict[str, object]
    size: int
    resizing: SquareResizingSettings
    normalise: Normalisation
    tensors: dict[str, Tensor]

    def build_network(self, seed: int) -> Network:
        """Build a network with the base's weights and no classes yet, on the CPU."""
        network = build_network(
            self.architecture, ImageSpec(self.size, CHANNELS), "class", seed=seed
        )
        network.backbone.load_state_dict(self.tensors)
        move_network_to_device(network, CPU)
        return network

    def build_input_conversion(self) -> InputNormaliser:
        """Return the conversion of uint8 images to inputs of the base's network."""
        return InputNormaliser(self.normalise, CHANNELS, CPU)


def load_base(name: str, scratch: Path) -> ComparisonBase:
    """Load pretrained base weights that come with the service or with an installed package.

    Args:
        name: one of `BASES`.
        scratch: a folder for the converted weights.

    Raises:
        ComparisonImpossible: the package of the weights is missing, or the weights cannot be converted.
    """
    return _load_imagenet_base(scratch) if name == imagenet_base.NAME else _load_packaged_base(name)


def _load_packaged_base(name: str) -> ComparisonBase:
    description = packaged_base.load_packaged_base_description(name)
    tensors = load(packaged_base.load_packaged_base_weights(CHANNELS, name))
    return ComparisonBase(
        name,
        dict(description.architecture),
        description.size,
        # By the decoding of new models, which Perennial's row uses as well.
        SquareResizingSettings(decoding=LATEST),
        description.normalise,
        tensors,
    )


def _load_imagenet_base(scratch: Path) -> ComparisonBase:
    problem = imagenet_base.explain_missing_imagenet_base()
    if problem:
        raise _build_base_error(problem)
    file = scratch / "base.safetensors"
    try:
        # timm is loaded in a separate process, so that this one need not import it.
        done = helper_process.run_module_in_helper_process(
            "core.bases.hub.imagenet", str(file.absolute()), CONVERT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise _build_base_error(
            f"its conversion takes more than {CONVERT_TIMEOUT_S:g} s"
        ) from error
    if done.returncode:
        # The end of a traceback names the error.
        raise _build_base_error(done.stderr.strip()[-300:])
    weights = get_timm_weights_properties(imagenet_base.MODEL)
    return ComparisonBase(
        imagenet_base.NAME,
        dict(imagenet_base.ARCHITECTURE),
        weights.size,
        SquareResizingSettings(float(weights.crop), weights.interpolation, LATEST),
        Normalisation(mean=list(weights.mean), std=list(weights.std)),
        load_file(file),
    )


def _build_base_error(why: str) -> ComparisonImpossible:
    return ComparisonImpossible(
        f"The base {imagenet_base.NAME} cannot be had here: {why}. Mend that, or start from "
        f"another with --base {packaged_base.PACKAGED}."
    )
