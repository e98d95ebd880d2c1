"""Depth: parameters outside the depth, and their statistics, stay bit-identical."""

import pytest
import torch
from conformance import build_shallow_resnets
from streams import Bench

from core.learning.methods.finetune import FinetuneMethod
from core.learning.networks import HeadSpec, ImageSpec, build_network

MLP = {"name": "mlp", "hidden": [12]}


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@build_shallow_resnets()
def test_what_the_depth_leaves_out_is_unchanged_buffers_included(deep, depth) -> None:
    network = build_network({"name": "resnet20"}, ImageSpec(8, 1), "class", HeadSpec(), 5)
    first, second = deep.learn_tasks(2, method="finetune", depth=depth)
    moving = {
        name
        for name in network.list_trainable_parameter_names(depth)
        if name.startswith("backbone.")
    }
    frozen = {name for group in network.list_tensor_names_by_depth()[depth:] for name in group}
    parameters = {name for name, _ in network.named_parameters()}
    before = network.state_dict()
    for learned in (first, second):
        after = learned.weights
        moved = {
            n for n in before if n.startswith("backbone.") and not torch.equal(before[n], after[n])
        }
        assert moved & parameters == moving
        assert not (moved - parameters) & frozen
        before = after
    assert moved <= parameters  # all BatchNorm is fixed after the first update


@build_shallow_resnets()
def test_depth_five_is_the_unrestricted_run(deep, monkeypatch) -> None:
    restricted = deep.stream(2, method="finetune", depth=5)
    everything = lambda self, network, depth: {name for name, _ in network.named_parameters()}  # noqa: E731
    monkeypatch.setattr(FinetuneMethod, "list_trainable_parameter_names", everything)
    assert deep.stream(2, method="finetune").digests == restricted.digests


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("decay", "same"), [(0.0, True), (0.01, False)])
def test_filtering_equals_masked_gradients_without_weight_decay_only(
    bench, monkeypatch, optimizer, decay, same
) -> None:
    recipe = {
        "method": "finetune",
        "optimizer": {"name": optimizer, "lr": 0.01, "weight_decay": decay},
    }
    parent = bench.learn_task(1, method="finetune")
    filtered = bench.learn_task(2, parent, depth=1, **recipe)

    def zero_backbone_gradients(self, ctx):
        for name, parameter in ctx.trainable.items():
            if name.startswith("backbone."):
                parameter.grad.zero_()

    monkeypatch.setattr(FinetuneMethod, "project_gradient", zero_backbone_gradients)
    masked = bench.learn_task(2, parent, **recipe)
    assert (masked.network_digests == filtered.network_digests) is same


WITH_STATISTICS = "finetune on a network with statistics"
SGD, ADAM = ({"name": name, "lr": 0.01} for name in ("sgd", "adam"))


@pytest.mark.parametrize(
    ("method", "scenario", "optimizer"),
    [
        *[
            ("finetune", scenario, optimizer)
            for scenario in ("class", "task")
            for optimizer in (SGD, ADAM)
        ],
        *[
            (WITH_STATISTICS, scenario, optimizer)
            for scenario, optimizer in (("class", SGD), ("task", ADAM))
        ],
        ("finetune", "class", {**SGD, "olor": {"iota1": 0.5, "anchor_old_head_rows": True}}),
        *[
            pytest.param(
                method,
                scenario,
                optimizer,
                # Quadratic penalties as the others.
                marks=pytest.mark.campaign if method in ("ewc", "mas") else (),
            )
            for method in ("ewc", "ewc-online", "si", "mas", "l2-sp")
            for scenario, optimizer in (("class", SGD), ("task", ADAM))
        ],
        *[(method, "task", optimizer) for method in ("gem", "a-gem") for optimizer in (SGD, ADAM)],
    ],
)
def test_a_head_under_a_masked_loss_forgets_nothing_at_depth_one(
    tmp_path, method, scenario, optimizer
) -> None:
    """Statistics are fixed, the optimizer is fresh, and there is no weight decay.

    The rows of old tasks therefore stay unchanged.
    """
    architecture = {"name": "resnet20"} if method == WITH_STATISTICS else MLP
    bench = Bench(tmp_path, scenario, architecture, size=8, n=10)
    method = "finetune" if method == WITH_STATISTICS else method
    recipe = {"method": method, "train_ce": "masked", "optimizer": optimizer}
    first = last = bench.learn_task(1, **recipe)
    for number in (2, 3):
        last = bench.learn_task(number, last, **recipe, depth=1)
    before, after = first.weights, last.weights
    for name, old in before.items():
        assert torch.equal(after[name][: len(old)] if old.dim() else after[name], old), name
    assert (
        last.network_digests["head" if scenario == "class" else "head.3"]
        not in first.digests.values()
    )
    if scenario == "task":  # its own head answers, so that equal logits are equal answers
        new = {row["task"]: row for row in last.result["results"] if row["version"] == "new"}
        learned = next(row for row in first.result["results"] if row["version"] == "new")
        assert new[1]["per_class"] == learned["per_class"]


@pytest.mark.parametrize(
    ("method", "most"), [("lwf", 1e-6), ("er", None), ("der", None), ("der++", None)]
)
def test_only_replay_moves_old_heads_at_depth_one(tmp_path, method, most) -> None:
    """Distillation on fixed features has no gradient except for rounding."""
    bench = Bench(tmp_path, "task", MLP)
    recipe = {"method": method, "optimizer": SGD}
    first = bench.learn_task(1, **recipe)
    second = bench.learn_task(2, first, depth=1, **recipe)
    old, new = (learned.tensors("head.1")["heads.1.weight"] for learned in (first, second))
    moved = float((new - old).abs().max())
    assert moved <= most if most is not None else moved > 1e-4


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({}, False),
        ({"train_ce": "global"}, True),
        ({"optimizer": {**SGD, "weight_decay": 0.01}}, True),
        ({"optimizer": {**SGD, "carry_state": True}}, True),
    ],
    ids=["none", "global", "decay", "carried"],
)
def test_a_global_loss_weight_decay_or_carried_momentum_moves_old_rows(
    bench, change, moves
) -> None:
    recipe = {"method": "finetune", "train_ce": "masked", "optimizer": {**SGD, "carry_state": True}}
    first = bench.learn_task(1, **recipe)
    second = bench.learn_task(2, first, **{**recipe, "optimizer": SGD, **change}, depth=1)
    old, new = (learned.tensors("head")["head.weight"][:2] for learned in (first, second))
    assert torch.equal(old, new) is not moves


def test_a_head_of_its_own_rate_moves_at_it(bench) -> None:
    slow = bench.learn_task(1, method="finetune", optimizer={"head_lr": 1e-9})
    assert float(slow.tensors("head")["head.weight"].abs().max()) < 1e-6


def test_a_linear_probe_moves_the_head_and_no_stage_is_stored_again(bench) -> None:
    first, second = bench.learn_tasks(2, preset="linear-probe")
    changed = {n for n, d in second.network_digests.items() if first.digests[n] != d}
    assert changed == {"head"}
