"""The base in the package: a backbone for small images that works without network access.

`core/packaged/<name>.safetensors` has the backbone, `<name>.json` its training data and its
accuracy. Both are written by `bench/research/train_base.py`.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from core.contract.architecture import Normalisation
from core.contract.document import Document, Number

PREFIX = "perennial/"
PACKAGED = f"{PREFIX}resnet20-cifar100"
STEM = "conv1.weight"
"""[filters, channels, height, width]: the only tensor that depends on the number of channels."""
_FOLDER = Path(__file__).parent


class PackagedBaseDescription(Document):
    """Description of a base whose weights come packaged with the service.

    Attributes:
        architecture: the complete architecture that the base fits.
        size: pixels a side of its training images; other sizes work, but less well.
        normalise: mean and standard deviation of each of three channels, in [0, 1].
        accuracy: share of test images of its own classes that it classified correctly.
        parameters: number of parameters of the backbone.
        command: command that trained the base.
        cpu_seconds: duration of that command.
        classes: classes that it was trained on.
    """

    architecture: dict[str, str | int]
    size: int
    normalise: Normalisation
    accuracy: Number
    parameters: int
    command: str
    cpu_seconds: Number
    classes: list[str]


@cache
def load_packaged_base_description(name: str = PACKAGED) -> PackagedBaseDescription:
    """Load the description of a packaged base.

    Raises:
        FileNotFoundError: the package has no base of this name.
    """
    return PackagedBaseDescription.from_json(
        json.loads(_locate_packaged_base_file(name, "json").read_text())
    )


def load_packaged_base_weights(channels: int, name: str = PACKAGED) -> bytes:
    """Load a packaged base's backbone as safetensors bytes, for images of 1 or 3 channels."""
    if channels == 3:
        return _locate_packaged_base_file(name, "safetensors").read_bytes()
    tensors = load_file(_locate_packaged_base_file(name, "safetensors"))
    return save(
        convert_backbone_to_grey_images(tensors, load_packaged_base_description(name).normalise)
    )


def load_packaged_base_normalisation(channels: int, name: str = PACKAGED) -> Normalisation:
    """Return a packaged base's pixel mean and standard deviation for images of 1 or 3 channels."""
    rgb = load_packaged_base_description(name).normalise
    return rgb if channels == 3 else _convert_normalisation_to_grey(rgb)


def convert_backbone_to_grey_images(
    tensors: Mapping[str, NDArray[np.float32]], normalise: Normalisation
) -> dict[str, NDArray[np.float32]]:
    """Convert a backbone of three channels to one that takes grey images and gives equal features.

    The stem's filters are summed over the channels, each divided by its deviation relative to their
    mean. The channels' different means would add a constant per filter, which BatchNorm absorbs; it
    is at most .04 of a deviation.
    """
    share = np.mean(normalise.std) / np.asarray(normalise.std)
    # In float64, so that the result is rounded once, to float32.
    stem = (tensors[STEM].astype(np.float64) * share[None, :, None, None]).sum(
        axis=1, keepdims=True
    )
    return {**tensors, STEM: stem.astype(np.float32)}


def _convert_normalisation_to_grey(normalise: Normalisation) -> Normalisation:
    mean, std = (float(np.mean(values)) for values in (normalise.mean, normalise.std))
    return Normalisation(mean=[mean], std=[std])


def _locate_packaged_base_file(name: str, suffix: str) -> Path:
    return _FOLDER / f"{name.removeprefix(PREFIX)}.{suffix}"
