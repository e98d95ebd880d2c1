"""ER and DER++: what they replay, what they store, and what each loss term is."""

import math
from pathlib import Path

import pytest
import torch
from streams import Bench
from torch.nn import functional

from core.learn import methods
from core.learn.memory.replay import items_cross_entropy, items_distillation
from core.learn.methods.der_pp import DerPlusPlus
from core.learn.state import load_tensors


def recorded(monkeypatch, method):
    """Loss terms of every step, in order."""
    steps, original = [], method.loss_terms

    def loss_terms(self, ctx, batch):
        terms = original(self, ctx, batch)
        steps.append({name: float(value.detach()) for name, value in terms.items()})
        return terms

    monkeypatch.setattr(method, "loss_terms", loss_terms)
    return steps


def test_the_first_batch_of_the_stream_is_plain_training(bench, monkeypatch) -> None:
    steps = recorded(monkeypatch, DerPlusPlus)
    bench.learn(bench.spec(1, None, method="der++"))
    assert set(steps[0]) == {"task"} and set(steps[1]) == {"task", "logits", "labels"}


def test_without_beta_only_logits_are_replayed(bench, monkeypatch) -> None:
    steps = recorded(monkeypatch, DerPlusPlus)
    bench.learn(bench.spec(1, None, method={"name": "der++", "beta": 0.0}))
    assert set(steps[-1]) == {"task", "logits"}


def test_with_alpha_zero_the_loss_is_the_cross_entropies_of_batch_and_buffer(bench, monkeypatch) -> None:
    seen = []
    original = DerPlusPlus.loss_terms

    def loss_terms(self, ctx, batch):
        state = self.state["buffer"].generator("reservoir", 0).get_state()
        terms = original(self, ctx, batch)
        if "labels" in terms:
            self.state["buffer"].generator("reservoir", 0).set_state(state)
            items, _ = self._reservoir(ctx).draw(ctx.recipe.batch_size)
            x = ctx.inputs(items.images)
            wanted = functional.cross_entropy(ctx.network(x), items.labels)
            seen.append((float(terms["labels"].detach()), float(wanted.detach())))
            assert set(terms) == {"task", "labels"}
        return terms

    monkeypatch.setattr(DerPlusPlus, "loss_terms", loss_terms)
    bench.learn(bench.spec(1, None, method={"name": "der++", "alpha": 0.0, "beta": 1.0}, augment="none"))
    assert seen and all(got == pytest.approx(wanted, rel=1e-5) for got, wanted in seen)


def test_stored_logits_are_those_of_the_forward_that_trained_on_the_item(bench, monkeypatch) -> None:
    checked = []
    original = DerPlusPlus.after_step

    def after_step(self, ctx, batch):
        size = self._reservoir(ctx).size
        logits = ctx.scratch["logits"].clone()
        original(self, ctx, batch)
        if size == 0:
            checked.append(torch.equal(self.state["buffer"].tensors["logits"], logits))

    monkeypatch.setattr(DerPlusPlus, "after_step", after_step)
    bench.learn(bench.spec(1, None, method="der++"))
    assert checked == [True]


def test_the_buffer_holds_raw_images_and_never_the_current_batch(bench, monkeypatch) -> None:
    original = DerPlusPlus.loss_terms
    seen, sizes = [], []

    def loss_terms(self, ctx, batch):
        seen.append(self._reservoir(ctx).seen == sum(sizes))
        sizes.append(batch.y.shape[0])
        return original(self, ctx, batch)

    monkeypatch.setattr(DerPlusPlus, "loss_terms", loss_terms)
    learned = bench.learn(bench.spec(1, None, method="der++"))
    assert all(seen)
    originals = load_tensors(Path(learned.spec["task"]["train"]))["images"]
    for image in learned.tensors("buffer")["images"]:
        assert any(torch.equal(image, other) for other in originals)


def test_er_offers_each_item_once_and_der_in_every_epoch(bench) -> None:
    for name, epochs in (("er", 1), ("der++", 2)):
        learned = bench.learn(bench.spec(1, None, method=name))
        assert learned.result["method"]["state"]["buffer"]["seen"] == bench.n * epochs


def test_old_heads_are_trained_by_replay_of_their_own_items(tmp_path, monkeypatch) -> None:
    bench = Bench(tmp_path, "task")
    first = bench.learn(bench.spec(1, None, method="der++"))
    second = bench.learn(bench.spec(2, first, method="der++"))
    assert not torch.equal(
        first.tensors("head.1")["heads.1.weight"], second.tensors("head.1")["heads.1.weight"]
    )


def test_heads_of_old_tasks_may_be_drawn_for_the_first_time_in_any_step(tmp_path) -> None:
    for method in ({"name": "er", "replay_batch": 1}, {"name": "der++", "replay_batch": 1}):
        bench = Bench(tmp_path / method["name"], "task")
        last = bench.stream(3, method=method, optimizer={"carry_state": True})
        assert {"head.1", "head.2", "head.3"} <= set(last.network_digests)


def test_replay_leaves_batch_statistics_alone(tmp_path) -> None:
    """With the replay losses weighted to nearly nothing, BatchNorm buffers are those of plain training."""
    bench = Bench(tmp_path, architecture={"name": "resnet20"}, size=8, n=8)
    recipe = {"epochs": 2, "batch_size": 4}
    recipe["optimizer"] = {"lr": 1e-30, "momentum": 0.0}
    plain = bench.learn(bench.spec(1, None, method="finetune", **recipe))
    ours = bench.learn(bench.spec(1, None, method="der++", **recipe))
    for part in (p["name"] for p in plain.result["parts"]):
        for name, value in plain.tensors(part).items():
            if "running" in name or "num_batches" in name:
                assert torch.equal(ours.tensors(part)[name], value), name


def test_distillation_counts_the_units_that_existed_alone() -> None:
    logits = torch.tensor([[1.0, 2.0, 9.0], [0.0, 0.0, 5.0]])
    stored = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 5.0]])
    value = items_distillation([(None, logits)], stored, torch.tensor([2, 3]))
    assert float(value) == pytest.approx((1 + 4 + 1) / 5)


def test_distillation_of_one_width_is_the_mean_squared_error() -> None:
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    value = items_distillation([(None, a)], b, torch.full((4,), 3))
    assert torch.allclose(value, functional.mse_loss(a, b))


def test_cross_entropy_over_heads_is_the_mean_over_items() -> None:
    a, b = torch.randn(2, 3), torch.randn(1, 5)
    labels = torch.tensor([0, 4, 2])
    groups = [(torch.tensor([0, 2]), a), (torch.tensor([1]), b)]
    wanted = (
        functional.cross_entropy(a, labels[[0, 2]], reduction="sum")
        + functional.cross_entropy(b, labels[[1]])
    ) / 3
    assert torch.allclose(items_cross_entropy(groups, labels), wanted)


@pytest.mark.parametrize(("before", "after"), [("er", "der++"), ("der++", "er"), ("der++", "finetune")])
def test_a_change_of_method_takes_over_the_buffer_where_it_can(bench, before, after) -> None:
    first = bench.learn(bench.spec(1, None, method=before))
    second = bench.learn(bench.spec(2, first, method=after))
    warned = any("unprotected" in warning for warning in second.result["warnings"])
    assert warned is (after == "finetune")
    if after != "finetune":
        assert 1 in second.tensors("buffer")["tasks"].tolist()
        third = bench.learn(bench.spec(3, second, method=after))
        assert not third.result["warnings"]


def test_items_of_erased_tasks_are_not_in_the_next_buffer(bench) -> None:
    first = bench.learn(bench.spec(1, None, method="er"))
    second = bench.learn({**bench.spec(2, first, method="er"), "erased_tasks": [1]})
    assert set(second.tensors("buffer")["tasks"].tolist()) == {2}


@pytest.mark.parametrize("name", methods.METHODS)
def test_a_masked_loss_sees_new_units_alone_and_replay_all(bench, monkeypatch, name) -> None:
    first = bench.learn(bench.spec(1, None, method=name, train_ce="masked"))
    steps = recorded(monkeypatch, methods.get(name))
    second = bench.learn(bench.spec(2, first, method=name, train_ce="masked"))
    share = 0.5 if name == "er" else 1.0  # of the batch that is new
    assert steps[0]["task"] == pytest.approx(share * math.log(2))  # two new rows, still zero
    old, new = (learned.tensors("head")["head.weight"] for learned in (first, second))
    assert torch.equal(new[:2], old) is (name not in ("er", "der++"))
