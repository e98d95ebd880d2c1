"""How much may move: parameters outside the depth, and their statistics, stay bit for bit (methods §3.5)."""

import pytest
import torch

from core.learn.methods.finetune import Finetune


@pytest.fixture
def deep(bench):
    bench.architecture, bench.size, bench.n = {"name": "resnet20"}, 8, 10
    return bench


def state(learned):
    return {name: t for p in learned.result["parts"] for name, t in learned.tensors(p["name"]).items()}


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("number", [1, 2])
def test_what_the_depth_leaves_out_is_unchanged_buffers_included(deep, depth, number) -> None:
    from core.learn.networks import HeadSpec, ImageSpec, build_network

    parent = deep.learn(deep.spec(1, None, method="finetune")) if number == 2 else None
    learned = deep.learn(deep.spec(number, parent, method="finetune", depth=depth))
    network = build_network({"name": "resnet20"}, ImageSpec(8, 1), "class", HeadSpec(), 5)
    before = state(parent) if parent else network.state_dict()
    moving = network.trainable_names(depth)
    after = state(learned)
    moved = [n for n in before if n.startswith("backbone.") and not torch.equal(before[n], after[n])]
    statistics = [n for n in moved if n not in dict(network.named_parameters())]
    assert set(moved) - set(statistics) <= moving
    if number == 2:
        assert not statistics  # all BatchNorm is fixed after the first update
    groups = network.depth_groups()
    frozen = {name for group in groups[depth:] for name in group}
    assert not set(statistics) & frozen


def test_depth_five_is_the_unrestricted_run(deep) -> None:
    default = deep.learn(deep.spec(1, None, method="finetune"))
    assert deep.learn(deep.spec(1, None, method="finetune", depth=5)).digests == default.digests


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("decay", "same"), [(0.0, True), (0.01, False)])
def test_filtering_equals_masked_gradients_without_weight_decay_only(
    bench, monkeypatch, optimizer, decay, same
) -> None:
    recipe = {"method": "finetune", "optimizer": {"name": optimizer, "lr": 0.01, "weight_decay": decay}}
    parent = bench.learn(bench.spec(1, None, method="finetune"))
    filtered = bench.learn(bench.spec(2, parent, depth=1, **recipe))

    def project(self, ctx):
        for name, parameter in ctx.trainable.items():
            if name.startswith("backbone."):
                parameter.grad.zero_()

    monkeypatch.setattr(Finetune, "project", project)
    masked = bench.learn(bench.spec(2, parent, **recipe))
    assert (masked.network_digests == filtered.network_digests) is same


def test_a_head_of_its_own_rate_moves_at_it(bench) -> None:
    slow = bench.learn(bench.spec(1, None, method="finetune", optimizer={"head_lr": 1e-9}))
    assert float(slow.tensors("head")["head.weight"].abs().max()) < 1e-6


def test_a_linear_probe_moves_the_head_and_no_stage_is_stored_anew(bench) -> None:
    first = bench.learn(bench.spec(1, None, preset="linear-probe"))
    second = bench.learn(bench.spec(2, first, preset="linear-probe"))
    changed = {n for n, d in second.network_digests.items() if first.digests[n] != d}
    assert changed == {"head"}
