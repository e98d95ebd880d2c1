"""The diagonal Fisher: hand values, one backward each, and what it must not be."""

import pytest
import torch
from torch import nn

from core.learning.curvature import fisher
from core.learning.networks import HeadSpec, ImageSpec, build_network


def estimate_fisher(network, inputs, names=None, kind="exact", labels=None, seed=0):
    names = names or [name for name, _ in network.named_parameters()]
    generator = torch.Generator().manual_seed(seed)
    labels = labels or [torch.zeros(len(x), dtype=torch.int64) for x in inputs]
    examples = zip(inputs, labels, strict=True)
    return fisher.estimate_diagonal_fisher(
        network, network, names, examples, kind=kind, generator=generator
    )


def compute_slow_fisher(network, x):
    """Return Σ over examples and classes, with one backward pass each."""
    parameters = dict(network.named_parameters())
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for one in x:
        log_p = network(one[None]).log_softmax(1)[0]
        for c in range(log_p.numel()):
            grads = torch.autograd.grad(
                log_p[c], parameters.values(), retain_graph=True, allow_unused=True
            )
            for name, grad in zip(parameters, grads, strict=True):
                if grad is not None:
                    total[name] += log_p[c].exp().detach() * grad.square()
    return {name: value / len(x) for name, value in total.items()}


def build_linear(classes=2, width=3, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, classes)).double()


def test_the_exact_fisher_of_a_linear_softmax_is_its_formula() -> None:
    network, x = build_linear(4), torch.randn(9, 3, dtype=torch.float64)
    p = network(x).softmax(1).detach()
    wanted = (p * (1 - p)).T @ x.square() / 9
    assert torch.allclose(estimate_fisher(network, [x])["0.weight"], wanted, rtol=0, atol=1e-15)


def test_the_exact_fisher_at_probabilities_of_three_quarters_is_three_sixteenths() -> None:
    network = build_linear(2, 1)
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].bias.copy_(torch.tensor([3.0, 1.0]).double().log())
    value = estimate_fisher(network, [torch.ones(1, 1, dtype=torch.float64)])
    assert value["0.weight"].flatten().tolist() == pytest.approx([0.1875, 0.1875], abs=1e-15)


def test_a_mean_over_three_examples_in_two_batches_is_the_mean_over_three() -> None:
    network, x = build_linear(), torch.randn(3, 3, dtype=torch.float64)
    value, wanted = estimate_fisher(network, [x[:2], x[2:]]), compute_slow_fisher(network, x)
    for name in wanted:
        assert torch.allclose(value[name], wanted[name], rtol=0, atol=1e-15)


def compute_batch_mean_squares(network, x):
    """Return what is not the Fisher: squared gradients of a batch's mean, whose examples have
    equal probabilities.
    """
    log_p = network(x).log_softmax(1).mean(0)
    total = torch.zeros_like(network[0].weight)
    for c in range(log_p.numel()):
        (gradient,) = torch.autograd.grad(log_p[c], network[0].weight, retain_graph=True)
        total += network(x).softmax(1)[0, c].detach() * gradient.square()
    return total.detach()


def test_examples_with_opposite_gradients_do_not_cancel() -> None:
    network = build_linear(2, 1)
    with torch.no_grad():
        for p in network.parameters():
            p.zero_()
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    assert float(compute_batch_mean_squares(network, x).abs().max()) == 0
    assert estimate_fisher(network, [x])["0.weight"].flatten().tolist() == pytest.approx(
        [0.25, 0.25], abs=1e-15
    )


def test_repeating_an_example_does_not_change_the_fisher() -> None:
    network, x = build_linear(), torch.randn(1, 3, dtype=torch.float64)
    once, often = estimate_fisher(network, [x]), estimate_fisher(network, [x.repeat(5, 1)])
    assert torch.allclose(once["0.weight"], often["0.weight"], rtol=1e-13)
    assert torch.allclose(
        compute_batch_mean_squares(network, x.repeat(5, 1)), often["0.weight"], rtol=1e-13
    )


def test_every_parameter_has_importances_of_its_own_shape() -> None:
    network = build_network(
        {"name": "resnet20"}, ImageSpec(8, 1), "class", HeadSpec(("a", "b")), 1
    ).eval()
    value = estimate_fisher(network, [torch.randn(3, 1, 8, 8)])
    assert {n: f.shape for n, f in value.items()} == {
        n: p.shape for n, p in network.named_parameters()
    }


def build_quarter_network():
    """Build a linear softmax of one input with the probabilities 3/4 and 1/4 at x = 1, and return
    it with this input.
    """
    network = build_linear(2, 1)
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].bias.copy_(torch.tensor([0.75, 0.25]).double().log())
    return network, torch.ones(1, 1, dtype=torch.float64)


@pytest.mark.parametrize(("y", "wanted"), [(0, 0.0625), (1, 0.5625)])
def test_the_empirical_fisher_takes_the_label(y, wanted) -> None:
    network, x = build_quarter_network()
    value = estimate_fisher(network, [x], kind="empirical", labels=[torch.tensor([y])])
    assert value["0.weight"].flatten().tolist() == pytest.approx([wanted, wanted], abs=1e-15)


def test_the_empirical_fisher_of_a_linear_softmax_is_its_formula() -> None:
    network, x = build_linear(4), torch.randn(9, 3, dtype=torch.float64)
    y = torch.arange(9) % 4
    p = network(x).softmax(1).detach()
    wanted = (p - nn.functional.one_hot(y, 4)).square().T @ x.square() / 9
    value = estimate_fisher(network, [x[:5], x[5:]], kind="empirical", labels=[y[:5], y[5:]])[
        "0.weight"
    ]
    assert torch.allclose(value, wanted, atol=1e-15)


def test_the_predicted_fisher_takes_the_likeliest_class_whatever_the_label() -> None:
    network, x = build_quarter_network()
    value = estimate_fisher(network, [x], kind="predicted", labels=[torch.tensor([1])])
    assert value["0.weight"].flatten().tolist() == pytest.approx([0.0625, 0.0625], abs=1e-15)


def test_the_sampled_fisher_is_the_exact_one_on_average() -> None:
    network, x = build_quarter_network()
    value = estimate_fisher(network, [x.repeat(20_000, 1)], kind="sample")
    assert value["0.weight"].flatten().tolist() == pytest.approx([0.1875, 0.1875], abs=0.005)


def test_the_sampled_fisher_depends_on_its_generator_alone() -> None:
    network, x = build_linear(4), torch.randn(9, 3, dtype=torch.float64)
    first = estimate_fisher(network, [x], kind="sample", seed=1)["0.weight"]
    torch.manual_seed(77)
    before = torch.get_rng_state()
    assert torch.equal(estimate_fisher(network, [x], kind="sample", seed=1)["0.weight"], first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_without_closed_form_is_measured_all_the_same() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)).eval()
    x = torch.randn(4, 3)
    value, wanted = estimate_fisher(network, [x]), compute_slow_fisher(network, x)
    assert all(torch.allclose(value[n], wanted[n], atol=1e-6) for n in wanted)


def test_a_layer_that_runs_twice_is_measured_by_per_sample_gradients() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    network = nn.Sequential(layer, nn.Tanh(), layer)
    x = torch.randn(4, 3)
    names = ["0.weight", "0.bias"]
    value, wanted = estimate_fisher(network, [x], names), compute_slow_fisher(network, x)
    assert all(torch.allclose(value[n], wanted[n], atol=1e-6) for n in names)


def test_parameters_that_the_forward_does_not_use_get_zeros() -> None:
    network = nn.ModuleDict({"used": nn.Linear(3, 2), "other": nn.Linear(3, 2)})
    names = [name for name, _ in network.named_parameters()]
    examples = [(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64))]
    value = fisher.estimate_diagonal_fisher(
        network, network["used"], names, examples, kind="exact", generator=torch.Generator()
    )
    assert float(value["other.weight"].abs().max()) == 0 < float(value["used.weight"].max())
