"""OLOR in the training loop: what it holds, what it leaves free, and that a killed run ends the
same.
"""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from core.learning.networks import HeadSpec, ImageSpec, build_network

HOLD = {"iota1": 1.0, "iota2": 1.0}


def build_recipe(olor=None, method="finetune", **optimizer):
    return {
        "method": method,
        "optimizer": {"lr": 0.02, "schedule": "constant", "olor": olor, **optimizer},
    }


@pytest.mark.parametrize(
    ("optimizer", "architecture"),
    [("sgd", {"name": "resnet20"}), ("adam", {"name": "mlp", "hidden": [12]})],
)
def test_strength_zero_is_plain_training_bit_for_bit(deep, optimizer, architecture) -> None:
    deep.architecture = architecture
    plain = deep.stream(2, **build_recipe(name=optimizer))
    rolled = deep.stream(2, **build_recipe({"iota1": 0.0, "iota2": 0.0}, name=optimizer))
    assert rolled.network_digests == plain.network_digests


def test_full_strength_holds_every_weight_of_the_backbone_and_neither_statistics_nor_head(
    deep,
) -> None:
    learned = deep.learn_task(1, **build_recipe(HOLD)).weights
    start = build_network(deep.architecture, ImageSpec(8, 1), "class", HeadSpec(), 5)
    parameters = {name for name, _ in start.named_parameters() if name.startswith("backbone.")}
    for name, old in start.state_dict().items():
        if name.startswith("backbone."):
            assert torch.equal(learned[name], old) is (name in parameters), name
    assert learned["head.weight"].abs().sum() > 0


@pytest.mark.parametrize("anchor", ["update_start", "pretrained"])
def test_the_anchor_is_the_version_before_or_version_zero(bench, anchor) -> None:
    first = bench.learn_task(1, **build_recipe())
    second = bench.learn_task(2, first, **build_recipe({**HOLD, "anchor": anchor})).weights
    zero = build_network(bench.architecture, ImageSpec(6, 1), "class", HeadSpec(), 5).state_dict()
    wanted = first.weights if anchor == "update_start" else zero
    assert torch.equal(second["backbone.fc1.weight"], wanted["backbone.fc1.weight"])
    assert not torch.equal(first.weights["backbone.fc1.weight"], zero["backbone.fc1.weight"])


@pytest.mark.parametrize("held", [False, True])
def test_old_rows_of_the_head_are_held_on_request_and_new_ones_never(bench, held) -> None:
    first = bench.learn_task(1, **build_recipe())
    olor = {"iota1": 1.0, "anchor": "pretrained", "anchor_old_head_rows": held}
    rows = bench.learn_task(2, first, **build_recipe(olor)).weights["head.weight"]
    assert torch.equal(rows[:2], first.weights["head.weight"]) is held
    assert rows[2:].abs().min() > 0


def test_what_the_depth_freezes_is_not_touched(deep) -> None:
    first = deep.learn_task(1, **build_recipe())
    olor = {"iota1": 0.5, "iota2": 0.5, "anchor": "pretrained"}
    second = deep.learn_task(2, first, depth=2, **build_recipe(olor))
    before, after = first.weights, second.weights
    body = [name for name in before if name.startswith("backbone.")]
    moved = [name for name in body if not torch.equal(after[name], before[name])]
    assert moved and all(name.startswith("backbone.layer3") for name in moved)


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_a_run_with_replay_moves_less_the_stronger_the_rollback(bench, scenario) -> None:
    """Three tasks, so that heads grow and old ones get gradients in some steps only."""
    bench.scenario = scenario
    moved = []
    for iota in (0.0, 0.05, 0.5):
        olor = {"iota1": iota, "iota2": iota, "anchor_old_head_rows": True}
        moved.append(bench.stream(3, **build_recipe(olor, "er")).result["update_norm"]["backbone"])
    assert moved[0] > moved[1] > moved[2] > 0


def test_the_pretrained_anchor_is_an_uploaded_base_or_another_models_backbone(
    bench, tmp_path
) -> None:
    lender = bench.learn_task(1, **build_recipe())
    wanted = lender.tensors("backbone.1")
    upload = tmp_path / "base.safetensors"
    save_file({name.removeprefix("backbone."): t for name, t in wanted.items()}, upload)
    lent = [part for part in lender.as_parent()["parts"] if part["type"] == "backbone"]
    for parts in ([{"name": "base", "type": "base", "path": str(upload)}], lent):
        base = {"version": 0, "manifest": {"classes": [], "heads": []}, "parts": parts}
        spec = {**bench.spec(1, None, **build_recipe()), "parent": base, "base": base}
        spec = {
            **bench.spec(2, bench.learn(spec), **build_recipe({**HOLD, "anchor": "pretrained"})),
            "base": base,
        }
        held = bench.learn(spec).tensors("backbone.1")
        assert all(torch.equal(held[name], tensor) for name, tensor in wanted.items())


@pytest.mark.parametrize(
    ("depth", "olor", "idle"),
    [
        (1, {}, True),
        (1, {"anchor_old_head_rows": True}, False),
        (2, {}, True),  # the last layer alone, whose share is iota2
        (2, {"iota2": 0.1}, False),
        (3, {}, False),
    ],
)
def test_olor_says_when_it_rolls_nothing_back(bench, depth, olor, idle) -> None:
    bench.architecture = {"name": "mlp", "hidden": [6, 6]}
    first = bench.learn_task(1, **build_recipe())
    learned = bench.learn_task(2, first, depth=depth, **build_recipe(olor))
    plain = bench.learn_task(2, first, depth=depth, **build_recipe())
    said = [text for text in learned.result["warnings"] if "OLOR rolls nothing back" in text]
    assert len(said) == idle and all(f"depth {depth}" in text for text in said)
    assert (learned.network_digests == plain.network_digests) is idle


def test_a_warm_up_of_the_head_alone_is_not_taken_for_idle(bench) -> None:
    learned = bench.learn_task(1, **build_recipe({}, {"name": "lwf", "warmup_epochs": 1}))
    assert not [text for text in learned.result["warnings"] if "nothing back" in text]


@pytest.mark.parametrize("anchor", ["update_start", "pretrained"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_killed_run_ends_with_the_bits_of_an_undisturbed_one(bench, anchor, optimizer) -> None:
    olor = {"iota1": 0.1, "iota2": 0.05, "anchor": anchor, "anchor_old_head_rows": True}
    rolled = build_recipe(olor, "er", name=optimizer, schedule="cosine", warmup_steps=3)
    first = bench.learn_task(1, **build_recipe(method="er"))
    undisturbed = bench.learn_task(2, first, **rolled)
    assert bench.resumed(2, first, 5, 7, **rolled).digests == undisturbed.digests
