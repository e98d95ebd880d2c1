"""Online EWC: its gradient is that of its penalty, and its memory is what the formula says."""

from pathlib import Path
from unittest import mock

import pytest
import torch

from core.learn.methods import ewc_online
from core.learn.methods.ewc_online import EwcOnline
from core.learn.recipe import resolve
from core.learn.state import State, load_tensors, save_tensors


def method(state=None, **hyper):
    return EwcOnline(EwcOnline.Hyper.model_validate({"lambda": 3.0, **hyper}), state or State())


class Ctx:
    """The part of a context that the penalty looks at."""

    def __init__(self, recipe=None, **trainable) -> None:
        self.recipe = recipe or resolve({"method": "ewc-online"})
        self.trainable = {name: torch.nn.Parameter(p.clone()) for name, p in trainable.items()}


def with_importance(theta, importance, recipe=None):
    state = State()
    state["curvature"].tensors |= {"fisher.w": importance, "anchor.w": theta.clone()}
    ctx = Ctx(recipe, w=theta)
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
    save_tensors(tensors, first.folder / "parts" / "curvature.safetensors")
    with pytest.raises(ValueError, match="nowhere"):
        bench.learn(bench.spec(2, first, method="ewc-online"))


def test_a_strength_that_plain_steps_cannot_follow_is_limited_and_said(bench) -> None:
    recipe = {"method": {"name": "ewc-online", "lambda": 1e6}}
    learned = bench.stream(3, **recipe)
    assert any("acts as" in warning for warning in learned.result["warnings"])


@pytest.mark.parametrize(
    ("optimizer", "limit"),
    [
        ({"lr": 0.1}, 1 / (0.1 * 3.0)),
        ({"lr": 0.1, "head_lr": 0.5}, 1 / (0.5 * 3.0)),  # `w` is not the backbone's
        ({"name": "adam", "lr": 0.1}, float("inf")),
        ({"lr": 1e-39}, float("inf")),
        ({"lr": 5e-324}, float("inf")),
    ],
)
def test_importance_acts_up_to_one_step_to_the_anchor_and_unchanged_below(optimizer, limit) -> None:
    recipe = resolve({"method": "ewc-online", "optimizer": optimizer})
    importance = torch.tensor([0.1, 0.5, 0.666, 4.0, 900.0])
    ewc, ctx = with_importance(torch.zeros(5), importance.clone(), recipe)
    with torch.no_grad():
        ctx.trainable["w"].fill_(1.0)
    ewc.penalty_grads(ctx)
    assert torch.equal(ctx.trainable["w"].grad, 3.0 * importance.clamp_max(limit))
    assert torch.equal(ewc.state["curvature"].tensors["fisher.w"], importance)  # what is stored stays whole


def test_the_limit_leaves_no_trace_in_what_is_stored(bench) -> None:
    """Weights that hardly move: with and without a limit the second task must store the same."""
    first = bench.learn(bench.spec(1, None, method="ewc-online"))
    found = {}
    for strength in (1e3, 1e33):
        recipe = {"method": {"name": "ewc-online", "lambda": strength}, "optimizer": {"lr": 1e-30}}
        second = bench.learn(bench.spec(2, first, **recipe))
        found[strength] = curvature(second)
        assert bool(second.result["warnings"]) is (strength == 1e33)
        assert second.result["method"]["state"] == {}
    for name, value in found[1e3].items():
        assert torch.equal(found[1e33][name], value)


def test_importance_is_measured_on_all_classes_of_a_set_that_lists_them_one_by_one(
    bench, monkeypatch
) -> None:
    spec = bench.spec(1, None, method={"name": "ewc-online", "examples": 8})
    path = spec["task"]["train"]
    tensors = load_tensors(Path(path))
    order = tensors["labels"].argsort(stable=True)
    save_tensors({name: t[order].contiguous() for name, t in tensors.items()}, Path(path))
    seen, end = [], EwcOnline.end_task

    def end_task(self, ctx, batches):
        batches = list(batches)
        seen.append(torch.cat([batch.y for batch in batches]))
        end(self, ctx, batches)

    monkeypatch.setattr(EwcOnline, "end_task", end_task)
    bench.learn(spec)
    assert seen[0].numel() == bench.n
    assert torch.bincount(seen[0][:8]).tolist() != [8] and torch.bincount(seen[0]).tolist() == [11, 11]


def test_exact_takes_500_examples_to_20_classes_and_sampling_2000_beyond(bench, monkeypatch) -> None:
    asked = []

    def diagonal_fisher(network, forward, names, inputs, *, exact, generator):
        asked.append((exact, sum(x.shape[0] for x in inputs)))
        return {}

    monkeypatch.setattr(ewc_online, "diagonal_fisher", diagonal_fisher)
    x = torch.zeros(100, 1)
    for classes in (20, 21):
        ctx = mock.MagicMock(head_task=None, task=1, recipe=resolve({}), trainable={})
        ctx.network.classes_of.return_value = ["c"] * classes
        method()._fisher(ctx, [mock.Mock(x=x)] * 30)
    assert asked == [(True, 500), (False, 2000)]


def test_a_strength_of_zero_still_remembers_for_a_later_task(bench) -> None:
    learned = bench.stream(2, method={"name": "ewc-online", "lambda": 0.0})
    weights = learned.tensors("head")["head.weight"]
    assert torch.equal(curvature(learned)["anchor.head.weight"], weights)


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
