"""ER, DER and DER++: what they replay, what they store, and what each loss term is."""

import itertools
import math
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from streams import Bench, spy_on_calls, spy_on_losses
from torch.nn import functional

from core.learning.memory.replay import (
    compute_replay_cross_entropy,
    compute_replay_logits_squared_error,
)
from core.learning.memory.reservoir import ReservoirBuffer
from core.learning.methods import registry
from core.learning.methods.replay.der_pp import DarkExperienceReplayPlusPlus
from core.learning.methods.replay.er import ExperienceReplay
from core.learning.state import load_tensors
from core.learning.training.context import TaskTrainingContext

BUFFERED = ("er", "er-ace", "der", "der++", "gem", "a-gem")
FOR_EVERY_NETWORK = [
    name for name, method in registry.METHODS.items() if method.accepts.architectures is None
]


def spy_on_loss_terms(monkeypatch, method):
    """Record the loss terms of every step, in order."""
    return spy_on_losses(
        monkeypatch,
        method,
        lambda _, ctx, batch, terms: {n: float(v.detach()) for n, v in terms.items()},
    )


def spy_on_draws(monkeypatch):
    """Record the items of every draw, in order."""
    return spy_on_calls(
        monkeypatch,
        ReservoirBuffer,
        "draw_items_and_augmentation_numbers",
        lambda drawn, *_: drawn[0],
    )


def test_the_first_batch_of_the_stream_is_plain_training(bench, monkeypatch) -> None:
    steps = spy_on_loss_terms(monkeypatch, DarkExperienceReplayPlusPlus)
    bench.learn_task(1, method="der++")
    assert set(steps[0]) == {"task"} and set(steps[1]) == {"task", "logits", "labels"}


def test_without_beta_it_is_der_draw_for_draw(bench, monkeypatch) -> None:
    steps = spy_on_loss_terms(monkeypatch, DarkExperienceReplayPlusPlus)
    pp = bench.stream(2, method={"name": "der++", "alpha": 0.3, "beta": 0.0})
    assert set(steps[-1]) == {"task", "logits"}
    der = bench.stream(2, method="der")
    digests = [{k: v for k, v in run.digests.items() if k != "result.json"} for run in (der, pp)]
    assert digests[0] == digests[1] and "buffer" in digests[0]


def test_logits_and_labels_come_from_two_independent_draws(bench, monkeypatch) -> None:
    draws = spy_on_draws(monkeypatch)
    bench.learn_task(1, method="der++")
    pairs = list(zip(draws[::2], draws[1::2], strict=True))
    assert len(pairs) == 11 and not all(torch.equal(a.images, b.images) for a, b in pairs)


def test_with_shared_draws_both_terms_are_of_one_draw(bench, monkeypatch) -> None:
    draws = spy_on_draws(monkeypatch)
    first = bench.learn_task(1, method={"name": "der++", "draws": "shared"})
    assert len(draws) == 11  # one a step from the second on
    draws.clear()

    def compute_largest_difference(method, ctx, batch, terms):
        (items,) = draws
        draws.clear()
        x = ctx.inputs(items.images)
        wanted = {
            "logits": method.hyper.alpha
            * compute_replay_logits_squared_error([(None, ctx.network(x))], items.logits),
            "labels": method.hyper.beta * functional.cross_entropy(ctx.network(x), items.labels),
        }
        return max(float((terms[name] - value).detach().abs()) for name, value in wanted.items())

    checked = spy_on_losses(monkeypatch, DarkExperienceReplayPlusPlus, compute_largest_difference)
    bench.learn_task(2, first, method={"name": "der++", "draws": "shared"}, augment="none")
    assert len(checked) == 12 and max(checked) < 1e-5


@pytest.mark.parametrize("hyper", [{"alpha": 0.0, "beta": 0.0}, {"beta": 0.0}, {"alpha": 0.0}])
def test_with_a_single_replayed_term_shared_draws_change_no_bit(bench, hyper) -> None:
    found = [
        bench.stream(2, method={"name": "der++", "draws": draws, **hyper}, epochs=1).network_digests
        for draws in ("separate", "shared")
    ]
    assert found[0] == found[1]


def test_er_is_one_mean_over_the_batch_and_the_replayed_items(bench, monkeypatch) -> None:
    first = bench.learn_task(1, method="er")
    draws = spy_on_draws(monkeypatch)
    logits = spy_on_calls(monkeypatch, ExperienceReplay, "forward", lambda found, *_: found)

    def compute_loss_difference(method, ctx, batch, terms):
        labels = torch.cat([batch.y, *[items.labels for items in draws]])
        draws.clear()
        assert labels.shape == logits[-1].shape[:1]
        return float((terms["task"] - functional.cross_entropy(logits[-1], labels)).detach())

    checked = spy_on_losses(monkeypatch, ExperienceReplay, compute_loss_difference)
    bench.learn_task(2, first, method="er")
    assert len(checked) == 12 and max(map(abs, checked)) < 1e-6


def test_with_alpha_zero_the_loss_is_the_cross_entropies_of_batch_and_buffer(
    bench, monkeypatch
) -> None:
    seen = []
    original = DarkExperienceReplayPlusPlus.compute_loss_terms

    def compute_loss_terms(self, ctx, batch):
        state = self.state["buffer"].get_random_generator("reservoir", 0).get_state()
        terms = original(self, ctx, batch)
        if "labels" in terms:
            self.state["buffer"].get_random_generator("reservoir", 0).set_state(state)
            items, _ = self._open_reservoir(ctx).draw_items_and_augmentation_numbers(
                ctx.recipe.batch_size
            )
            pairs = ((batch.x, batch.y), (ctx.inputs(items.images), items.labels))
            wanted = sum(functional.cross_entropy(ctx.network(x), y) for x, y in pairs)
            seen.append((float(sum(terms.values()).detach()), float(wanted.detach())))
            assert set(terms) == {"task", "labels"}
        return terms

    monkeypatch.setattr(DarkExperienceReplayPlusPlus, "compute_loss_terms", compute_loss_terms)
    bench.learn_task(1, method={"name": "der++", "alpha": 0.0, "beta": 1.0}, augment="none")
    assert seen and all(got == pytest.approx(wanted, rel=1e-5) for got, wanted in seen)


@pytest.mark.parametrize("name", ["der", "der++"])
def test_stored_logits_are_those_of_the_training_forward_before_the_step(
    bench, monkeypatch, name
) -> None:
    method = registry.get_method(name)

    def look_before(kind, ctx, batch, terms):
        with torch.no_grad():  # the augmented view, at the weights before the step
            return ctx.network(batch.x)

    def look_after(result, kind, ctx, batch):
        held = kind.state["buffer"].tensors["logits"][-len(batch.y) :]
        return held, before[-1], ctx.network(batch.x)

    before = spy_on_losses(monkeypatch, method, look_before)
    stored = spy_on_calls(monkeypatch, method, "after_step", look_after)
    bench.learn_task(1, method=name, augment="shift", epochs=1)
    assert torch.equal(*stored[0][:2])
    assert len(stored) == 6 and all(
        torch.allclose(held, wanted, atol=1e-6) for held, wanted, _ in stored
    )
    assert not any(torch.allclose(held, later, atol=1e-4) for held, _, later in stored)


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_one_forward_pass_for_all_gives_the_terms_of_one_for_each(
    tmp_path, monkeypatch, scenario
) -> None:
    bench = Bench(tmp_path, scenario)
    first = bench.learn_task(1, method="der++")
    steps = spy_on_loss_terms(monkeypatch, DarkExperienceReplayPlusPlus)
    bench.learn_task(2, first, method="der++", epochs=1)
    monkeypatch.setattr(TaskTrainingContext, "are_image_outputs_independent", False)
    bench.learn_task(2, first, method="der++", epochs=1)
    joint, single = steps[: len(steps) // 2], steps[len(steps) // 2 :]
    assert [pytest.approx(terms, rel=1e-4) for terms in single] == joint


def test_items_beside_a_training_batch_norm_go_through_it_alone(tmp_path, monkeypatch) -> None:
    bench = Bench(tmp_path, architecture={"name": "resnet20"}, size=8, n=8)

    def read_mode_and_batch_size(logits, method, net, x, task):
        return net.training, len(x)

    seen = spy_on_calls(
        monkeypatch, DarkExperienceReplayPlusPlus, "forward", read_mode_and_batch_size
    )
    first = bench.learn_task(1, method="der++", epochs=1)
    bench.learn_task(2, first, method="der++", epochs=1)
    # the first batch, the second with its two draws, and all together once statistics are fixed
    assert [size for training, size in seen if training] == [4, 4, 4, 4, 12, 12]


@pytest.mark.parametrize("name", ["der", "der++"])
def test_a_single_item_beside_a_training_batch_norm_is_no_trouble(tmp_path, name) -> None:
    # at 8 pixels this network ends in maps of 1 × 1: one value per channel, of which there is no
    # variance
    bench = Bench(tmp_path, architecture={"name": "slim-resnet18"}, size=8, n=8)
    learned = bench.learn_task(1, method={"name": name, "buffer": 1}, epochs=1)
    assert learned.tensors("buffer")["labels"].numel() == 1


def test_the_buffer_holds_raw_images_and_never_the_current_batch(bench, monkeypatch) -> None:
    def read_offered_and_batch_size(method, ctx, batch, terms):
        return method._open_reservoir(ctx).offered_count, len(batch.y)

    seen = spy_on_losses(monkeypatch, DarkExperienceReplayPlusPlus, read_offered_and_batch_size)
    learned = bench.learn_task(1, method="der++")
    assert [offered for offered, _ in seen] == [0, *accumulate(size for _, size in seen[:-1])]
    originals = load_tensors(Path(learned.spec["task"]["train"]))["images"]
    for image in learned.tensors("buffer")["images"]:
        assert any(torch.equal(image, other) for other in originals)


def test_er_offers_each_item_once_and_der_in_every_epoch(bench) -> None:
    for name, epochs in (("er", 1), ("der++", 2)):
        learned = bench.learn_task(1, method=name)
        assert learned.result["method"]["state"]["buffer"]["seen"] == bench.n * epochs


def test_old_heads_are_trained_by_replay_of_their_own_items(tmp_path, monkeypatch) -> None:
    bench = Bench(tmp_path, "task")
    first, second = bench.learn_tasks(2, method="der++")
    assert not torch.equal(
        first.tensors("head.1")["heads.1.weight"], second.tensors("head.1")["heads.1.weight"]
    )


def test_heads_of_old_tasks_may_be_drawn_for_the_first_time_in_any_step(tmp_path) -> None:
    for method in ({"name": "er", "replay_batch": 1}, {"name": "der++", "replay_batch": 1}):
        bench = Bench(tmp_path / method["name"], "task")
        last = bench.stream(3, method=method, optimizer={"carry_state": True})
        assert {"head.1", "head.2", "head.3"} <= set(last.network_digests)


def test_replay_leaves_batch_statistics_alone(tmp_path) -> None:
    """With the replay losses weighted to nearly nothing, BatchNorm buffers are those of plain
    training.
    """
    bench = Bench(tmp_path, architecture={"name": "resnet20"}, size=8, n=8)
    recipe = {"epochs": 2, "batch_size": 4}
    recipe["optimizer"] = {"lr": 1e-30, "momentum": 0.0}
    plain = bench.learn_task(1, method="finetune", **recipe)
    ours = bench.learn_task(1, method="der++", **recipe)
    for part in (p["name"] for p in plain.result["parts"]):
        for name, value in plain.tensors(part).items():
            if "running" in name or "num_batches" in name:
                assert torch.equal(ours.tensors(part)[name], value), name


def test_distillation_has_zero_as_target_of_units_that_came_later() -> None:
    now = torch.tensor([[1.0, 2.0, 9.0], [0.0, 0.0, 5.0]])
    stored = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    assert float(compute_replay_logits_squared_error([(None, now)], stored)) == pytest.approx(
        (1 + 4 + 81 + 1 + 25) / 6
    )


def test_distillation_over_heads_counts_each_items_own_units() -> None:
    narrow, wide = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0, 3.0]])
    stored = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    groups = [(torch.tensor([1]), narrow), (torch.tensor([0]), wide)]
    assert float(compute_replay_logits_squared_error(groups, stored)) == pytest.approx(
        (1 + 4 + 4) / 5
    )


def test_distillation_of_one_width_is_the_mean_squared_error() -> None:
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    assert torch.allclose(
        compute_replay_logits_squared_error([(None, a)], b), functional.mse_loss(a, b)
    )


@pytest.mark.slow
def test_der_remembers_digits_in_one_head(tmp_path) -> None:
    bench = Bench(tmp_path, architecture={"name": "mlp", "hidden": [64]}, size=8)
    bench.show_digits()
    rows = bench.stream(3, method="der", epochs=20, batch_size=32).result["results"]
    new = [row for row in rows if row["version"] == "new"]
    assert sum(row["correct"] for row in new) > 0.6 * sum(row["total"] for row in new)


def test_cross_entropy_over_heads_is_the_mean_over_items() -> None:
    a, b = torch.randn(2, 3), torch.randn(1, 5)
    labels = torch.tensor([0, 4, 2])
    groups = [(torch.tensor([0, 2]), a), (torch.tensor([1]), b)]
    wanted = (
        functional.cross_entropy(a, labels[[0, 2]], reduction="sum")
        + functional.cross_entropy(b, labels[[1]])
    ) / 3
    assert torch.allclose(compute_replay_cross_entropy(groups, labels), wanted)


CYCLE = list(itertools.pairwise([*BUFFERED, BUFFERED[0]]))
"""Each method takes over and is taken over once, with and without logits on both sides."""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(*pair, marks=() if pair in CYCLE else pytest.mark.campaign)
        for pair in itertools.permutations(BUFFERED, 2)
    ],
)
def test_methods_with_a_buffer_take_over_each_others(bench, before, after) -> None:
    first = bench.learn_task(1, method=before, epochs=1)
    second = bench.learn_task(2, first, method=after, epochs=1)
    assert not second.result["warnings"]
    buffer = second.tensors("buffer")
    assert set(buffer["tasks"].tolist()) == {1, 2}
    assert ("logits" in buffer) is after.startswith("der")


def test_a_buffer_that_is_not_taken_over_is_warned_of(bench) -> None:
    first = bench.learn_task(1, method="der++")
    second = bench.learn_task(2, first, method="finetune")
    assert "unprotected" in second.result["warnings"][0]


@pytest.mark.parametrize("scenario", ["data", "task", "class"])
def test_items_without_logits_get_those_of_the_parent(tmp_path, monkeypatch, scenario) -> None:
    bench, found = Bench(tmp_path, scenario), {}
    first = bench.learn_task(1, method="er")
    begin = DarkExperienceReplayPlusPlus.begin_task

    def begin_task(self, ctx):
        begin(self, ctx)
        held = self.state["buffer"].tensors
        with torch.no_grad():
            logits = ctx.network(ctx.inputs(held["images"]), 1 if scenario == "task" else None)
        found.update(stored=held["logits"], wanted=logits, widths=set(held["widths"].tolist()))

    monkeypatch.setattr(DarkExperienceReplayPlusPlus, "begin_task", begin_task)
    steps = spy_on_loss_terms(monkeypatch, DarkExperienceReplayPlusPlus)
    bench.learn_task(2, first, method="der++")
    assert torch.allclose(found["stored"], found["wanted"][:, :2], atol=1e-6)
    assert found["widths"] == {2} and float(found["stored"].abs().max()) > 0.1
    assert steps[-1]["logits"] > 0


def test_each_example_counts_the_same_however_often_its_task_offered_it(bench) -> None:
    seen, last = [], None
    stream = (("der", 3), ("er", 5), ("der++", 2), ("gem", 2), ("der", 1))
    for number, (name, epochs) in enumerate(stream, 1):
        method = {"name": name, "memory": 3} if name == "gem" else {"name": name, "buffer": 10}
        last = bench.learn_task(number, last, method=method, epochs=epochs)
        seen.append(last.result["method"]["state"]["buffer"]["seen"] / bench.n)
    assert seen == [1 * 3, 2, 3 * 2, 4, 5]


def test_items_of_erased_tasks_are_not_in_the_next_buffer(bench) -> None:
    first = bench.learn_task(1, method="er")
    second = bench.learn({**bench.spec(2, first, method="er"), "erased_tasks": [1]})
    assert set(second.tensors("buffer")["tasks"].tolist()) == {2}


@pytest.mark.parametrize("after", BUFFERED)
def test_a_buffer_that_erasing_has_emptied_fills_again(bench, after) -> None:
    first = bench.learn_task(1, method="er", epochs=1)
    second = bench.learn({**bench.spec(2, first, method=after, epochs=1), "erased_tasks": [1]})
    assert second.tensors("buffer")["tasks"].tolist() == [2] * bench.n


@pytest.mark.parametrize(
    "name", [name for name in FOR_EVERY_NETWORK if name not in ("dlcft", "der-net", "analytic")]
)
def test_a_masked_loss_sees_new_units_alone_and_replay_all(bench, monkeypatch, name) -> None:
    """The others say that it has no effect."""
    first = bench.learn_task(1, method=name, train_ce="masked")
    steps = spy_on_loss_terms(monkeypatch, registry.get_method(name))
    second = bench.learn_task(2, first, method=name, train_ce="masked")
    share = (
        0.5 if name in ("er", "icarl", "lwf") else 1.0
    )  # of the batch, of the units, or of the classes, that is new
    assert steps[0]["task"] == pytest.approx(share * math.log(2))  # two new rows, still zero
    old, new = (learned.tensors("head")["head.weight"] for learned in (first, second))
    assert torch.equal(new[:2], old) is (name not in (*BUFFERED, "lwf", "icarl", "slca"))
