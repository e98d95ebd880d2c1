"""Online EWC: its gradient is that of its penalty, and its memory is what the formula says."""

import pytest
import torch

from core.learn import job
from core.learn.methods.ewc_online import EwcOnline
from core.learn.state import State


def method(state=None, **hyper):
    return EwcOnline(EwcOnline.Hyper.model_validate({"lambda": 3.0, **hyper}), state or State())


class Ctx:
    """The part of a context that the penalty looks at."""

    def __init__(self, **trainable) -> None:
        self.trainable = {name: torch.nn.Parameter(p.clone()) for name, p in trainable.items()}


def with_importance(theta, importance):
    state = State()
    state["curvature"].tensors |= {"fisher.w": importance, "anchor.w": theta.clone()}
    ctx = Ctx(w=theta)
    ctx.trainable["w"].grad = torch.zeros_like(theta)
    return method(state), ctx


def test_the_penalty_is_zero_at_its_anchor_and_half_lambda_f_delta_squared_beside_it() -> None:
    ewc, ctx = with_importance(torch.zeros(3), torch.tensor([1.0, 2.0, 0.5]))
    assert ewc.penalty(ctx) == 0
    with torch.no_grad():
        ctx.trainable["w"][1] += 0.1
    assert ewc.penalty(ctx) == pytest.approx(3.0 / 2 * 2.0 * 0.01)


def test_the_gradient_is_lambda_f_times_the_distance_and_is_added() -> None:
    torch.manual_seed(0)
    theta, importance = torch.randn(4, 2), torch.rand(4, 2)
    ewc, ctx = with_importance(theta, importance)
    with torch.no_grad():
        ctx.trainable["w"] += torch.randn(4, 2)
    ctx.trainable["w"].grad.fill_(1.0)
    ewc.penalty_grads(ctx)
    wanted = 1 + 3.0 * importance * (ctx.trainable["w"].detach() - theta)
    assert torch.allclose(ctx.trainable["w"].grad, wanted)


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    ewc, ctx = with_importance(torch.zeros(3), torch.ones(3))
    ctx.trainable["w"].grad = None
    ewc.penalty_grads(ctx)
    assert ctx.trainable["w"].grad is None


def curvature(learned):
    return learned.tensors("curvature")


def test_gamma_zero_keeps_the_last_tasks_importance_alone(bench) -> None:
    first = bench.learn(bench.spec(1, None, method={"name": "ewc-online", "gamma": 0.0}))
    found = {}
    for gamma in (0.0, 1.0):
        spec = bench.spec(2, first, method={"name": "ewc-online", "gamma": gamma})
        found[gamma] = curvature(bench.learn(spec))
    name = next(key for key in found[0.0] if key.startswith("fisher.backbone"))
    assert torch.allclose(found[1.0][name], found[0.0][name] + curvature(first)[name], atol=1e-7)


def test_the_folded_gradient_equals_the_separate_sum_around_one_anchor() -> None:
    torch.manual_seed(1)
    theta, now = torch.randn(5), torch.randn(5)
    parts = [torch.rand(5) for _ in range(3)]
    ewc, ctx = with_importance(theta, sum(parts))
    with torch.no_grad():
        ctx.trainable["w"].copy_(now)
    ewc.penalty_grads(ctx)
    wanted = sum(3.0 * importance * (now - theta) for importance in parts)
    assert torch.allclose(ctx.trainable["w"].grad, wanted, atol=1e-6)


def test_the_anchor_is_the_published_weights(bench) -> None:
    learned = bench.stream(2, method="ewc-online")
    weights = {k: v for p in learned.result["parts"][:1] for k, v in learned.tensors(p["name"]).items()}
    for name, value in weights.items():
        assert torch.equal(curvature(learned)[f"anchor.{name}"], value)


def test_importance_keeps_the_shape_of_a_head_that_grows(bench) -> None:
    learned = bench.stream(3, method="ewc-online")
    assert curvature(learned)["fisher.head.weight"].shape == learned.tensors("head")["head.weight"].shape


def test_importance_of_a_name_that_the_network_lacks_is_an_error(bench) -> None:
    first = bench.learn(bench.spec(1, None, method="ewc-online"))
    tensors = {**curvature(first), "fisher.nowhere": torch.ones(1), "anchor.nowhere": torch.ones(1)}
    job.save_tensors(tensors, first.folder / "parts" / "curvature.safetensors")
    with pytest.raises(ValueError, match="nowhere"):
        bench.learn(bench.spec(2, first, method="ewc-online"))


def test_a_strength_that_plain_steps_cannot_follow_is_limited_and_said(bench) -> None:
    recipe = {"method": {"name": "ewc-online", "lambda": 1e6}}
    learned = bench.stream(3, **recipe)
    assert any("limited" in warning for warning in learned.result["warnings"])


def test_the_networks_modes_are_as_before_after_the_importance_pass(bench, monkeypatch) -> None:
    seen = []
    end = EwcOnline.end_task

    def end_task(self, ctx, batches):
        before = [m.training for m in ctx.network.modules()]
        end(self, ctx, batches)
        seen.append(before == [m.training for m in ctx.network.modules()])

    monkeypatch.setattr(EwcOnline, "end_task", end_task)
    bench.learn(bench.spec(1, None, method="ewc-online"))
    assert seen == [True]
