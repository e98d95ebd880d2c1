"""Small networks of every family, and images for them."""

import pytest
import torch

from core.learning.networks import HeadSpec, ImageSpec, Network, build_network

SMALL = [
    {"name": "mlp", "hidden": [20, 10]},
    {"name": "small-cnn"},
    {"name": "resnet20", "width": 8},
    {"name": "slim-resnet18", "width": 8},
    {"name": "vit", "layers": 5, "heads": 2, "hidden": 16, "mlp": 24},
    *(
        # Each build takes smaller ones with the same kinds of layers; `test_torchvision.py` takes
        # these two.
        pytest.param({"name": name}, marks=pytest.mark.campaign)
        for name in ("resnet18", "convnext_tiny")
    ),
]


@pytest.fixture(params=SMALL, ids=lambda architecture: architecture["name"], scope="session")
def architecture(request) -> dict[str, object]:
    return dict(request.param)


@pytest.fixture
def image() -> ImageSpec:
    return ImageSpec(16, 3)


@pytest.fixture
def make(image: ImageSpec):
    def build_image_network(
        architecture, scenario: str = "class", seed: int = 0, **heads: object
    ) -> Network:
        return build_network(architecture, image, scenario, HeadSpec.from_manifest(heads), seed)

    return build_image_network


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
