"""EWC: one memory that gives the gradient of a penalty per task, and what is measured for it."""

from pathlib import Path
from unittest import mock

import pytest
import torch
from penalties import make_method, make_method_and_context
from recipes import resolve_patch
from streams import Bench, spy_on_calls

from core.learning.methods.penalties import ewc
from core.learning.methods.penalties.ewc import EwcMethod, merge_quadratic_penalties
from core.learning.state import load_tensors, save_tensors


def draw_three_tasks():
    """Draw importances and solutions of three tasks with 40 weights, some without importance, in
    float64.
    """
    generator = torch.Generator().manual_seed(0)
    importances = [torch.rand(40, generator=generator, dtype=torch.float64) for _ in range(3)]
    for importance in importances:
        importance[torch.rand(40, generator=generator) < 0.3] = 0
    importances = [torch.where(torch.arange(40) < 3, 0.0, f) for f in importances]
    return importances, [
        torch.randn(40, generator=generator, dtype=torch.float64) for _ in range(3)
    ]


def merge_penalties(importances, solutions):
    total, anchor = importances[0], solutions[0]
    for importance, solution in zip(importances[1:], solutions[1:], strict=True):
        total, anchor = merge_quadratic_penalties(total, anchor, importance, solution)
    return total, anchor


def test_the_folded_gradient_equals_that_of_separate_penalties_over_three_tasks() -> None:
    importances, solutions = draw_three_tasks()
    now = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    method, ctx = make_method_and_context(
        "ewc", *reversed(merge_penalties(importances, solutions)), **{"lambda": 7.0}
    )
    with torch.no_grad():
        ctx.trainable["w"].copy_(now)
    method.add_penalty_gradients(ctx)
    wanted = sum(7.0 * f * (now - s) for f, s in zip(importances, solutions, strict=True))
    assert float((ctx.trainable["w"].grad - wanted).abs().max()) < 1e-12


def test_the_folded_penalty_differs_from_the_separate_ones_by_a_constant() -> None:
    importances, solutions = draw_three_tasks()
    method, ctx = make_method_and_context(
        "ewc", *reversed(merge_penalties(importances, solutions)), **{"lambda": 7.0}
    )
    differences = []
    for seed in range(3):
        now = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            ctx.trainable["w"].copy_(now)
        separate = sum(
            3.5 * f * (now - s).square() for f, s in zip(importances, solutions, strict=True)
        )
        differences.append(float(separate.sum()) - method.compute_penalty(ctx))
    assert differences == pytest.approx([differences[0]] * 3) and differences[0] > 0


def test_the_anchor_of_a_weight_that_mattered_to_no_task_is_its_latest_value() -> None:
    importances, solutions = draw_three_tasks()
    total, anchor = merge_penalties(importances, solutions)
    assert torch.equal(anchor[:3], solutions[-1][:3]) and float(total[:3].abs().max()) == 0


def test_a_task_to_which_a_weight_does_not_matter_leaves_its_anchor() -> None:
    one, zero = torch.ones(2), torch.zeros(2)
    assert torch.equal(merge_quadratic_penalties(one, 3 * one, zero, 9 * one)[1], 3 * one)


def test_two_equal_importances_are_anchored_half_way() -> None:
    one = torch.ones(1)
    total, anchor = merge_quadratic_penalties(one, 2 * one, one, 4 * one)
    assert (total.item(), anchor.item()) == (2.0, 3.0)


def test_two_tasks_store_the_sum_and_the_mean_anchor(bench) -> None:
    """The second task is learned with strength 0, so it moves; what it stores is the fold
    of both.
    """
    recipe = {"name": "ewc", "lambda": 0.0}
    first, second = bench.learn_tasks(2, method=recipe)
    one, two = first.tensors("curvature"), second.tensors("curvature")
    alone = bench.learn_task(2, first, method={"name": "ewc-online", "gamma": 0.0, "lambda": 0.0})
    fresh = alone.tensors("curvature")
    name = next(key for key in two if key.startswith("fisher.backbone")).removeprefix("fisher.")
    total, anchor = merge_quadratic_penalties(
        *(one[f"{kind}.{name}"] for kind in ("fisher", "anchor")),
        *(fresh[f"{kind}.{name}"] for kind in ("fisher", "anchor")),
    )
    assert torch.equal(two[f"fisher.{name}"], total) and torch.equal(two[f"anchor.{name}"], anchor)
    assert not torch.equal(anchor, one[f"anchor.{name}"])


@pytest.mark.parametrize(("before", "after"), [("ewc", "ewc-online"), ("ewc-online", "ewc")])
def test_ewc_and_online_ewc_take_over_each_others_memory(before, after, bench, monkeypatch) -> None:
    first = bench.learn_task(1, method=before)
    seen = spy_on_calls(
        monkeypatch,
        EwcMethod,
        "after_step",
        lambda result, method, ctx, batch: method.compute_penalty(ctx),
    )
    second = bench.learn_task(2, first, method=after)
    assert max(seen) > 0
    old, new = (learned.tensors("curvature") for learned in (first, second))
    assert all(
        bool((new[k][: len(v)] >= v).all()) for k, v in old.items() if k.startswith("fisher.")
    )


def test_exact_takes_500_examples_to_20_classes_and_sampling_2000_beyond(monkeypatch) -> None:
    assert capture_fisher_request(monkeypatch, "auto", classes=20) == ("exact", 500)
    assert capture_fisher_request(monkeypatch, "auto", classes=21) == ("sample", 2000)


@pytest.mark.parametrize("kind", ["sample", "empirical", "predicted"])
def test_other_fishers_take_2000_examples(kind, monkeypatch) -> None:
    assert capture_fisher_request(monkeypatch, kind, classes=2) == (kind, 2000)


def test_examples_beyond_the_training_part_mean_all_of_it(monkeypatch) -> None:
    assert capture_fisher_request(monkeypatch, "predicted", examples=1_000_000) == (
        "predicted",
        3000,
    )
    assert capture_fisher_request(monkeypatch, "exact", examples=45) == ("exact", 45)


def capture_fisher_request(monkeypatch, fisher, classes=2, examples=None):
    """Return (kind, examples) of the request for the Fisher, with 30 batches of 100."""
    asked = []

    def diagonal_fisher(network, forward, names, pairs, *, kind, generator):
        asked.append((kind, sum(x.shape[0] for x, y in pairs if len(x) == len(y) <= 32)))
        return {}

    monkeypatch.setattr(ewc, "estimate_diagonal_fisher", diagonal_fisher)
    ctx = mock.MagicMock(
        task_argument_of_forward=None, task=1, recipe=resolve_patch({}), trainable={}
    )
    ctx.network.list_classes.return_value = ["c"] * classes
    batch = mock.Mock(x=torch.zeros(100, 1), y=torch.zeros(100, dtype=torch.int64))
    make_method("ewc", fisher=fisher, examples=examples)._measure_diagonal_fisher(ctx, [batch] * 30)
    return asked[0]


@pytest.mark.parametrize("scenario", ["class", "task", "data"])
def test_the_empirical_fisher_is_measured_on_rows_of_the_head_in_use(scenario, tmp_path) -> None:
    last = Bench(tmp_path, scenario).stream(2, method={"name": "ewc", "fisher": "empirical"})
    tensors = last.tensors("curvature")
    head = {"task": "heads.2.bias"}.get(scenario, "head.bias")
    assert bool((tensors[f"fisher.{head}"] > 0).all())


def test_importance_is_measured_on_all_classes_of_a_set_that_lists_them_one_by_one(
    bench, monkeypatch
) -> None:
    spec = bench.spec(1, None, method={"name": "ewc", "examples": 8})
    path = Path(spec["task"]["train"])
    tensors = load_tensors(path)
    order = tensors["labels"].argsort(stable=True)
    save_tensors({name: t[order].contiguous() for name, t in tensors.items()}, path)
    seen, end = [], EwcMethod.end_task

    def end_task(self, ctx, batches):
        batches = list(batches)
        seen.append(torch.cat([batch.y for batch in batches]))
        end(self, ctx, batches)

    monkeypatch.setattr(EwcMethod, "end_task", end_task)
    bench.learn(spec)
    assert seen[0].numel() == bench.n
    assert torch.bincount(seen[0][:8]).tolist() != [8] and torch.bincount(seen[0]).tolist() == [
        11,
        11,
    ]


def test_a_strength_that_steps_cannot_follow_is_said_and_learned_all_the_same(bench) -> None:
    learned = bench.stream(3, method={"name": "ewc", "lambda": 1e9})
    assert learned.warns("smaller steps")
