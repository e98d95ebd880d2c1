"""The changes by one task: answers image by image, weights and features, as the job's result tells
it.
"""

from typing import ClassVar

import pytest
import torch
from streams import Bench
from torch import nn

from core.learning.evaluation.comparison import (
    compute_weight_update_norm,
    count_correctness_changes,
    measure_weight_drift_from_base,
)
from core.learning.methods import registry
from core.learning.methods.method import Method
from core.learning.networks import HeadSpec, ImageSpec, build_network


def make_mask(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.bool)


def test_changes_are_counted_per_image() -> None:
    before, after = make_mask(1, 1, 1, 0, 0), make_mask(1, 0, 0, 1, 0)
    assert count_correctness_changes(before, after) == {"regressed": 2, "improved": 1, "total": 5}


@pytest.mark.parametrize("scenario", ["data", "task", "class"])
def test_the_change_of_accuracy_is_improvement_minus_regression(tmp_path, scenario) -> None:
    bench = Bench(tmp_path, scenario, n_held_out=40)
    first = bench.learn_task(1, method="finetune", optimizer={"lr": 0.2})
    result = bench.learn_task(2, first, method="finetune", optimizer={"lr": 0.2}).result
    rows = [*first.result["results"], *result["results"]]
    before = {row["task"]: row for row in first.result["results"] if row["version"] == "new"}
    before |= {row["task"]: row for row in rows if row["version"] == "parent" and row["task"] == 2}
    after = {row["task"]: row for row in result["results"] if row["version"] == "new"}
    # The parent has no head, or no row, for the second task, except where classes are the same.
    assert set(result["changes"]) == ({"1", "2"} if scenario == "data" else {"1"})
    for task, change in result["changes"].items():
        old, new = before[int(task)], after[int(task)]
        assert change["total"] == old["total"] == new["total"] == 40
        assert new["correct"] - old["correct"] == change["improved"] - change["regressed"]


def test_a_first_version_has_nothing_to_compare_with(bench) -> None:
    result = bench.learn_task(1).result
    assert result["changes"] == {}
    assert result["drift"] == pytest.approx(result["update_norm"]["backbone"])


def test_drift_is_measured_from_version_0_and_steps_from_the_parent(bench) -> None:
    first, second = bench.learn_tasks(2)

    def flatten_backbone(learned) -> torch.Tensor:
        parts = [p["name"] for p in learned.result["parts"] if p["type"] == "backbone"]
        return torch.cat(
            [t.flatten() for p in parts for _, t in sorted(learned.tensors(p).items())]
        ).double()

    base = build_network(bench.architecture, ImageSpec(6, 1), "class", HeadSpec(), seed=5).backbone
    start = torch.cat([t.detach().flatten() for _, t in sorted(base.named_parameters())]).double()
    assert second.result["drift"] == pytest.approx(
        float((flatten_backbone(second) - start).norm()), rel=1e-6
    )
    step = float((flatten_backbone(second) - flatten_backbone(first)).norm())
    assert second.result["update_norm"]["backbone"] == pytest.approx(step, rel=1e-6)


def test_drift_counts_frozen_parameters_and_no_head() -> None:
    network = build_network(
        {"name": "mlp", "hidden": [3]}, ImageSpec(2, 1), "class", HeadSpec(("a",)), 1
    )
    base = {name: p.detach().clone() for name, p in network.named_parameters()}
    with torch.no_grad():
        network.head.weight += 5
        next(network.backbone.parameters()).view(-1)[:2] += torch.tensor([3.0, 4.0])
    assert measure_weight_drift_from_base(network, base) == pytest.approx(5.0)
    assert compute_weight_update_norm(network, base, {"head.weight"})["backbone"] == 0.0


def test_the_probe_is_taken_of_every_task_and_of_older_versions_on_the_new_one(bench) -> None:
    probe = bench.stream(2).result["knn_probe"]
    assert {task: total for task, (_, total) in probe["tasks"].items()} == {"1": 8, "2": 8}
    assert probe["all"][1] == 16
    assert {name: total for name, (_, total) in probe["before"].items()} == {"base": 8, "parent": 8}


def test_each_comparison_is_reported_as_a_metric(bench) -> None:
    events = [e for e in bench.stream(2).events if e["event"] == "metric"]
    probes = {e["data"]["task"]: e["value"] for e in events if e["name"] == "knn_probe"}
    assert set(probes) == {1, 2} and all(0 <= value <= 1 for value in probes.values())
    (change,) = [e for e in events if e["name"] == "accuracy_change"]
    counts = change["data"]
    assert counts["task"] == 1
    assert change["value"] == (counts["improved"] - counts["regressed"]) / counts["total"]


def test_without_held_out_images_nothing_is_compared(bench) -> None:
    first = bench.learn_task(1)
    spec = bench.spec(2, first)
    for task in (*spec["history"], spec["task"]):
        task["held_out"] = None
    result = bench.learn(spec).result
    assert result["changes"] == {}
    assert result["knn_probe"] == {"all": [0, 0], "tasks": {}, "before": {}}


class Wrapping(Method):
    """Makes another network of the one that it gets, as prompts do."""

    name = "wrapping"
    description = "Turns the answers around before training."
    source = "this test"
    no_neutral = "changes the network"
    scenarios: ClassVar[tuple[str, ...]] = ("data",)

    def build_network(self, network):
        with torch.no_grad():
            for parameter in network.parameters():
                nn.init.normal_(parameter)
        return network


def test_version_0_is_measured_without_the_method(tmp_path, monkeypatch) -> None:
    """Measured through random prompts, a base that knows more than chance would hide forgetting."""
    monkeypatch.setitem(registry.METHODS, "wrapping", Wrapping)
    bench = Bench(tmp_path, "data", n_held_out=40)
    cells = []
    for method in ("finetune", "wrapping"):
        result = bench.learn_task(1, method=method).result
        cells.append([row for row in result["results"] if row["version"] in ("base", "parent")])
    assert cells[0] == cells[1] and len(cells[0]) == 2
