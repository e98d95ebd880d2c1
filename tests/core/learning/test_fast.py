"""FAST (Varno et al. 2020): what a zero head and two learning rates do, in float64 against the
formulas.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from recipes import resolve_patch
from streams import Bench, Script
from torch import Tensor
from torch.nn import functional

from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.optimizers.build import NamedOptimizer
from core.learning.state import load_tensors

CLASSES, BATCH = 10, 20
X = torch.randn(BATCH, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Y = torch.arange(BATCH) % CLASSES


def build_fresh_network() -> Network:
    heads = HeadSpec(classes=tuple(map(str, range(CLASSES))))
    network = build_network(
        {"name": "mlp", "hidden": [12]}, ImageSpec(4, 1), "class", heads, seed=2
    )
    return network.double()


def run_steps(network: Network, **optimizer: object) -> Iterator[Tensor]:
    """Yield the loss before each step of the preset's optimizer, on one batch."""
    recipe = resolve_patch({"preset": "fast", "optimizer": optimizer}).optimizer
    stepper = NamedOptimizer(recipe, dict(network.named_parameters()), 100)
    for number in range(100):
        stepper.set_learning_rates_for_step(number)
        network.zero_grad()
        loss = functional.cross_entropy(network(X), Y)
        loss.backward()
        yield loss.detach()
        stepper.step()


def copy_backbone(network: Network) -> dict[str, Tensor]:
    return {
        n: p.detach().clone() for n, p in network.named_parameters() if n.startswith("backbone.")
    }


def measure_displacement(**optimizer: object) -> Tensor:
    """Return how far the second step moves the backbone, all its parameters as one vector."""
    network = build_fresh_network()
    before = copy_backbone(network)
    run = run_steps(network, **optimizer)
    for _ in range(3):
        next(run)  # the third loss is taken after two steps
    return torch.cat(
        [(after - before[name]).flatten() for name, after in copy_backbone(network).items()]
    )


def test_the_first_loss_is_ln_n_and_nothing_reaches_the_features() -> None:
    network = build_fresh_network()
    features = network.features(X).detach().requires_grad_()
    loss = functional.cross_entropy(network.logits(features), Y)
    loss.backward()
    assert float(loss.detach()) - math.log(CLASSES) == 0
    assert features.grad is not None and float(features.grad.abs().max()) == 0


def test_the_first_step_leaves_the_backbone_as_it_was() -> None:
    network = build_fresh_network()
    before = copy_backbone(network)
    run = run_steps(network)
    next(run), next(run)
    assert all(torch.equal(after, before[name]) for name, after in copy_backbone(network).items())


def test_the_first_step_makes_rows_of_class_sums_minus_the_mean() -> None:
    """W = (alpha / M) (Y - 1/N)ᵀ A, whose columns sum to zero over the classes."""
    network = build_fresh_network()
    with torch.no_grad():
        features = network.features(X)
    run = run_steps(network, head_lr=0.02)
    next(run), next(run)
    assert network.head is not None
    weight = network.head.weight.detach()
    delta = functional.one_hot(Y, CLASSES).double() - 1 / CLASSES
    assert torch.allclose(weight, 0.02 / BATCH * delta.T @ features, rtol=0, atol=1e-17)
    assert float(weight.sum(0).abs().max()) < 1e-17


@pytest.mark.parametrize(
    "labels", [Y, torch.zeros(BATCH, dtype=torch.int64)], ids=["even", "one class"]
)
def test_the_first_error_has_mean_square_one_minus_one_over_n_in_any_batch(labels) -> None:
    with torch.no_grad():
        delta = functional.one_hot(labels, CLASSES) - build_fresh_network()(X).softmax(1)
    assert float(delta.square().sum(1).mean()) == pytest.approx(0.9, abs=1e-15)


def test_the_second_step_of_the_backbone_is_linear_in_its_rate() -> None:
    one, two = (
        measure_displacement(lr=lr) for lr in (1e6, 2e6)
    )  # steps much larger than the weights: all digits
    moved = one.abs() > 1
    assert int(moved.sum()) > 50
    assert float((two / one)[moved].sub(2).abs().max()) < 5e-14


def test_the_second_step_of_the_backbone_is_linear_in_the_heads_rate_only_near_zero() -> None:
    def compute_displacement_ratio(alpha: float) -> float:
        norms = [measure_displacement(lr=1e6, head_lr=a).norm() for a in (alpha, 2 * alpha)]
        return float(norms[1] / norms[0])

    assert compute_displacement_ratio(1e-6) == pytest.approx(2, abs=1e-6)
    assert 1e-3 < abs(compute_displacement_ratio(0.1) - 2) < 0.1


def test_with_adam_the_zero_head_protects_one_step_only() -> None:
    """The second step is 0.7441 · beta for every element, however small its gradient, by bias
    correction alone.
    """
    beta = 1e-4
    moved = measure_displacement(name="adam", lr=beta, head_lr=1.0).abs() / beta
    corrected = 0.1 / (1 - 0.9**2) / math.sqrt(0.001 / (1 - 0.999**2))
    assert corrected == pytest.approx(0.7441, abs=5e-5)
    far = moved[moved > 0]
    assert far.numel() > 50
    assert torch.allclose(far, torch.full_like(far, corrected), rtol=1e-3)


def test_a_job_with_the_preset_starts_so_and_keeps_its_backbone_for_one_step(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, recipe={"preset": "fast", "validation": 0.2})
    start = bench.learn_task(1, epochs=1, optimizer={"lr": 1e-30, "head_lr": 1e-30})
    again = bench.killed(bench.spec(1, None), Script([1], 2))
    held = load_tensors(Path(again["snapshot"]) / "tensors.safetensors")
    for part in (p["name"] for p in start.result["parts"] if p["type"] == "backbone"):
        for name, tensor in start.tensors(part).items():
            assert torch.equal(held[f"net/{name}"], tensor)
    assert bool(held["net/head.weight"].abs().max() > 0)
