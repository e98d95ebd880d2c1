"""Merging with the weights of the start: the average, what it leaves out, and the rule of
the grid.
"""

from typing import Any

import pytest
import torch
from linear import randomise_network
from streams import Bench, Learned
from torch import nn

from core.learning.memory.replay import compute_replay_logits_by_head
from core.learning.memory.reservoir import ReplayItems
from core.learning.methods.replay.der import DarkExperienceReplay
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.networks.interpolation import interpolate_weights
from core.learning.networks.norms import recompute_batch_norm_statistics
from core.learning.training.merge import GRID, choose_first_index_near_best

RESNET = {"name": "resnet20", "width": 8}


def find_weight_metric(run: Learned) -> dict[str, Any]:
    (found,) = [e for e in run.events if e["event"] == "metric" and e["name"] == "merge_weight"]
    return found


def test_the_line_is_the_weighted_mean_and_exact_at_both_ends() -> None:
    g = torch.Generator().manual_seed(0)
    start, end = ({"w": torch.randn(3, 4, dtype=torch.float64, generator=g)} for _ in range(2))
    for k in range(11):
        slow = (1 - k / 10) * start["w"] + k / 10 * end["w"]
        torch.testing.assert_close(
            interpolate_weights(start, end, k / 10)["w"], slow, rtol=0, atol=1e-15
        )
    assert torch.equal(interpolate_weights(start, end, 0)["w"], start["w"])
    assert torch.equal(interpolate_weights(start, end, 1)["w"], end["w"])


def test_what_one_end_lacks_stays() -> None:
    start, end = {"w": torch.ones(3, 2), "new": torch.ones(1)}, {"w": torch.zeros(2, 2)}
    found = interpolate_weights(start, end, 0.5)
    assert found["w"].tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 1]] and torch.equal(
        found["new"], start["new"]
    )
    assert start["w"].eq(1).all()


@pytest.mark.parametrize(
    ("counts", "within", "weight"),
    [
        ([5, 6, 9, 10, 10, 8, 8, 8, 8, 8, 8], 0.0, 0.3),  # of two best the smaller
        ([5, 6, 9, 10, 10, 8, 8, 8, 8, 8, 8], 0.1, 0.2),  # one of ten images is exactly the bound
        ([5, 6, 9, 10, 10, 8, 8, 8, 8, 8, 8], 0.09, 0.3),
        ([7] * 11, 0.0, 0.0),
        (list(range(11)), 0.3, 0.7),  # 10 - 0.3 · 10 is not 7 in floating point
    ],
)
def test_the_smallest_weight_within_the_bound_of_the_best_is_chosen(counts, within, weight) -> None:
    assert GRID[choose_first_index_near_best(counts, 10, within)] == weight


def test_parameters_that_were_there_are_averaged_and_rows_of_new_classes_are_not(tmp_path) -> None:
    bench = Bench(tmp_path)
    first, whole = bench.learn_tasks(2, method="finetune")
    half = bench.learn_task(2, first, method="finetune", merge={"weight": 0.25})
    start, trained, merged = first.weights, whole.weights, half.weights
    for name, before in start.items():
        old = merged[name][: len(before)].double()
        slow = 0.75 * before.double() + 0.25 * trained[name][: len(before)].double()
        torch.testing.assert_close(old, slow, rtol=1e-6, atol=1e-7)
    assert torch.equal(merged["head.weight"][2:], trained["head.weight"][2:])
    assert find_weight_metric(half)["value"] == 0.25
    assert any(
        "Merged: 0.25 of what was trained and 0.75 of the version before" in m
        for m in half.logged()
    )


def test_the_first_task_merges_nothing_with_random_weights_and_says_so(tmp_path) -> None:
    bench = Bench(tmp_path)
    plain, merged = (bench.learn_task(1, merge=m) for m in (None, {"weight": 0.5}))
    assert plain.network_digests == merged.network_digests
    assert any("the weights that it started from are random" in line for line in merged.logged())


def test_the_grid_is_told_and_its_choice_is_what_a_fixed_weight_gives(tmp_path) -> None:
    bench = Bench(tmp_path, recipe={"validation": 0.3, "method": "er"})
    first = bench.learn_task(1)
    by_rule = bench.learn_task(2, first, merge={"within": 0.1})
    told = find_weight_metric(by_rule)
    grid = told["data"]["grid"]
    best = max(point["accuracy"] for point in grid)
    assert [point["weight"] for point in grid] == list(GRID)
    assert told["value"] == next(p["weight"] for p in grid if p["accuracy"] >= best - 0.1 - 1e-9)
    fixed = bench.learn_task(2, first, merge={"weight": told["value"]})
    assert fixed.network_digests == by_rule.network_digests


def test_statistics_of_layers_that_moved_are_those_of_the_images_under_the_merged_weights(
    tmp_path,
) -> None:
    bench = Bench(tmp_path, architecture=RESNET, size=8, n=9, recipe={"epochs": 1})
    first = bench.learn_task(1, method="finetune")
    run = bench.learn_task(2, first, method="finetune", depth=2, merge={"weight": 0.5})
    before, after = first.weights, run.weights
    moved = {
        n for n in before if n.endswith("running_mean") and not torch.equal(before[n], after[n])
    }
    of_last_stage = {
        n
        for n in run.tensors(max(n for n in run.network_digests if "backbone" in n))
        if n.endswith("running_mean")
    }
    assert moved == of_last_stage


def test_estimated_statistics_are_means_over_batches_in_float64() -> None:
    network = build_network(RESNET, ImageSpec(8, 3), "class", HeadSpec(("a",))).double()
    randomise_network(network)
    first = next(m for m in network.modules() if isinstance(m, nn.BatchNorm2d))
    batches = [torch.randn(n, 3, 8, 8, dtype=torch.float64) for n in (4, 6, 1)]
    recompute_batch_norm_statistics(network, [first], batches)
    conv = next(m for m in network.modules() if isinstance(m, nn.Conv2d))
    outputs = [conv(x).detach() for x in batches[:2]]  # one image has no variance
    slow_mean = sum(o.mean((0, 2, 3)) for o in outputs) / 2
    slow_variance = sum(o.var((0, 2, 3)) for o in outputs) / 2
    torch.testing.assert_close(first.running_mean, slow_mean)
    torch.testing.assert_close(first.running_var, slow_variance)


def test_stored_logits_of_the_tasks_images_are_those_of_the_merged_weights(
    tmp_path, monkeypatch
) -> None:
    checked = []
    after_weight_merge = DarkExperienceReplay.after_weight_merge

    def merge_and_compare_logits(self: DarkExperienceReplay, ctx: Any) -> None:
        held = self.state["buffer"].tensors
        old = {name: t.clone() for name, t in held.items()}
        after_weight_merge(self, ctx)
        earlier = old["tasks"] < ctx.task
        items = ReplayItems.read_items_from_section(
            self.state["buffer"], (~earlier).nonzero().squeeze(1)
        )
        with torch.no_grad(), ctx.use_exact_evaluation_mode():
            ((_, logits),) = compute_replay_logits_by_head(
                self, ctx, ctx.inputs(items.images), items.tasks
            )
        assert torch.equal(held["logits"][earlier], old["logits"][earlier])
        torch.testing.assert_close(held["logits"][~earlier], logits)
        checked.append(int((~earlier).sum()))

    monkeypatch.setattr(DarkExperienceReplay, "after_weight_merge", merge_and_compare_logits)
    bench = Bench(tmp_path)
    bench.stream(2, method="der", merge={"weight": 0.5})
    assert len(checked) == 1 and checked[0] > 4
