"""SI: the path integral of the task's gradient, against closed forms and recorded steps."""

import pytest
import torch
from penalties import SLOW, Ctx, make_method
from recipes import resolve_patch
from streams import Script

from core.errors import InvalidRecipe
from core.learning.methods.penalties.si import SynapticIntelligence
from core.learning.state import load_tensors


def resolve_recipe(**optimizer):
    return resolve_patch({"method": "si", "optimizer": {**SLOW, **optimizer}})


def take_steps(method, ctx, gradient_of, optimizer, steps):
    """Take steps as the loop does, with the task's gradient in closed form. Return (gradient,
    movement) of each.
    """
    weight, seen = ctx.trainable["w"], []
    for _ in range(steps):
        before, gradient = weight.detach().clone(), gradient_of(weight.detach())
        weight.grad = gradient.clone()
        method.add_penalty_gradients(ctx)
        optimizer.step()
        with torch.no_grad():
            method.after_step(ctx, None)
        ctx.scratch.clear()
        seen.append((gradient, weight.detach() - before))
    return seen


def descend_quadratic_loss(xi=0.1, steps=25, eta=0.05):
    """Descend (h/2)(θ - 1)², h = 2, from θ = 3 by gradients, and return (omega, Omega)."""
    ctx = Ctx(resolve_recipe(), w=torch.tensor([3.0], dtype=torch.float64))
    method = make_method("si", c=1.0, xi=xi)
    method.begin_task(ctx)
    sgd = torch.optim.SGD(ctx.trainable.values(), lr=eta)
    take_steps(method, ctx, lambda theta: 2 * (theta - 1), sgd, steps)
    omega = method.stored_tensors["path.w"].item()
    method.end_task(ctx, [])
    return omega, method.stored_tensors["importance.w"].item()


def test_gradient_descent_on_a_quadratic_loss_has_the_path_integral_of_its_formula() -> None:
    omega, importance = descend_quadratic_loss()
    assert omega == pytest.approx(4.188826210, abs=5e-10)
    assert importance == pytest.approx(1.181183232, abs=5e-10)


def test_small_steps_give_back_half_the_losss_curvature() -> None:
    """Steps to the end, xi → 0: Omega = h / (2 - eta h), so c = 1 makes the penalty the
    old loss.
    """
    for eta in (0.1, 0.05):
        _, importance = descend_quadratic_loss(xi=1e-12, steps=int(20 / eta), eta=eta)
        assert importance == pytest.approx(2 / (2 - 2 * eta), rel=1e-8)


def begin_second_task(optimizer_of):
    """Return a method with an active penalty after one step of warm-up, its context, and the
    recorded steps.
    """
    torch.manual_seed(0)
    ctx = Ctx(resolve_recipe(), w=torch.randn(6, dtype=torch.float64))
    method = make_method("si", c=0.5)
    method.stored_tensors.update(
        {
            "importance.w": torch.rand(6).double() + 1,
            "anchor.w": ctx.trainable["w"].detach().clone(),
        }
    )
    method.begin_task(ctx)
    target = torch.randn(6, dtype=torch.float64)
    optimizer = optimizer_of(ctx.trainable.values())
    return method, ctx, take_steps(method, ctx, lambda theta: 3 * (theta - target), optimizer, 9)


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.05),
        lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    ],
    ids=["momentum", "adam", "weight decay"],
)
def test_the_path_integral_is_of_the_tasks_gradient_and_of_all_that_moved(optimizer_of) -> None:
    method, ctx, steps = begin_second_task(optimizer_of)
    assert method.compute_penalty(ctx) > 0
    wanted = -sum(gradient * moved for gradient, moved in steps)
    assert torch.allclose(method.stored_tensors["path.w"], wanted, rtol=1e-12)


def test_the_gradient_of_the_penalty_carries_c_once() -> None:
    method, ctx, _ = begin_second_task(lambda p: torch.optim.SGD(p, lr=0.05))
    weight = ctx.trainable["w"]
    weight.grad = torch.zeros(6, dtype=torch.float64)
    method.add_penalty_gradients(ctx)
    tensors = method.stored_tensors
    wanted = 2 * 0.5 * tensors["importance.w"] * (weight.detach() - tensors["anchor.w"])
    assert torch.allclose(weight.grad, wanted, rtol=1e-12)


def test_clipping_changes_what_moved_and_not_the_gradient_that_counts(bench, monkeypatch) -> None:
    seen, step = [], SynapticIntelligence.after_step

    def after_step(self, ctx, batch):
        name, weight = "head.weight", ctx.trainable["head.weight"]
        at = ctx.scratch["moving"].index(name)
        gradient, moved = (
            ctx.scratch["gradients"][at].clone(),
            weight.detach() - ctx.scratch["before"][at],
        )
        before = self.stored_tensors[f"path.{name}"].clone()
        step(self, ctx, batch)
        added = self.stored_tensors[f"path.{name}"] - before
        seen.append((gradient.norm() > weight.grad.norm(), added, gradient * moved))

    monkeypatch.setattr(SynapticIntelligence, "after_step", after_step)
    bench.learn_task(1, method="si", optimizer={"clip": 1e-3})
    assert all(smaller for smaller, _, _ in seen)
    for _, added, product in seen:
        assert torch.allclose(added, -product, rtol=1e-3, atol=1e-12)


def test_two_tasks_add_up() -> None:
    start = torch.tensor([3.0], dtype=torch.float64)
    ctx, method = Ctx(resolve_recipe(), w=start), make_method("si", c=0.0)
    found = []
    for target in (1.0, 4.0):
        method.begin_task(ctx)
        sgd = torch.optim.SGD(ctx.trainable.values(), lr=0.05)
        where = ctx.trainable["w"].item()
        steps = take_steps(method, ctx, lambda theta, t=target: 2 * (theta - t), sgd, 10)
        omega = -sum(float(g * d) for g, d in steps)
        found.append(omega / ((ctx.trainable["w"].item() - where) ** 2 + method.hyper.xi))
        method.end_task(ctx, [])
    assert min(found) > 0
    assert method.stored_tensors["importance.w"].item() == pytest.approx(sum(found), rel=1e-12)
    assert method.stored_tensors["anchor.w"].item() == ctx.trainable["w"].item()


def test_importance_is_never_negative() -> None:
    """A task whose loss rises along the way takes back importance, down to zero."""
    ctx, method = (
        Ctx(resolve_recipe(), w=torch.zeros(2, dtype=torch.float64)),
        make_method("si", xi=0.1),
    )
    method.stored_tensors.update(
        {"importance.w": torch.tensor([0.5, 50.0]).double(), "anchor.w": torch.zeros(2).double()}
    )
    method.begin_task(ctx)
    method.stored_tensors["path.w"] -= 1.0
    method.end_task(ctx, [])
    assert method.stored_tensors["importance.w"].tolist() == pytest.approx([0.0, 40.0])


def test_a_weight_without_a_gradient_gets_no_importance() -> None:
    ctx, method = Ctx(resolve_recipe(), w=torch.ones(2), other=torch.ones(2)), make_method("si")
    method.begin_task(ctx)
    ctx.trainable["w"].grad = torch.ones(2)
    method.add_penalty_gradients(ctx)
    with torch.no_grad():
        for parameter in ctx.trainable.values():
            parameter -= 0.1  # a carried momentum moves both
        method.after_step(ctx, None)
    method.end_task(ctx, [])
    assert method.stored_tensors["importance.other"].tolist() == [0.0, 0.0]
    assert min(method.stored_tensors["importance.w"].tolist()) > 0


def test_a_step_without_any_gradient_changes_nothing() -> None:
    ctx, method = Ctx(resolve_recipe(), w=torch.ones(2)), make_method("si")
    method.begin_task(ctx)
    method.add_penalty_gradients(ctx)
    method.after_step(ctx, None)
    assert method.stored_tensors["path.w"].tolist() == [0.0, 0.0]


def test_the_path_is_in_a_snapshot_and_not_in_a_version(bench) -> None:
    spec = bench.spec(1, None, method="si")
    again = bench.killed(spec, Script([3], 5))
    saved = {}
    for path in sorted(bench.folder.rglob("*.safetensors")):
        if str(spec["out"]) in str(path):
            saved |= load_tensors(path)
    paths = {name: t for name, t in saved.items() if "path." in name}
    assert any(bool(t.any()) for t in paths.values())
    learned = bench.learn(again)
    assert {key.partition(".")[0] for key in learned.tensors("own")} == {"importance", "anchor"}


def test_a_strength_of_zero_still_remembers_for_a_later_task(bench) -> None:
    own = bench.stream(2, method={"name": "si", "c": 0.0}).tensors("own")
    assert float(own["importance.head.weight"].max()) > 0


def test_a_head_that_grows_keeps_the_importance_of_its_old_rows(bench) -> None:
    first = bench.learn_task(1, method={"name": "si", "c": 0.0})
    frozen = {"method": {"name": "si", "c": 0.0}, "optimizer": {"lr": 1e-30}}
    second = bench.learn_task(2, first, **frozen).tensors("own")
    old = first.tensors("own")["importance.head.weight"]
    assert torch.allclose(second["importance.head.weight"][: len(old)], old)
    assert second["importance.head.weight"].shape[0] > len(old)


def test_a_xi_that_is_zero_in_float32_is_refused() -> None:
    # 0 / 0 for a weight that did not move: not a number in the version, and no next task
    with pytest.raises(InvalidRecipe, match="must be at least 1e-12"):
        resolve_patch({"method": {"name": "si", "xi": 1e-50}})


def test_the_default_xi_lets_a_small_movement_count() -> None:
    """A weight that moved by 0.03 and lowered the loss by 0.1: the former default of 0.1 outweighs
    d².
    """
    found = {}
    for xi in (resolve_patch({"method": "si"}).method["xi"], 0.1):
        ctx, method = (
            Ctx(resolve_recipe(), w=torch.zeros(1, dtype=torch.float64)),
            make_method("si", xi=xi),
        )
        method.begin_task(ctx)
        method.stored_tensors["path.w"] += 0.1
        with torch.no_grad():
            ctx.trainable["w"] += 0.03
        method.end_task(ctx, [])
        found[xi] = method.stored_tensors["importance.w"].item()
    assert found == {1e-3: pytest.approx(0.1 / 0.0019), 0.1: pytest.approx(0.1 / 0.1009)}
