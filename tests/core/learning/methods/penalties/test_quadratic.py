"""Properties of all quadratic penalties: value, gradient, growth, and steps that stay stable
with SGD.
"""

import pytest
import torch
from penalties import Ctx, make_method, make_method_and_context
from recipes import resolve_patch
from streams import Bench

from core.errors import InvalidRecipe
from core.learning.state import MethodState, load_tensors, save_tensors

# name, a strength of 3, and the penalty's factor before Σ importance (θ - anchor)²
METHODS = [
    ("ewc", {"lambda": 3.0}, 1.5),
    ("ewc-online", {"lambda": 3.0}, 1.5),
    ("mas", {"lambda": 3.0}, 3.0),
    ("si", {"c": 3.0}, 3.0),
]
NAMES = [name for name, _, _ in METHODS]
each = pytest.mark.parametrize(("name", "hyper", "factor"), METHODS, ids=NAMES)


def draw_values(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@each
def test_the_penalty_is_zero_at_its_anchor_and_its_formula_beside_it(name, hyper, factor) -> None:
    method, ctx = make_method_and_context(
        name, torch.zeros(3), torch.tensor([1.0, 2.0, 0.5]), **hyper
    )
    assert method.compute_penalty(ctx) == 0
    with torch.no_grad():
        ctx.trainable["w"][1] += 0.1
    assert method.compute_penalty(ctx) == pytest.approx(factor * 2.0 * 0.01)


@each
def test_any_perturbation_of_an_important_weight_costs(name, hyper, factor) -> None:
    method, ctx = make_method_and_context(
        name, draw_values(4), draw_values(4, seed=1).abs() + 0.1, **hyper
    )
    for i in range(4):
        with torch.no_grad():
            ctx.trainable["w"].copy_(method.stored_tensors["anchor.w"])
            ctx.trainable["w"][i] -= 1e-3
        assert method.compute_penalty(ctx) > 0


@each
def test_the_gradient_is_that_of_the_penalty_and_is_added(name, hyper, factor) -> None:
    anchor, importance, now = (
        draw_values(4, 2),
        draw_values(4, 2, seed=1).abs(),
        draw_values(4, 2, seed=2),
    )
    method, ctx = make_method_and_context(name, anchor, importance, **hyper)
    with torch.no_grad():
        ctx.trainable["w"].copy_(now)
    ctx.trainable["w"].grad.fill_(1.0)
    method.add_penalty_gradients(ctx)
    theta = now.clone().requires_grad_()
    (factor * importance * (theta - anchor).square()).sum().backward()
    assert torch.allclose(ctx.trainable["w"].grad, 1 + theta.grad, rtol=1e-12)


@each
def test_a_parameter_without_a_gradient_is_left_alone(name, hyper, factor) -> None:
    method, ctx = make_method_and_context(name, torch.zeros(3), torch.ones(3), **hyper)
    with torch.no_grad():
        ctx.trainable["w"].fill_(1.0)
    ctx.trainable["w"].grad = None
    method.add_penalty_gradients(ctx)
    method.after_step(ctx, None)
    assert ctx.trainable["w"].grad is None


@pytest.mark.parametrize("name", NAMES)
def test_at_strength_zero_no_bit_of_the_gradient_changes(name) -> None:
    zero = {"c": 0.0} if name == "si" else {"lambda": 0.0}
    method, ctx = make_method_and_context(
        name, torch.zeros(3), torch.full((3,), 1e30), {"lr": 1.0}, **zero
    )
    gradient = torch.randn(3)
    ctx.trainable["w"].grad.copy_(gradient)
    with torch.no_grad():
        ctx.trainable["w"].fill_(1.0)
    method.add_penalty_gradients(ctx)
    assert torch.equal(ctx.trainable["w"].grad, gradient) and method.compute_penalty(ctx) == 0


@pytest.mark.parametrize(
    ("optimizer", "limit"),
    [
        ({"lr": 0.125, "momentum": 0.0}, 4.0),
        ({"lr": 0.0625, "momentum": 0.5}, 4.0),  # a steady gradient moves twice as far
        ({"lr": 0.125, "momentum": 0.5, "dampening": 0.5}, 4.0),
        ({"lr": 0.125, "momentum": 0.0, "head_lr": 0.5}, 4.0),  # `w` is not a head's
        ({"name": "adam", "lr": 0.125}, float("inf")),
        ({"lr": 1e-39}, float("inf")),
        ({"lr": 5e-324}, float("inf")),
    ],
)
def test_a_gradient_is_exact_up_to_the_limit_and_scaled_down_beyond(optimizer, limit) -> None:
    """Stiffness 2 and rate 1/8: importance 4 is where one step without momentum reaches
    the anchor.
    """
    importance = torch.tensor([0.1, 3.9, 4.0, 8.0, 4000.0])
    method, ctx = make_method_and_context(
        "ewc", torch.zeros(5), importance, optimizer, **{"lambda": 2.0}
    )
    with torch.no_grad():
        ctx.trainable["w"].fill_(1.0)
    ctx.trainable["w"].grad.fill_(16.0)
    method.add_penalty_gradients(ctx)
    wanted = (16.0 + 2.0 * importance) * (limit / importance).clamp_max(1)
    assert torch.allclose(ctx.trainable["w"].grad, wanted, rtol=1e-6)
    assert torch.equal(ctx.trainable["w"].grad[:3], 16.0 + 2.0 * importance[:3])
    assert torch.equal(method.stored_tensors["fisher.w"], importance)  # what is stored stays whole


def test_a_heads_own_rate_sets_its_limit() -> None:
    method = make_method("ewc", **{"lambda": 2.0})
    method.stored_tensors.update(
        {"fisher.head.bias": torch.tensor([2.0]), "anchor.head.bias": torch.zeros(1)}
    )
    recipe = resolve_patch(
        {"method": "ewc", "optimizer": {"lr": 1e-9, "head_lr": 0.5, "momentum": 0.0}}
    )
    ctx = Ctx(recipe, **{"head.bias": torch.ones(1)})
    ctx.trainable["head.bias"].grad = torch.zeros(1)
    method.add_penalty_gradients(ctx)
    assert ctx.trainable["head.bias"].grad.tolist() == [2.0]  # 4 without the limit of 1


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("importance", [1.0, 1e3, 1e9])
def test_steps_end_where_loss_and_penalty_balance_however_steep_the_penalty(
    importance, momentum
) -> None:
    """Loss (θ - 1)² / 2 around anchor 0: the minimum of the sum is 1 / (1 + lambda ·
    importance).
    """
    optimizer = {"lr": 0.1, "momentum": momentum}
    method, ctx = make_method_and_context(
        "ewc",
        draw_values(1) * 0,
        torch.full((1,), importance).double(),
        optimizer,
        **{"lambda": 2.0},
    )
    weight = ctx.trainable["w"]
    steps = torch.optim.SGD([weight], **optimizer)
    for _ in range(400):
        weight.grad = (weight.detach() - 1).clone()
        method.add_penalty_gradients(ctx)
        steps.step()
        assert abs(weight.item()) < 1
    assert weight.item() == pytest.approx(1 / (1 + 2 * importance), rel=1e-6)


def test_what_is_slowed_down_is_said() -> None:
    method, ctx = make_method_and_context(
        "mas",
        torch.zeros(2),
        torch.tensor([1.0, 100.0]),
        {"lr": 0.1, "momentum": 0.0},
        **{"lambda": 1.0},
    )
    method.begin_task(ctx)
    assert len(ctx.warnings) == 1
    assert "1 of 2" in ctx.warnings[0] and "0.05 of the rate" in ctx.warnings[0]


@each
def test_grown_rows_have_no_importance_and_their_first_values_as_anchor(
    name, hyper, factor
) -> None:
    method, ctx = make_method_and_context(name, torch.ones(2, 3), torch.ones(2, 3), **hyper)
    grown = torch.cat([torch.zeros(2, 3), torch.full((1, 3), 5.0)])
    ctx = Ctx(ctx.recipe, w=grown)
    method.begin_task(ctx)
    assert method.stored_tensors[method.get_importance_key("w")].tolist() == [[1.0] * 3] * 2 + [
        [0.0] * 3
    ]
    assert method.stored_tensors["anchor.w"].tolist() == [[1.0] * 3] * 2 + [[5.0] * 3]


def test_importance_of_another_shape_is_an_error() -> None:
    method, ctx = make_method_and_context("ewc", torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"w has shape \(2, 3\)"):
        method.begin_task(Ctx(ctx.recipe, w=torch.ones(3, 4)))


@pytest.mark.parametrize(("name", "part"), [("ewc", "curvature"), ("si", "own")])
def test_importance_of_a_name_that_the_network_lacks_is_an_error(name, part, bench) -> None:
    first = bench.learn_task(1, method=name)
    prefix = "fisher" if name == "ewc" else "importance"
    tensors = {
        **first.tensors(part),
        f"{prefix}.nowhere": torch.ones(1),
        "anchor.nowhere": torch.ones(1),
    }
    save_tensors(tensors, first.folder / "parts" / f"{part}.safetensors")
    with pytest.raises(ValueError, match="nowhere"):
        bench.learn_task(2, first, method=name)


@each
def test_saved_and_loaded_it_gives_the_same_gradient(name, hyper, factor, tmp_path) -> None:
    method, ctx = make_method_and_context(
        name, draw_values(3).float(), draw_values(3, seed=1).abs().float(), {"lr": 0.5}, **hyper
    )
    save_tensors(method.state.collect_tensors_by_type()[method.section], tmp_path / "x.safetensors")
    state = MethodState()
    state.replace_content(
        {method.section: load_tensors(tmp_path / "x.safetensors")}, {}, torch.device("cpu")
    )
    gradients = []
    for each_method in (method, make_method(name, state, **hyper)):
        ctx.cache.clear()
        with torch.no_grad():
            ctx.trainable["w"].copy_(draw_values(3, seed=2))
        ctx.trainable["w"].grad = torch.ones(3)
        each_method.add_penalty_gradients(ctx)
        gradients.append(ctx.trainable["w"].grad)
    assert torch.equal(*gradients) and not torch.equal(gradients[0], torch.ones(3))


@pytest.mark.parametrize("name", ["ewc", "mas"])
def test_the_networks_modes_are_as_before_after_the_importance_pass(
    name, bench, monkeypatch
) -> None:
    kind, seen = type(make_method(name)), []
    end = kind.end_task

    def end_task(self, ctx, batches):
        ctx.network.train()
        next(iter(ctx.network.children())).eval()
        before = [m.training for m in ctx.network.modules()]
        end(self, ctx, batches)
        seen.append(before == [m.training for m in ctx.network.modules()])

    monkeypatch.setattr(kind, "end_task", end_task)
    bench.learn_task(1, method=name)
    assert seen == [True]


@pytest.mark.parametrize("name", NAMES)
def test_only_parameters_that_may_move_get_importance(name, bench) -> None:
    learned = bench.learn_task(1, method=name, depth=1)
    part = "curvature" if name.startswith("ewc") else "own"
    assert {key.partition(".")[2] for key in learned.tensors(part)} == {"head.weight", "head.bias"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("ewc", marks=pytest.mark.campaign), "mas"])
def test_real_digits_are_learned_at_a_strength_far_beyond_plain_steps(name, tmp_path) -> None:
    """Momentum makes a limit on importance alone diverge here: weights swing through the anchor
    into steep loss.
    """
    bench = Bench(tmp_path, architecture={"name": "small-cnn"}, size=8)
    bench.show_digits()
    recipe = {"epochs": 4, "batch_size": 32, "augment": "auto", "seed": 1}
    row = bench.stream(2, method={"name": name, "lambda": 1e6}, **recipe).cell("new", 2)
    assert row["correct"] > 0.7 * row["total"]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("ewc", "lambda"),
        ("ewc-online", "lambda"),
        ("mas", "lambda"),
        ("si", "c"),
        ("l2-sp", "alpha"),
    ],
)
def test_a_strength_that_float32_does_not_hold_is_refused_with_its_range(name, field) -> None:
    assert resolve_patch({"method": {"name": name, field: 1e36}}).method[field] == 1e36
    with pytest.raises(InvalidRecipe, match=r"must be at most 1e\+36"):
        resolve_patch({"method": {"name": name, field: 1e39}})
