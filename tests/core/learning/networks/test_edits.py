"""Preparation for linearising: other activations, and norms folded into their convolutions."""

import copy

import pytest
import torch
from linear import (
    WITH_NORMS,
    compute_relative_error,
    copy_plain_network,
    draw_images,
    list_case_parameters,
)
from torch import nn

from core.learning.networks import ImageSpec, build_network
from core.learning.networks.backbone import Backbone
from core.learning.networks.linear.edits import fold_batch_norms, replace_relu_by_leaky_relu


class Stack(Backbone):
    """A network of named modules, in their order."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


@pytest.mark.parametrize("case", list_case_parameters(WITH_NORMS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_a_folded_network_gives_what_its_norms_gave(case, dtype, tolerance) -> None:
    network, x = copy_plain_network(case).to(dtype), draw_images(case).to(dtype)
    with torch.no_grad():
        wanted = network.backbone(x)
        fold_batch_norms(network.backbone)
        assert compute_relative_error(network.backbone(x), wanted) <= tolerance


def test_folding_leaves_convolutions_with_biases_and_nothing_else_to_learn() -> None:
    network = copy_plain_network("resnet20")
    fold_batch_norms(network.backbone)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in network.modules())
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert all(m.bias is not None for m in convolutions)
    assert len(list(network.backbone.parameters())) == 2 * len(convolutions)
    assert not list(network.backbone.buffers())


@pytest.mark.parametrize("case", ["mlp", "small-cnn", "vit"])
def test_folding_a_network_without_batch_norms_changes_nothing(case) -> None:
    network = copy_plain_network(case)
    before = copy.deepcopy(network.state_dict())
    fold_batch_norms(network.backbone)
    after = network.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[k], before[k]) for k in before)


@pytest.mark.parametrize("affine", [True, False], ids=["scale and shift", "statistics alone"])
def test_a_norm_is_folded_into_a_convolution_with_a_bias_of_its_own(affine) -> None:
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(2, 3, 3).double(), nn.BatchNorm2d(3, affine=affine).double().eval()
    norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2)
    network, x = Stack(conv=conv, norm=norm), torch.randn(2, 2, 5, 5, dtype=torch.float64)
    wanted = norm(conv(x))
    fold_batch_norms(network)
    assert compute_relative_error(network.conv(x), wanted) <= 1e-12 and isinstance(
        network.norm, nn.Identity
    )


NORM, BARE = nn.BatchNorm2d(3), nn.BatchNorm2d(3, track_running_stats=False)


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ({"norm": NORM, "conv": nn.Conv2d(3, 3, 1)}, "no convolution stands before norm"),
        ({"linear": nn.Linear(3, 3), "norm": NORM}, "does not follow a convolution"),
        ({"conv": nn.Conv2d(3, 4, 1), "norm": NORM}, "does not follow a convolution"),
        ({"conv": nn.Conv2d(3, 3, 1), "norm": BARE}, "without running statistics"),
    ],
)
def test_a_norm_that_no_convolution_can_take_in_is_refused(modules, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        fold_batch_norms(Stack(**modules))


@pytest.mark.parametrize("case", ["mlp", "small-cnn", "resnet20", "resnet18-small-stem"])
def test_every_relu_becomes_leaky(case) -> None:
    network = copy_plain_network(case)
    relus = sum(isinstance(m, nn.ReLU) for m in network.modules())
    replace_relu_by_leaky_relu(network.backbone, 0.2)
    found = [m.negative_slope for m in network.modules() if isinstance(m, nn.LeakyReLU)]
    assert found == [0.2] * relus and relus > 0
    assert not any(isinstance(m, nn.ReLU) for m in network.modules())


def test_the_slope_is_that_of_the_negative_side() -> None:
    network = build_network({"name": "mlp", "hidden": [4]}, ImageSpec(2, 1), "class").double()
    replace_relu_by_leaky_relu(network.backbone, 0.2)
    x = torch.randn(3, 1, 2, 2, dtype=torch.float64)
    z = network.backbone.fc1(x.flatten(1))
    assert torch.allclose(network.backbone(x), torch.where(z > 0, z, 0.2 * z), rtol=1e-15)


def test_slope_zero_leaves_the_activations() -> None:
    network = copy_plain_network("resnet20")
    replace_relu_by_leaky_relu(network.backbone, 0)
    assert not any(isinstance(m, nn.LeakyReLU) for m in network.modules())


@pytest.mark.parametrize("case", ["mlp", "resnet20", "vit"])
def test_leaky_activations_store_nothing(case) -> None:
    network = copy_plain_network(case)
    names = list(network.state_dict())
    replace_relu_by_leaky_relu(network.backbone, 0.1)
    assert list(network.state_dict()) == names
