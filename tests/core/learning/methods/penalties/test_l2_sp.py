"""L2-SP: the gradient of its penalty, and how one SGD step differs from plain training and from
OLOR.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core.learning.methods.penalties.l2_sp import L2SpMethod
from core.learning.optimizers.olor import AnchoredParameter, OlorOptimizer
from core.learning.state import MethodState


class Ctx:
    """The part of a context that the penalty looks at."""

    def __init__(self, start=None, **trainable) -> None:
        self.trainable = {name: nn.Parameter(p.clone()) for name, p in trainable.items()}
        self.cache = {}
        self._start = {
            name: p.clone() for name, p in (trainable if start is None else start).items()
        }
        for parameter in self.trainable.values():
            parameter.grad = torch.zeros_like(parameter)

    def weights_at(self, point):
        assert point == "update_start"
        return self._start


def make_method(**hyper):
    return L2SpMethod(L2SpMethod.Hyper(**{"alpha": 0.3, "beta": 0.2, **hyper}), MethodState())


def draw_numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_gradient_is_that_of_the_two_sums_of_squares() -> None:
    """A head that grew from 2 to 3 rows: two belong to the starting point, one is new."""
    start = {
        "w": draw_numbers(4, 5),
        "b": draw_numbers(4, seed=1),
        "head": draw_numbers(2, 4, seed=2),
    }
    ctx = Ctx(
        start,
        w=draw_numbers(4, 5, seed=3),
        b=draw_numbers(4, seed=4),
        head=draw_numbers(3, 4, seed=5),
    )
    w, b, head = (p.detach().clone().requires_grad_() for p in ctx.trainable.values())
    far = (w - start["w"]).square().sum() + (b - start["b"]).square().sum()
    far = far + (head[:2] - start["head"]).square().sum()
    penalty = 0.3 / 2 * far + 0.2 / 2 * head[2:].square().sum()
    penalty.backward()
    for parameter in ctx.trainable.values():
        parameter.grad.fill_(1.0)
    make_method().add_penalty_gradients(ctx)
    for parameter, wanted in zip(ctx.trainable.values(), (w, b, head), strict=True):
        torch.testing.assert_close(parameter.grad, 1 + wanted.grad, rtol=0, atol=1e-14)
    assert make_method().compute_penalty(ctx) == pytest.approx(penalty.item())


def test_the_penalty_is_zero_at_the_start_and_half_alpha_delta_squared_beside_it() -> None:
    ctx = Ctx(w=draw_numbers(6, 7))
    assert make_method().compute_penalty(ctx) == 0
    with torch.no_grad():
        ctx.trainable["w"][2, 3] += 0.5
    assert make_method().compute_penalty(ctx) == pytest.approx(
        0.3 / 2 * 0.25
    )  # a sum, not a mean over 42 elements


def test_a_head_that_is_new_as_a_whole_decays_to_zero() -> None:
    ctx = Ctx({}, head=draw_numbers(2, 3))
    make_method().add_penalty_gradients(ctx)
    assert torch.equal(ctx.trainable["head"].grad, 0.2 * ctx.trainable["head"].detach())


def test_the_first_step_of_sgd_from_the_start_is_that_of_plain_training() -> None:
    ctx = Ctx(w=draw_numbers(5))
    gradient = draw_numbers(5, seed=1)
    ctx.trainable["w"].grad.copy_(gradient)
    make_method().add_penalty_gradients(ctx)
    assert torch.equal(ctx.trainable["w"].grad, gradient)


def test_a_step_of_sgd_differs_from_olors_by_the_share_of_the_gradient_alone() -> None:
    rate, alpha, start = 0.1, 0.3, draw_numbers(5)
    ctx = Ctx({"w": start}, w=start + draw_numbers(5, seed=1))
    ours, gradient = ctx.trainable["w"], draw_numbers(5, seed=2)
    before = ours.detach().clone()
    rolled = nn.Parameter(before.clone())
    ours.grad.copy_(gradient)
    rolled.grad = gradient.clone()
    make_method(alpha=alpha).add_penalty_gradients(ctx)
    torch.optim.SGD([ours], rate).step()
    pull = AnchoredParameter(rolled, start, rate * alpha)
    OlorOptimizer(torch.optim.SGD([rolled], rate), [rate], [pull], lambda message: None).step()
    wanted = before - rate * gradient - rate * alpha * (before - start)
    torch.testing.assert_close(ours.detach(), wanted, rtol=0, atol=1e-15)
    difference = (rolled - ours).detach()
    torch.testing.assert_close(difference, rate * alpha * rate * gradient, rtol=0, atol=1e-15)


def test_biases_and_norms_are_left_out_on_request() -> None:
    ctx = Ctx(
        {"w": draw_numbers(2, 2), "b": draw_numbers(2)},
        w=draw_numbers(2, 2, seed=1),
        b=draw_numbers(2, seed=2),
    )
    make_method(tensors="weights").add_penalty_gradients(ctx)
    assert ctx.trainable["w"].grad.abs().min() > 0
    assert ctx.trainable["b"].grad.tolist() == [0, 0]


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    ctx = Ctx({"w": draw_numbers(3)}, w=draw_numbers(3, seed=1), other=draw_numbers(2))
    ctx.trainable["w"].grad = None
    make_method().add_penalty_gradients(ctx)
    assert ctx.trainable["w"].grad is None
    assert ctx.trainable["other"].grad.abs().min() > 0


@pytest.mark.parametrize("anchor", ["update_start", "pretrained"])
def test_a_strong_pull_ends_nearer_to_its_starting_point(bench, anchor) -> None:
    from core.learning.networks import HeadSpec, ImageSpec, build_network

    name = "backbone.fc1.weight"
    zero = build_network(bench.architecture, ImageSpec(6, 1), "class", HeadSpec(), 5).state_dict()[
        name
    ]
    first = bench.learn_task(1, method="finetune", optimizer={"lr": 0.1})
    recipe = {"name": "l2-sp", "alpha": 9.0, "anchor": anchor}
    optimizer = {"lr": 0.1, "momentum": 0.0, "schedule": "constant"}
    second = bench.learn_task(2, first, method=recipe, optimizer=optimizer).tensors("backbone.1")[
        name
    ]
    to_parent = float((second - first.tensors("backbone.1")[name]).norm())
    to_zero = float((second - zero).norm())
    assert (to_parent < to_zero / 3) if anchor == "update_start" else (to_zero < to_parent / 3)


def test_heads_of_other_tasks_keep_their_bits(bench) -> None:
    bench.scenario = "task"
    first, second = bench.learn_tasks(2, method="l2-sp")
    assert second.digests["head.1"] == first.digests["head.1"]
