"""Weights as the Hub has them: safetensors files of small architectures of timm, classifier
included.
"""

from functools import cache

import torch
from safetensors.torch import save

from core.learning.torchvision_import import import_torchvision_models

NAME = "test_resnet.r160_in1k"
REPOSITORY = f"timm/{NAME}"
ARCHITECTURE = {"name": "timm", "model": NAME}
MODEL = {"architecture": ARCHITECTURE, "image": {"size": 32, "channels": 3}, "base": "pretrained"}
"""The fields of a model that begins with these weights."""


@cache
def build_random_weights(name: str = NAME, seed: int = 0) -> bytes:
    """Return random weights of an architecture, as its publisher's file would hold them."""
    import_torchvision_models()  # timm needs torchvision, which needs help beside a CPU build of torch
    import timm

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return save(dict(timm.create_model(name, pretrained=False).state_dict()), {"format": "pt"})
