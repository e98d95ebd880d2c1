"""OLOR as one step: numbers that can be worked out by hand, and the authors' algorithm as the slow
version.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from core.learning.networks import ImageSpec, build_backbone_on_meta_device
from core.learning.optimizers.olor import (
    AnchoredParameter,
    OlorOptimizer,
    compute_olor_rollback_share_of_layer,
    compute_rollback_share_by_parameter,
)
from core.learning.recipe import OlorRecipe

OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, fused=True),
    "adam": lambda params: torch.optim.Adam(params, 0.1, fused=True),
    "adamw": lambda params: torch.optim.AdamW(params, 0.1, weight_decay=0.02, fused=True),
}
GRADIENTS = torch.randn(60, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def fail_on_warning(message: str) -> None:
    raise AssertionError(message)


def make_anchored_parameter(start, iota, make=None, peak=0.1, warn=fail_on_warning):
    """Make a parameter at `start`, anchored there, and its OLOR around plain SGD (or what `make`
    makes).
    """
    parameter = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = make([parameter]) if make else torch.optim.SGD([parameter], peak)
    anchor = parameter.detach().clone()
    return (
        parameter,
        optimizer,
        OlorOptimizer(optimizer, [peak], [AnchoredParameter(parameter, anchor, iota)], warn),
    )


# What a step does.


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_strength_zero_has_the_bits_of_the_stock_optimizer(name) -> None:
    start = [-0.0, 1.0, 0.1, -3.0, 1e-30, 7.0, 0.3]
    rolled, _, olor = make_anchored_parameter(start, 0.0, OPTIMIZERS[name])
    plain = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    stock = OPTIMIZERS[name]([plain])
    for gradient in GRADIENTS[:10]:
        rolled.grad, plain.grad = gradient.clone(), gradient.clone()
        rolled.grad[0] = plain.grad[0] = 0.0  # -0.0 must stay so
        olor.step()
        stock.step()
        assert torch.equal(rolled.view(torch.int64), plain.view(torch.int64))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_strength_one_at_the_peak_rate_holds_the_anchor_in_every_bit(name, dtype) -> None:
    held, free = (nn.Parameter(torch.linspace(-1, 1, 7, dtype=dtype)) for _ in range(2))
    anchor = held.detach().clone()
    olor = OlorOptimizer(
        OPTIMIZERS[name]([held, free]),
        [0.1],
        [AnchoredParameter(held, anchor, 1.0)],
        fail_on_warning,
    )
    for gradient in GRADIENTS[:10]:
        held.grad, free.grad = gradient.to(dtype), gradient.to(dtype)
        olor.step()
        assert torch.equal(held, anchor)
    assert not torch.equal(free, anchor)


def test_a_constant_gradient_ends_where_the_geometric_series_does() -> None:
    theta, _, olor = make_anchored_parameter(0.0, 0.05)
    for _ in range(40):
        theta.grad = torch.tensor(2.0, dtype=torch.float64)
        olor.step()
    rate, rho = 0.1, 0.05
    assert theta.item() == pytest.approx(-3.311653805, abs=1e-9)
    assert theta.item() == pytest.approx(
        -rate * 2 * (1 - rho) / rho * (1 - (1 - rho) ** 40), abs=1e-12
    )


def test_a_quadratic_loss_ends_at_the_fixed_point_between_its_minimum_and_the_anchor() -> None:
    theta, _, olor = make_anchored_parameter(1.0, 0.05)
    for _ in range(400):
        theta.grad = 1.5 * (theta.detach() + 2)
        olor.step()
    assert theta.item() - 1.0 == pytest.approx(-2.220779221, abs=1e-9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rate_of_zero_changes_nothing(name) -> None:
    theta, optimizer, olor = make_anchored_parameter([1.0, -2.0], 0.5, OPTIMIZERS[name])
    with torch.no_grad():
        theta += 1
    before = theta.detach().clone()
    optimizer.param_groups[0]["lr"] = 0.0
    theta.grad = torch.ones_like(theta)
    olor.step()
    assert torch.equal(theta, before)


def run_published_algorithm(
    name: str, rates: list[float], iota: float, rate0: float
) -> list[torch.Tensor]:
    """Run algorithms 1 and 2 of the paper, in which the distance d is state, and d and the step
    are damped by 1 - eta lambda.
    """
    theta = torch.linspace(-1, 1, 7, dtype=torch.float64)
    d, m, v = torch.zeros_like(theta), torch.zeros_like(theta), torch.zeros_like(theta)
    seen = []
    for t, (eta, g) in enumerate(zip(rates, GRADIENTS, strict=False), start=1):
        if name == "sgd":
            m = 0.9 * m + g
            u = m
        else:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            u = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        damped = 1 - eta * (iota / rate0)
        theta = theta - eta * (iota / rate0) * d - damped * eta * u
        d = damped * (d - eta * u)
        seen.append(theta)
    return seen


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_rollback_after_a_step_is_the_papers_algorithm(name, schedule) -> None:
    cosine = [0.05 * (1 + math.cos(math.pi * k / 30)) for k in range(30)]
    rates = [0.1] * 30 if schedule == "constant" else cosine
    theta, optimizer, olor = make_anchored_parameter(
        torch.linspace(-1, 1, 7).tolist(), 0.07, OPTIMIZERS[name]
    )
    with torch.no_grad():
        theta.copy_(torch.linspace(-1, 1, 7, dtype=torch.float64))
        olor._pulls[0].anchor.copy_(theta)
    for rate, gradient, wanted in zip(
        rates, GRADIENTS, run_published_algorithm(name, rates, 0.07, 0.1), strict=False
    ):
        optimizer.param_groups[0]["lr"] = rate
        theta.grad = gradient.clone()
        olor.step()
        assert torch.allclose(theta, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rate", [1e-1, 1e-2, 1e-4])
def test_no_strength_makes_steps_diverge_at_any_rate(rate) -> None:
    """iota 1 over a rate of 1e-2 is a rollback by 100 where it is not multiplied by the
    rate again.
    """
    theta, _, olor = make_anchored_parameter([3.0, -1.0], 1.0, peak=rate)
    for gradient in GRADIENTS:
        theta.grad = gradient[:2].clone()
        olor.step()
    assert theta.tolist() == [3.0, -1.0]


def test_weight_decay_acts_before_the_rollback() -> None:
    theta, _, olor = make_anchored_parameter(
        [4.0], 0.25, lambda params: torch.optim.AdamW(params, 0.1, weight_decay=0.5, fused=True)
    )
    theta.grad = torch.zeros(1, dtype=torch.float64)
    olor.step()
    decayed = 4.0 * (1 - 0.1 * 0.5)
    assert theta.item() == pytest.approx(decayed + 0.25 * (4.0 - decayed))


# Which share.


@pytest.mark.parametrize("second", [1.0, 0.3])
def test_the_share_follows_the_rate_of_each_group_from_its_own_peak(second) -> None:
    slow, fast = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
    groups = [{"params": [slow], "lr": 0.1}, {"params": [fast], "lr": 2.0}]
    optimizer = torch.optim.SGD(groups)
    pulls = [AnchoredParameter(p, torch.ones(1), 0.2) for p in (slow, fast)]
    olor = OlorOptimizer(optimizer, [0.1, 2.0], pulls, fail_on_warning)
    optimizer.param_groups[1]["lr"] *= second
    slow.grad, fast.grad = torch.zeros_like(slow), torch.zeros_like(fast)
    olor.step()
    assert (slow.item(), fast.item()) == pytest.approx((0.2, 0.2 * second))


def test_the_share_is_the_full_one_at_the_peak_of_one_cycle() -> None:
    """That scheduler sets `initial_lr` to a 25th of the peak: from there rho would be 25 times too
    large.
    """
    theta, optimizer, olor = make_anchored_parameter([0.0], 0.02, peak=0.5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=10, pct_start=0.5)
    shares = []
    for _ in range(9):
        with torch.no_grad():
            theta.fill_(1.0)
        theta.grad = torch.zeros_like(theta)
        olor.step()
        shares.append(1 - theta.item())
        schedule.step()
    assert optimizer.param_groups[0]["initial_lr"] == pytest.approx(0.02)
    assert max(shares) == pytest.approx(0.02)
    assert shares[0] == pytest.approx(0.02 / 25)


def test_a_share_above_one_is_limited_and_said_once() -> None:
    said: list[str] = []
    theta, optimizer, olor = make_anchored_parameter([2.0], 0.5, warn=said.append)
    optimizer.param_groups[0]["lr"] = 0.4
    for _ in range(3):
        theta.grad = torch.ones_like(theta)
        olor.step()
        assert theta.item() == 2.0
    assert len(said) == 1 and "2 of the distance" in said[0]


def test_a_rate_too_small_to_divide_by_does_no_harm() -> None:
    theta, optimizer, olor = make_anchored_parameter([1.0], 0.5, peak=5e-324)
    optimizer.param_groups[0]["lr"] = 5e-324
    with torch.no_grad():
        theta += 1
    theta.grad = torch.zeros_like(theta)
    olor.step()
    assert theta.item() == 1.5


# Which parameters.


def test_a_parameter_without_a_gradient_is_not_rolled_back_in_that_step() -> None:
    theta, _, olor = make_anchored_parameter([1.0], 0.5)
    with torch.no_grad():
        theta += 1
    olor.step()
    assert theta.item() == 2.0
    theta.grad = torch.zeros_like(theta)
    olor.step()
    assert theta.item() == 1.5


def test_rows_beyond_the_anchor_are_free() -> None:
    head = nn.Parameter(torch.zeros(3, 2))
    olor = OlorOptimizer(
        torch.optim.SGD([head], 0.1),
        [0.1],
        [AnchoredParameter(head, torch.ones(2, 2), 0.5)],
        fail_on_warning,
    )
    head.grad = torch.zeros_like(head)
    olor.step()
    assert head.tolist() == [[0.5, 0.5], [0.5, 0.5], [0, 0]]


def test_an_anchor_in_another_memory_layout_pulls_to_the_same_weights() -> None:
    weight = torch.arange(54.0).reshape(2, 3, 3, 3)
    theta = nn.Parameter(torch.zeros(2, 3, 3, 3).to(memory_format=torch.channels_last))
    olor = OlorOptimizer(
        torch.optim.SGD([theta], 0.1),
        [0.1],
        [AnchoredParameter(theta, weight, 0.5)],
        fail_on_warning,
    )
    theta.grad = torch.zeros_like(theta)
    olor.step()
    assert torch.equal(theta, weight / 2)
    assert olor._pulls[0].anchor.stride() == theta.stride()


# Which power.


def test_powers_fall_from_the_first_layer_to_the_last() -> None:
    recipe = OlorRecipe(iota1=0.5, iota2=0.1, gamma=2.0)
    assert [compute_olor_rollback_share_of_layer(i, 4, recipe) for i in range(5)] == pytest.approx(
        [0.5, 0.325, 0.2, 0.125, 0.1]
    )


def test_a_single_layer_has_the_first_power() -> None:
    assert compute_olor_rollback_share_of_layer(0, 0, OlorRecipe(iota1=0.3)) == 0.3
    names = ["backbone.fc1.weight", "head.weight"]
    assert compute_rollback_share_by_parameter(
        names, [["fc1"]], OlorRecipe(granularity="tensor")
    ) == {"backbone.fc1.weight": 0.01}


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.5, 3.0, 4.0])
def test_the_last_layer_has_the_second_power_for_any_exponent(gamma) -> None:
    """An index shifted by 1e-8 makes the base negative here: below iota2, or complex."""
    recipe = OlorRecipe(iota1=0.5, iota2=0.1, gamma=gamma)
    last = compute_olor_rollback_share_of_layer(7, 7, recipe)
    assert last == (0.5 if gamma == 0 else 0.1)
    assert 0.1 <= compute_olor_rollback_share_of_layer(3, 7, recipe) <= 0.5


LAYERS = {
    "resnet18": (8, "bn1.bias", "layer1.0.conv1.weight", "layer4.1.bn2.bias"),
    "vit_b_16": (13, "encoder.pos_embedding", "encoder.layers.encoder_layer_0.ln_1.weight", "encoder.ln.bias"),
    "convnext_tiny": (19, "features.0.1.bias", "features.1.0.layer_scale", "classifier.0.bias"),
    "convnext_base": (37, "features.0.0.weight", "features.1.0.block.0.bias", "classifier.0.weight"),
    "small-cnn": (3, "conv1.bias", "conv2.weight", "fc1.bias"),
}  # fmt: skip


def list_parameter_names(name: str):
    backbone = build_backbone_on_meta_device({"name": name}, ImageSpec(224, 3))
    return backbone, [f"backbone.{key}" for key, _ in backbone.named_parameters()] + ["head.weight"]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_stem_blocks_and_final_norm(name) -> None:
    n, stem, block, last = LAYERS[name]
    backbone, names = list_parameter_names(name)
    found = compute_rollback_share_by_parameter(
        names, backbone.layer_prefixes, OlorRecipe(iota1=1.0, gamma=1.0)
    )
    assert set(found) == set(
        names[:-1]
    )  # every tensor of the backbone, biases and norms too, and no head's
    assert found[f"backbone.{stem}"] == 1.0
    assert found[f"backbone.{block}"] == pytest.approx(1 - 1 / n)
    assert found[f"backbone.{last}"] == 0.0


def test_a_downsampling_goes_with_the_block_that_follows_it() -> None:
    backbone, names = list_parameter_names("convnext_tiny")
    found = compute_rollback_share_by_parameter(
        names, backbone.layer_prefixes, OlorRecipe(iota1=1.0, gamma=1.0)
    )
    assert found["backbone.features.2.1.weight"] == found["backbone.features.3.0.layer_scale"]
    assert found["backbone.features.2.1.weight"] == pytest.approx(1 - 4 / 19)


def test_single_tensors_are_layers_on_request() -> None:
    backbone, names = list_parameter_names("vit_b_16")
    found = compute_rollback_share_by_parameter(
        names, backbone.layer_prefixes, OlorRecipe(iota1=1.0, gamma=1.0, granularity="tensor")
    )
    assert len(found) == 150
    assert list(found.values()) == pytest.approx([1 - i / 149 for i in range(150)])


def test_single_tensors_are_counted_among_those_that_move() -> None:
    backbone, names = list_parameter_names("small-cnn")
    recipe = OlorRecipe(iota1=0.5, granularity="tensor")
    found = compute_rollback_share_by_parameter(names[-3:], backbone.layer_prefixes, recipe)
    assert found == {"backbone.fc1.weight": 0.5, "backbone.fc1.bias": 0.0}
    blocks = compute_rollback_share_by_parameter(
        names[-3:], backbone.layer_prefixes, OlorRecipe(iota1=0.5)
    )
    assert set(blocks.values()) == {0.0}  # the last of four blocks, whatever else moves
