"""The base that comes with the package: a backbone for small images, so that the first hour is good without network.

`core/packaged/<name>.safetensors` holds the backbone, `<name>.json` what it was trained on and how well it does, as
`bench/research/train_base.py` wrote them.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from core.protocol.architecture import Normalisation
from core.protocol.document import Document, Number

PREFIX = "perennial/"
PACKAGED = f"{PREFIX}resnet20-cifar100"
STEM = "conv1.weight"
"""[filters, channels, height, width]: the one tensor that depends on the number of channels."""
_FOLDER = Path(__file__).parent / "packaged"


class PackagedBase(Document):
    """What is known of the base.

    Attributes:
        architecture: that it fits, complete.
        size: pixels a side of the images that it was trained on; it takes others, and knows those best.
        normalise: mean and standard deviation of each of three channels, in [0, 1].
        accuracy: share of test images of its own classes that it answered rightly.
        parameters: of the backbone.
        command: that made it; cpu_seconds: that it took.
        classes: that it was trained on.
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
def packaged(name: str = PACKAGED) -> PackagedBase:
    """What is known of a base of the package. Raises FileNotFoundError for a name that it does not have."""
    return PackagedBase.from_json(json.loads(_file(name, "json").read_text()))


def weights(channels: int, name: str = PACKAGED) -> bytes:
    """The backbone as safetensors, for images of 1 or 3 channels."""
    if channels == 3:
        return _file(name, "safetensors").read_bytes()
    tensors = load_file(_file(name, "safetensors"))
    return save(for_grey(tensors, packaged(name).normalise))


def normalisation(channels: int, name: str = PACKAGED) -> Normalisation:
    """By which images of 1 or 3 channels are normalised for it."""
    known = packaged(name).normalise
    return known if channels == 3 else _grey(known)


def for_grey(
    tensors: Mapping[str, NDArray[np.float32]], normalise: Normalisation
) -> dict[str, NDArray[np.float32]]:
    """A backbone of three channels as one of a single channel that sees grey images as it saw them in three.

    The stem's filters are summed over the channels, each divided by its deviation relative to their mean. What the
    channels' different means add is a constant per filter, which BatchNorm takes up; at most .04 of a deviation.
    """
    share = np.mean(normalise.std) / np.asarray(normalise.std)
    stem = (tensors[STEM].astype(np.float64) * share[None, :, None, None]).sum(axis=1, keepdims=True)
    return {**tensors, STEM: stem.astype(np.float32)}


def _grey(normalise: Normalisation) -> Normalisation:
    mean, std = (float(np.mean(values)) for values in (normalise.mean, normalise.std))
    return Normalisation(mean=[mean], std=[std])


def _file(name: str, suffix: str) -> Path:
    return _FOLDER / f"{name.removeprefix(PREFIX)}.{suffix}"
