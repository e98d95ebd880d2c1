"""The closed forms of `network_size` beside networks that are built, on torch's meta device."""

from typing import Any

import pytest
import torch

from core.admission.network_size import find_network_size
from core.learning.networks import ImageSpec, build_backbone_on_meta_device, get_architectures

OTHERS: list[tuple[dict[str, Any], int, int]] = [
    ({"name": "mlp", "hidden": [7, 300, 20]}, 28, 1),
    ({"name": "resnet20", "width": 33}, 31, 1),
    ({"name": "slim-resnet18", "width": 64}, 96, 3),
    ({"name": "resnet18", "stem": "standard"}, 32, 3),
    ({"name": "resnet50", "stem": "small"}, 97, 1),
    ({"name": "convnext_tiny", "stem": "standard"}, 64, 1),
    ({"name": "vit", "layers": 3, "heads": 4, "hidden": 64, "mlp": 100, "patch": 7}, 60, 1),
    ({"name": "vit_b_32", "patch": 8}, 224, 3),
    (
        {
            "name": "dne",
            "layers": 3,
            "head_dim": 16,
            "heads": 5,
            "expansion": 2,
            "attention": "mhsa",
        },
        40,
        1,
    ),
    ({"name": "dne", "layers": 2, "patch": 5}, 32, 3),
]
NAMES = sorted(get_architectures().keys() - {"timm"})
CASES = [
    *OTHERS,
    *[
        # `OTHERS` has one or two of each of the other families.
        pytest.param(
            {"name": name}, size, 3, marks=() if name == "small-cnn" else pytest.mark.campaign
        )
        for name in NAMES
        for size in (32, 64, 224)
    ],
]


def measure_built_network(
    architecture: dict[str, Any], size: int, channels: int
) -> tuple[int, float, int]:
    """Return the parameters, the float32 values of an image that a backward pass keeps, and the
    features.
    """
    network = build_backbone_on_meta_device(architecture, ImageSpec(size, channels)).train()
    own = {p.untyped_storage()._cdata for p in network.parameters()}
    kept: dict[int, Any] = {}

    def record_saved_storage(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    batch = 4
    with torch.autograd.graph.saved_tensors_hooks(record_saved_storage, lambda tensor: tensor):
        features = network(
            torch.empty(batch, channels, size, size, device="meta", requires_grad=False)
        )
    values = sum(storage.nbytes() for storage in kept.values()) / 4 / batch
    return sum(p.numel() for p in network.parameters()), values, features.shape[1]


@pytest.mark.parametrize(("architecture", "size", "channels"), CASES, ids=str)
def test_parameters_are_exact_and_activations_a_little_above(
    architecture: dict[str, Any], size: int, channels: int
) -> None:
    info = get_architectures()[architecture["name"]]
    whole = {**info.hyper().model_dump(), **architecture}
    found = find_network_size(whole, {"size": size, "channels": channels})
    assert found is not None
    parameters, activations, features = measure_built_network(architecture, size, channels)
    assert found.parameters == parameters and found.features == features
    # torch's meta device has no fused attention: what it keeps of a ViT is above what any device
    # keeps.
    low = 0.65 if architecture["name"].startswith("vit") else 0.95
    assert low * activations <= found.activations <= 2 * activations


def test_an_architecture_that_is_not_known_here_has_no_size() -> None:
    assert find_network_size({"name": "new"}, {"size": 32, "channels": 3}) is None
