"""The diagonal Fisher: hand values, the closed forms against per-sample gradients, and what it must not be."""

import pytest
import torch
from torch import nn

from core.learn.curvature import fisher
from core.learn.networks import HeadSpec, ImageSpec, build_network


def of(network, inputs, names=None, exact=True, seed=0):
    names = names or [name for name, _ in network.named_parameters()]
    generator = torch.Generator().manual_seed(seed)
    return fisher.diagonal_fisher(network, network, names, inputs, exact=exact, generator=generator)


def slow(network, x, exact=True):
    """Σ over examples and classes, one backward each."""
    parameters = dict(network.named_parameters())
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for one in x:
        log_p = network(one[None]).log_softmax(1)[0]
        for c in range(log_p.numel()):
            grads = torch.autograd.grad(log_p[c], parameters.values(), retain_graph=True, allow_unused=True)
            for name, grad in zip(parameters, grads, strict=True):
                if grad is not None:
                    total[name] += log_p[c].exp().detach() * grad.square()
    return {name: value / len(x) for name, value in total.items()}


def linear(classes=2, width=3, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, classes)).double()


def test_the_exact_fisher_of_a_linear_softmax_is_its_formula() -> None:
    network, x = linear(4), torch.randn(9, 3, dtype=torch.float64)
    p = network(x).softmax(1).detach()
    wanted = (p * (1 - p)).T @ x.square() / 9
    assert torch.allclose(of(network, [x])["0.weight"].double(), wanted, atol=1e-7)


def test_the_exact_fisher_at_probabilities_of_three_quarters_is_three_sixteenths() -> None:
    network = linear(2, 1)
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].bias.copy_(torch.tensor([3.0, 1.0]).log())
    value = of(network, [torch.ones(1, 1, dtype=torch.float64)])
    assert value["0.weight"].flatten().tolist() == pytest.approx([0.1875, 0.1875])


def test_a_mean_over_three_examples_in_two_batches_is_the_mean_over_three() -> None:
    network, x = linear(), torch.randn(3, 3, dtype=torch.float64)
    value, wanted = of(network, [x[:2], x[2:]]), slow(network, x)
    for name in wanted:
        assert torch.allclose(value[name].double(), wanted[name], atol=1e-7)


def test_examples_with_opposite_gradients_do_not_cancel() -> None:
    network = linear(2, 1)
    with torch.no_grad():
        for p in network.parameters():
            p.zero_()
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    assert float(of(network, [x])["0.weight"].min()) > 0.2


def test_repeating_an_example_does_not_change_the_fisher() -> None:
    network, x = linear(), torch.randn(1, 3, dtype=torch.float64)
    once, often = of(network, [x]), of(network, [x.repeat(5, 1)])
    assert torch.allclose(once["0.weight"], often["0.weight"])


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["mlp", "small-cnn", "resnet20"])
def test_closed_forms_equal_per_sample_gradients(name, exact, monkeypatch) -> None:
    network = build_network({"name": name}, ImageSpec(8, 2), "class", HeadSpec(("a", "b", "c")), 3).eval()
    with torch.no_grad():
        for parameter in network.head.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.randn(5, 2, 8, 8, generator=torch.Generator().manual_seed(2))
    assert fisher._closed_form_layers(network, dict(network.named_parameters())) is not None
    fast = of(network, [x], exact=exact)
    monkeypatch.setattr(fisher, "_closed_form_layers", lambda *_: None)
    for key, oracle in of(network, [x], exact=exact).items():
        assert torch.allclose(fast[key], oracle, rtol=1e-3, atol=1e-6 * float(oracle.max() + 1)), key
        assert fast[key].shape == network.get_parameter(key).shape


def test_per_sample_gradients_equal_one_backward_each(monkeypatch) -> None:
    network, x = linear(3), torch.randn(4, 3, dtype=torch.float64)
    monkeypatch.setattr(fisher, "_closed_form_layers", lambda *_: None)
    value, wanted = of(network, [x]), slow(network, x)
    assert all(torch.allclose(value[n].double(), wanted[n], atol=1e-7) for n in wanted)


def test_a_network_without_closed_form_is_measured_all_the_same() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)).eval()
    x = torch.randn(4, 3)
    value, wanted = of(network, [x]), slow(network, x)
    assert all(torch.allclose(value[n], wanted[n], atol=1e-6) for n in wanted)


def test_a_layer_that_runs_twice_is_measured_by_per_sample_gradients() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    network = nn.Sequential(layer, nn.Tanh(), layer)
    x = torch.randn(4, 3)
    names = ["0.weight", "0.bias"]
    value, wanted = of(network, [x], names), slow(network, x)
    assert all(torch.allclose(value[n], wanted[n], atol=1e-6) for n in names)


def test_parameters_that_the_forward_does_not_use_get_zeros() -> None:
    network = nn.ModuleDict({"used": nn.Linear(3, 2), "other": nn.Linear(3, 2)})
    names = [name for name, _ in network.named_parameters()]
    value = fisher.diagonal_fisher(
        network, network["used"], names, [torch.randn(4, 3)], exact=True, generator=torch.Generator()
    )
    assert float(value["other.weight"].abs().max()) == 0 < float(value["used.weight"].max())
