"""Sizes of per-sample gradients: closed forms against vmap and one backward per example."""

import pytest
import torch
from torch import nn

from core.learning.curvature import per_sample
from core.learning.curvature.per_sample import PerExampleGradientSizeSums
from core.learning.networks import HeadSpec, ImageSpec, build_network


def differentiate_squared_norm(logits):
    return [2 * logits]


def compute_gradient_sizes(network, inputs, size=torch.abs, names=None):
    found = PerExampleGradientSizeSums(
        network, network, names or [n for n, _ in network.named_parameters()], size
    )
    for x in inputs:
        found.add_examples(x, differentiate_squared_norm)
    return found.compute_mean_gradient_sizes()


def compute_slow_sizes(network, x, size=torch.abs):
    """Return the mean gradient sizes, with one backward pass per example."""
    parameters = dict(network.named_parameters())
    total = {name: torch.zeros_like(p, requires_grad=False) for name, p in parameters.items()}
    for one in x:
        grads = torch.autograd.grad(network(one[None]).square().sum(), parameters.values())
        for name, grad in zip(parameters, grads, strict=True):
            total[name] += size(grad)
    return {name: value / len(x) for name, value in total.items()}


@pytest.fixture
def by_vmap(monkeypatch):
    return lambda: monkeypatch.setattr(
        per_sample, "_find_layers_if_all_have_closed_gradients", lambda *_: None
    )


@pytest.mark.parametrize("size", [torch.square, torch.abs])
@pytest.mark.parametrize("name", ["mlp", "small-cnn", "resnet20"])
def test_closed_forms_equal_vmap(name, size, by_vmap) -> None:
    network = build_network({"name": name}, ImageSpec(8, 2), "class", HeadSpec(("a", "b", "c")), 3)
    network = network.eval().double()
    with torch.no_grad():
        for parameter in network.head.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.randn(5, 2, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert (
        per_sample._find_layers_if_all_have_closed_gradients(
            network, dict(network.named_parameters())
        )
        is not None
    )
    fast = compute_gradient_sizes(network, [x], size)
    by_vmap()
    for key, oracle in compute_gradient_sizes(network, [x], size).items():
        assert torch.allclose(fast[key], oracle, rtol=1e-9, atol=1e-12 * float(oracle.max() + 1)), (
            key
        )


@pytest.mark.parametrize(
    "convolution", [{"stride": 2, "padding": 1}, {"dilation": 2, "bias": False}, {"groups": 2}]
)
def test_the_closed_form_of_a_convolution_equals_one_backward_each(convolution) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3, **convolution), nn.Flatten(), nn.LazyLinear(2)
    ).double()
    x = torch.randn(4, 2, 7, 7, dtype=torch.float64)
    network(x)
    wanted = compute_slow_sizes(network, x)
    for name, value in compute_gradient_sizes(network, [x[:3], x[3:]]).items():
        assert torch.allclose(value, wanted[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "layer",
    [nn.LayerNorm(4), nn.Conv1d(4, 4, 1, groups=2)],
    ids=["layer norm", "grouped convolution"],
)
def test_layers_without_a_closed_form_are_measured_by_vmap(layer) -> None:
    torch.manual_seed(0)
    shaped = nn.Unflatten(1, (4, 1)) if isinstance(layer, nn.Conv1d) else nn.Identity()
    network = nn.Sequential(shaped, layer, nn.Flatten(), nn.Linear(4, 2)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    wanted = compute_slow_sizes(network, x)
    for name, value in compute_gradient_sizes(network, [x]).items():
        assert torch.allclose(value, wanted[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "architecture",
    [
        {"name": "vit", "layers": 1, "heads": 2, "hidden": 16, "mlp": 24},
        {"name": "slim-resnet18", "width": 8},
    ],
    ids=lambda architecture: architecture["name"],
)
def test_a_whole_network_equals_one_backward_each(architecture) -> None:
    network = (
        build_network(architecture, ImageSpec(16, 3), "class", HeadSpec(("a", "b")), 3)
        .eval()
        .double()
    )
    with torch.no_grad():
        for parameter in network.head.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = compute_slow_sizes(network, x)
    for name, value in compute_gradient_sizes(network, [x]).items():
        assert torch.allclose(value, wanted[name], rtol=1e-8, atol=1e-12), name


def test_vmap_holds_few_gradients_at_once_and_adds_up_the_same(by_vmap, monkeypatch) -> None:
    torch.manual_seed(0)
    network, x = nn.Linear(3, 2).double(), torch.randn(5, 3, dtype=torch.float64)
    wanted = compute_gradient_sizes(network, [x])
    by_vmap()
    monkeypatch.setattr(per_sample, "GRADIENTS", 16)  # two examples of eight parameters
    value = compute_gradient_sizes(network, [x])
    assert all(torch.allclose(value[name], wanted[name], rtol=1e-12) for name in wanted)


def test_a_parameter_that_is_not_asked_for_is_not_measured() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    assert set(compute_gradient_sizes(network, [torch.randn(2, 3)], names=["1.bias"])) == {"1.bias"}


def test_no_gradient_is_left_behind() -> None:
    network = nn.Linear(3, 2)
    compute_gradient_sizes(network, [torch.randn(2, 3)])
    assert all(p.grad is None for p in network.parameters())
