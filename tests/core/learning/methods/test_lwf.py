"""LwF: its distance and gradient in numbers, what it is taken over, and the warm-up of new rows."""

import pytest
import torch
from recipes import complete_recipe, resolve_patch
from streams import Bench, spy_on_calls, spy_on_losses

from core.errors import InvalidRecipe
from core.learning.methods import lwf
from core.learning.methods.lwf import LearningWithoutForgetting, compute_distillation_loss
from core.learning.methods.teacher import get_teacher_network
from core.learning.networks import HeadSpec, ImageSpec, build_network


def compute_distillation_gradient(terms, parameter):
    return torch.autograd.grad(terms["distillation"], parameter, retain_graph=True)[0]


def test_the_distance_and_its_gradient_are_the_numbers_of_the_formula() -> None:
    z = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    value = compute_distillation_loss(z, old, 2.0)
    value.backward()
    assert float(value.detach()) == pytest.approx(0.693147, abs=1e-6)
    assert float(value.detach() - compute_distillation_loss(old, old, 2.0)) == pytest.approx(
        0.110944, abs=1e-6
    )  # KL
    assert z.grad[0].tolist() == pytest.approx([-0.115529, 0.115529], abs=1e-6)


def test_the_gradient_is_the_difference_of_softened_outputs_over_t_and_b_without_t_squared() -> (
    None
):
    generator = torch.Generator().manual_seed(0)
    z, old = (torch.randn(5, 4, dtype=torch.float64, generator=generator) for _ in range(2))
    z.requires_grad_()
    compute_distillation_loss(z, old, 3.0).backward()
    wanted = ((z / 3).softmax(1) - (old / 3).softmax(1)) / (3 * 5)
    assert torch.allclose(z.grad, wanted.detach(), atol=1e-15)


def test_a_student_like_its_teacher_has_no_gradient() -> None:
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    compute_distillation_loss(z, z.detach(), 2.0).backward()
    assert float(z.grad.abs().max()) < 1e-16


def test_outputs_of_probability_zero_are_no_trouble() -> None:
    z = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    compute_distillation_loss(z, torch.tensor([[-1e4, 0.0, 1e4]]), 2.0).backward()
    assert torch.isfinite(z.grad).all()


def test_the_first_task_is_plain_training(bench, monkeypatch) -> None:
    seen = spy_on_losses(
        monkeypatch, LearningWithoutForgetting, lambda method, ctx, batch, terms: set(terms)
    )
    plain = bench.learn_task(1, method="finetune")
    ours = bench.learn_task(1, method="lwf")
    assert seen[0] == {"task"} and ours.network_digests == plain.network_digests


def test_without_strength_there_is_no_teacher(bench, monkeypatch) -> None:
    first = bench.learn_task(1, method="lwf")

    def raise_assertion_error(ctx):
        raise AssertionError("a teacher was made")

    monkeypatch.setattr(lwf, "get_teacher_network", raise_assertion_error)
    bench.learn_task(2, first, method={"name": "lwf", "lambda_o": 0.0})
    with pytest.raises(AssertionError, match="teacher"):
        bench.learn_task(2, first, method="lwf")


@pytest.mark.parametrize("scenario", ["class", "data", "task"])
def test_the_teacher_is_the_parent_on_the_same_augmented_images(
    tmp_path, monkeypatch, scenario
) -> None:
    network = (
        {"name": "resnet20", "width": 8} if scenario == "class" else {"name": "mlp", "hidden": [9]}
    )
    bench = Bench(tmp_path, scenario, network, size=8, n=9)
    first = bench.learn_task(1, method="lwf")
    method = {"name": "lwf", "lambda_o": 0.5, "temperature": 3.0, "weight": "constant"}
    parent, _ = first.deployed()

    def compare_distillation_term(method, ctx, batch, terms):
        task = 1 if scenario == "task" else None
        with torch.no_grad():
            old, new = parent(batch.x, task), ctx.network(batch.x, task)[:, :2]
            wanted = -((old / 3).softmax(1) * (new / 3).log_softmax(1)).sum(1).mean()
        frozen = not any(module.training for module in get_teacher_network(ctx).modules())
        return float(terms["distillation"].detach()), 0.5 * float(wanted), frozen

    seen = spy_on_losses(monkeypatch, LearningWithoutForgetting, compare_distillation_term)
    bench.learn_task(2, first, method=method)
    assert len(seen) == 4 and all(frozen for _, _, frozen in seen)
    assert [got for got, _, _ in seen] == pytest.approx([wanted for _, wanted, _ in seen], rel=1e-5)


def test_a_head_that_grows_by_three_is_distilled_on_its_old_rows_alone(
    tmp_path, monkeypatch
) -> None:
    def compute_head_gradient(method, ctx, batch, terms):
        return compute_distillation_gradient(terms, ctx.network.head.weight)

    bench = Bench(tmp_path, classes=(("ant", "bee"), ("cat", "dog", "elk")))
    first = bench.learn_task(1, method="lwf")
    seen = spy_on_losses(monkeypatch, LearningWithoutForgetting, compute_head_gradient)
    bench.learn_task(2, first, method={"name": "lwf", "weight": "constant"})
    assert float(seen[0].abs().max()) < 1e-6  # nothing has moved yet
    assert float(seen[-1][:2].abs().max()) > 0
    for grad in seen:
        assert grad.shape[0] == 5 and not grad[2:].any()


@pytest.mark.parametrize(
    ("classes", "share"),
    [((("ant", "bee"), ("cat", "dog", "elk")), 3 / 5), ((("ant", "bee"), ("ant", "bee")), 1 / 2)],
)
def test_by_classes_both_losses_weigh_what_they_speak_for(
    tmp_path, monkeypatch, classes, share
) -> None:
    """In float64: the new images' loss, and cross-entropy with a teacher that gives new classes
    nothing.
    """

    def compare_weighted_losses(method, ctx, batch, terms):
        old = get_teacher_network(ctx)
        with torch.no_grad():
            logits = ctx.network(batch.x, None).double()
            before = torch.zeros_like(logits)
            before[:, :2] = (old(batch.x, None)[:, :2].double() / 2).softmax(1)
            wanted = -(before * (logits / 2).log_softmax(1)).sum(1).mean(), -logits.log_softmax(1)
            new = wanted[1][torch.arange(len(batch.y)), batch.y].mean()
        return {name: float(term.detach()) for name, term in terms.items()} == {
            "task": pytest.approx(float(share * new), rel=1e-5),
            "distillation": pytest.approx(float((1 - share) * 0.5 * wanted[0]), rel=1e-5),
        }

    bench = Bench(tmp_path, classes=classes)
    first = bench.learn_task(1, method="lwf")
    seen = spy_on_losses(monkeypatch, LearningWithoutForgetting, compare_weighted_losses)
    bench.learn_task(2, first, method={"name": "lwf", "lambda_o": 0.5, "weight": "by-classes"})
    assert seen and all(seen)


@pytest.mark.parametrize(
    ("scenario", "weight"), [("class", "by-classes"), ("data", "constant"), ("task", "constant")]
)
def test_the_weights_go_by_classes_by_default_in_the_class_scenario_alone(scenario, weight) -> None:
    assert complete_recipe({"method": "lwf"}, scenario)["method"]["weight"] == weight


@pytest.mark.parametrize("kind", [int, str])
def test_every_old_head_is_distilled_whether_tasks_are_named_by_numbers_or_strings(
    tmp_path, monkeypatch, kind
) -> None:
    bench = Bench(tmp_path, "task")
    second = bench.stream(2, method="lwf")
    spec = bench.spec(3, second, method="lwf")
    for head in spec["parent"]["manifest"]["heads"]:
        head["task"] = kind(head["task"])

    def compare_old_head_losses(method, ctx, batch, terms):
        network, before = ctx.network, get_teacher_network(ctx)
        with torch.no_grad():
            now, then = network.features(batch.x), before.features(batch.x)
            pairs = [(network.logits(now, t), before.logits(then, t)) for t in (1, 2)]
            excess = [
                float(
                    compute_distillation_loss(z, old, 2.0)
                    - compute_distillation_loss(old, old, 2.0)
                )
                for z, old in pairs
            ]
        return excess + [
            float(compute_distillation_gradient(terms, network.heads[t].weight).abs().max())
            for t in ("1", "2")
        ]

    seen = spy_on_losses(monkeypatch, LearningWithoutForgetting, compare_old_head_losses)
    bench.learn(spec)
    assert min(seen[-1]) > 0


def test_heads_by_string_are_the_heads_by_number() -> None:
    named = HeadSpec.from_manifest({"heads": [{"task": "1", "classes": ["a", "b"]}]})
    assert named == HeadSpec.from_manifest({"heads": [{"task": 1, "classes": ["a", "b"]}]})
    network = build_network({"name": "mlp", "hidden": [4]}, ImageSpec(4, 1), "task", named)
    assert network(torch.zeros(1, 1, 4, 4), 1).shape == (1, 2)


def test_with_the_head_alone_and_a_head_per_task_nothing_is_forgotten(tmp_path) -> None:
    bench = Bench(tmp_path, "task")
    first, second = bench.learn_tasks(2, method="lwf", depth=1)
    for name, old in first.tensors("head.1").items():
        assert torch.allclose(second.tensors("head.1")[name], old, atol=1e-6)


def test_versions_hold_nothing_of_the_teacher(bench) -> None:
    learned = bench.stream(2, method="lwf")
    assert {part["type"] for part in learned.result["parts"]} == {"backbone", "head"}
    assert learned.result["method"]["state"] == {}


WARM = {"name": "lwf", "warmup_epochs": 1}


@pytest.mark.parametrize("scenario", ["class", "task"])
def test_the_warm_up_moves_new_rows_alone_and_then_everything_moves(
    tmp_path, monkeypatch, scenario
) -> None:
    bench = Bench(tmp_path, scenario, recipe={"optimizer": {"weight_decay": 0.1}})
    first = bench.learn_task(1, method=WARM)

    def copy_stage_and_state(result, method, ctx, batch):
        return ctx.stage, {n: t.clone() for n, t in ctx.network.state_dict().items()}

    states = spy_on_calls(
        monkeypatch, LearningWithoutForgetting, "after_step", copy_stage_and_state
    )
    learned = bench.learn_task(2, first, method=WARM)
    steps = -(-bench.n // 4)
    assert [stage for stage, _ in states] == ["warm-up"] * steps + ["all"] * 2 * steps
    warm, last = states[steps - 1][1], states[-1][1]
    for name, value in first.weights.items():
        assert torch.equal(warm[name][: value.shape[0]], value), name
        assert not torch.equal(last[name][: value.shape[0]], value), name
    new = warm["heads.2.weight"] if scenario == "task" else warm["head.weight"][2:]
    assert new.any()
    assert learned.result["trainable"] == learned.result["parameters"]
    assert learned.result["update_norm"]["backbone"] > 0


def test_where_no_class_is_new_the_whole_head_warms_up(tmp_path, monkeypatch) -> None:
    bench = Bench(tmp_path, "data")
    first = bench.learn_task(1, method=WARM)
    found = spy_on_calls(
        monkeypatch,
        LearningWithoutForgetting,
        "project_gradient",
        lambda result, method, ctx: (
            ctx.stage,
            set(ctx.trainable),
            ctx.network.head.weight.clone(),
        ),
    )
    bench.learn_task(2, first, method=WARM)
    warm = [(names, weight) for stage, names, weight in found if stage == "warm-up"]
    assert all(names == {"head.weight", "head.bias"} for names, _ in warm)
    assert not torch.equal(warm[0][1], warm[-1][1])


def test_a_run_killed_in_its_warm_up_ends_with_the_same_bits(bench) -> None:
    first, undisturbed = bench.learn_tasks(2, method=WARM)
    for at in (2, 6, 7):  # within, at the end of the warm-up, after it
        assert bench.resumed(2, first, at, at + 1, method=WARM).digests == undisturbed.digests


def test_carried_optimizer_state_continues_in_the_stage_it_came_from(bench) -> None:
    carrying = {"method": WARM, "optimizer": {"carry_state": True}}
    first, second = bench.learn_tasks(2, **carrying)
    fresh = bench.learn_task(2, first, method=WARM)
    assert second.network_digests != fresh.network_digests
    assert set(first.tensors("optimizer")) == set(second.tensors("optimizer"))


def test_a_temperature_that_outputs_cannot_be_divided_by_is_refused() -> None:
    with pytest.raises(InvalidRecipe, match=r"must be at least 0\.001"):
        resolve_patch({"method": {"name": "lwf", "temperature": 1e-50}})
