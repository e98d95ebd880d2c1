"""Online EWC: what its one memory holds after each task."""

import pytest
import torch
from penalties import make_method_and_context
from pydantic import ValidationError
from streams import Bench, spy_on_calls

from core.learning.curvature.curvature import LayerCurvatures
from core.learning.methods.penalties.ewc_online import EwcOnlineMethod


def read_curvature_tensors(learned):
    return learned.tensors("curvature")


def test_gamma_zero_keeps_the_last_tasks_importance_alone(bench) -> None:
    first = bench.learn_task(1, method={"name": "ewc-online", "gamma": 0.0})
    found = {}
    for gamma in (0.0, 0.5, 1.0):
        spec = bench.spec(2, first, method={"name": "ewc-online", "gamma": gamma})
        found[gamma] = read_curvature_tensors(bench.learn(spec))
    name = next(key for key in found[0.0] if key.startswith("fisher.backbone"))
    for gamma in (0.5, 1.0):
        wanted = found[0.0][name] + gamma * read_curvature_tensors(first)[name]
        assert torch.allclose(found[gamma][name], wanted, atol=1e-7)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_at_the_end_of_a_task_the_memory_is_gamma_times_the_old_one_and_the_new(
    gamma, monkeypatch
) -> None:
    old, new = torch.tensor([2.0, 3.0]).double(), torch.tensor([5.0, 0.0]).double()
    method, ctx = make_method_and_context("ewc-online", torch.zeros(2).double(), old, gamma=gamma)
    monkeypatch.setattr(
        EwcOnlineMethod, "_measure_diagonal_fisher", lambda self, ctx, batches: {"w": new}
    )
    method.end_task(ctx, [])
    assert torch.equal(method.stored_tensors["fisher.w"], gamma * old + new)


@pytest.mark.parametrize("gamma", [None, -0.1, 1.1])
def test_a_gamma_that_is_no_share_is_refused(gamma) -> None:
    with pytest.raises(ValidationError, match="gamma"):
        EwcOnlineMethod.Hyper.model_validate({"gamma": gamma})


def test_gamma_acts_when_a_task_ends_and_not_in_the_penalty() -> None:
    method, ctx = make_method_and_context(
        "ewc-online", torch.zeros(1), torch.ones(1), **{"lambda": 3.0, "gamma": 0.5}
    )
    with torch.no_grad():
        ctx.trainable["w"].fill_(1.0)
    method.add_penalty_gradients(ctx)
    assert ctx.trainable["w"].grad.item() == 3.0


def test_importance_decays_for_weights_that_do_not_move_any_more(bench) -> None:
    first = bench.learn_task(1, method="ewc-online")
    method = {"name": "ewc-online", "gamma": 0.5}
    second = read_curvature_tensors(bench.learn_task(2, first, method=method, depth=1))
    for key, value in read_curvature_tensors(first).items():
        if key.startswith("fisher.backbone"):
            assert torch.equal(second[key], value * 0.5)


def test_the_anchor_is_the_published_weights(bench) -> None:
    learned = bench.stream(2, method="ewc-online")
    for name, value in learned.weights.items():
        assert torch.equal(read_curvature_tensors(learned)[f"anchor.{name}"], value)


def test_importance_keeps_the_shape_of_a_head_that_grows(bench) -> None:
    learned = bench.stream(3, method="ewc-online")
    assert (
        read_curvature_tensors(learned)["fisher.head.weight"].shape
        == learned.tensors("head")["head.weight"].shape
    )


def test_a_strength_of_zero_still_remembers_for_a_later_task(bench) -> None:
    learned = bench.stream(2, method={"name": "ewc-online", "lambda": 0.0})
    weights = learned.tensors("head")["head.weight"]
    assert torch.equal(read_curvature_tensors(learned)["anchor.head.weight"], weights)


def test_the_limit_leaves_no_trace_in_what_is_stored(bench) -> None:
    """Weights that hardly move: with and without a limit the second task must store the same."""
    first = bench.learn_task(1, method="ewc-online")
    found = {}
    for strength in (1e3, 1e33):
        recipe = {"method": {"name": "ewc-online", "lambda": strength}, "optimizer": {"lr": 1e-30}}
        second = bench.learn_task(2, first, **recipe)
        found[strength] = read_curvature_tensors(second)
        assert bool(second.result["warnings"]) is (strength == 1e33)
        assert second.result["method"]["state"] == {}
    for name, value in found[1e3].items():
        assert torch.equal(found[1e33][name], value)


# Kronecker factors by layer.

KFAC = {"name": "ewc-online", "curvature": "kfac", "lambda": 1.0}


def read_curvatures(learned) -> LayerCurvatures:
    stored = {k.removeprefix("factors/"): t for k, t in learned.tensors("curvature").items()}
    return LayerCurvatures.from_tensors(
        stored, learned.result["method"]["state"]["curvature"]["layers"]
    )


def test_factors_merge_as_a_mean_over_tasks_and_are_counted(bench) -> None:
    first = bench.learn_task(1, method=KFAC)
    second = bench.learn_task(2, first, method=KFAC | {"gamma": 0.5}, depth=1)
    counts = second.result["method"]["state"]["curvature"]["counts"]
    assert counts == {"backbone.fc1": 0.5, "head": 1.5}
    assert torch.equal(
        read_curvatures(second).blocks["backbone.fc1"].a.to_dense(),
        read_curvatures(first).blocks["backbone.fc1"].a.to_dense(),
    )


def test_the_factored_penalty_is_the_quadratic_form_of_what_is_stored(bench, monkeypatch) -> None:
    first = bench.learn_task(1, method=KFAC)
    start = first.weights

    def read_penalty_and_weights(result, method, ctx, batch):
        return method.compute_penalty(ctx), {
            name: p.detach().clone() for name, p in ctx.trainable.items()
        }

    seen = spy_on_calls(monkeypatch, EwcOnlineMethod, "after_step", read_penalty_and_weights)
    bench.learn_task(2, first, method=KFAC)
    penalty, now = seen[-1]
    wanted = 0.0
    for name, block in read_curvatures(first).blocks.items():
        weight, bias = (
            now[f"{name}.{key}"][: len(start[f"{name}.{key}"])] - start[f"{name}.{key}"]
            for key in ("weight", "bias")
        )
        d = torch.cat([weight, bias[:, None]], 1).double()
        dense = torch.kron(block.g.to_dense().double(), block.a.to_dense().double())
        wanted += float(d.flatten() @ dense @ d.flatten()) / 2
    assert penalty == pytest.approx(wanted, rel=1e-4)
    assert wanted > 0


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        ("task", "kfac"),
        ("class", "tkfac"),
        *(
            pytest.param(*other, marks=pytest.mark.campaign)
            for other in [("data", "kfac"), ("class", "kfac"), ("data", "tkfac"), ("task", "tkfac")]
        ),
    ],
)
def test_factors_follow_a_head_that_grows_and_resume_to_the_same_bits(
    tmp_path, scenario: str, kind: str
) -> None:
    bench = Bench(tmp_path, scenario, {"name": "small-cnn"}, size=6)
    method = KFAC | {"curvature": kind}
    first, undisturbed = bench.learn_tasks(2, method=method)
    assert bench.resumed(2, first, 7, 9, method=method).digests == undisturbed.digests
    rows = undisturbed.tensors("head.2" if scenario == "task" else "head")
    head = read_curvatures(undisturbed).blocks["heads.2" if scenario == "task" else "head"]
    factor = head.g if kind == "kfac" else head.q
    assert factor.size == next(iter(rows.values())).shape[0]


def test_another_form_of_curvature_starts_empty_with_a_warning(bench) -> None:
    first = bench.learn_task(1, method="ewc-online")
    second = bench.learn_task(2, first, method=KFAC)
    assert second.warns("unprotected")
    assert set(second.result["method"]["state"]["curvature"]["counts"].values()) == {1.0}
