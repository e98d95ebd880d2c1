"""The stage that rebalances the head: what it draws, what it moves, and the same steps written out
in float64.
"""

import math
from typing import Any

import pytest
import torch
from streams import Bench, Learned

from core.learning.methods.expanding import ExpandingMethod
from core.learning.methods.replay.icarl import IcarlMethod
from core.learning.training import rebalance

EPOCHS, BATCH = 3, 6


class Watched:
    """The pool of a run, the head before the stage, and the rows of each step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[torch.Tensor] = []
        pool, terms_of = (
            rebalance.build_rebalance_pool,
            rebalance.RebalancingStageMethod.compute_loss_terms,
        )

        def watched_pool(ctx: Any, *rest: Any) -> Any:
            self.pool = pool(ctx, *rest)
            self.head = {n: p.detach().clone() for n, p in ctx.network.head.named_parameters()}
            self.features = self.pool._features.clone()
            return self.pool

        def compute_loss_terms(this: Any, ctx: Any, batch: Any) -> Any:
            self.rows.append(batch.index)
            return terms_of(this, ctx, batch)

        monkeypatch.setattr(rebalance, "build_rebalance_pool", watched_pool)
        monkeypatch.setattr(
            rebalance.RebalancingStageMethod, "compute_loss_terms", compute_loss_terms
        )


def learn_second_task(bench: Bench, **recipe: Any) -> tuple[Learned, Learned]:
    """Learn two tasks, and return the second task's run, then the first's."""
    settings = {"method": "er", "batch_size": BATCH, **recipe}
    first = bench.learn_task(1, **{**settings, "rebalance": None})
    return bench.learn_task(2, first, **settings), first


def test_the_head_ends_where_a_slow_loop_in_float64_does(tmp_path, monkeypatch) -> None:
    seen = Watched(monkeypatch)
    bench = Bench(tmp_path)
    run, _ = learn_second_task(
        bench,
        rebalance={"epochs": EPOCHS, "lr": 0.2},
        optimizer={"momentum": 0.9, "weight_decay": 0.01},
    )
    weight, bias = (seen.head[name].double() for name in ("weight", "bias"))
    speed = [torch.zeros_like(weight), torch.zeros_like(bias)]
    assert len(seen.rows) == EPOCHS * math.ceil(bench.n / BATCH)
    for step, rows in enumerate(seen.rows):
        rate = 0.2 * (1 + math.cos(math.pi * step / len(seen.rows))) / 2
        phi, labels = seen.features[rows].double(), seen.pool.labels[rows]
        error = (phi @ weight.T + bias).softmax(1)
        error[torch.arange(len(rows)), labels] -= 1
        gradients = [
            error.T @ phi / len(rows) + 0.01 * weight,
            error.sum(0) / len(rows) + 0.01 * bias,
        ]
        speed = [0.9 * v + g for v, g in zip(speed, gradients, strict=True)]
        weight, bias = weight - rate * speed[0], bias - rate * speed[1]
    found = run.tensors("head")
    torch.testing.assert_close(found["head.weight"].double(), weight, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found["head.bias"].double(), bias, rtol=1e-4, atol=1e-6)


def test_every_batch_has_an_equal_share_of_each_class_however_few_are_remembered(
    tmp_path, monkeypatch
) -> None:
    seen = Watched(monkeypatch)
    learn_second_task(
        Bench(tmp_path), method={"name": "er", "buffer": 8}, rebalance={"epochs": 2}, batch_size=8
    )
    assert int((seen.pool.labels < 2).sum()) < 8  # some places of the buffer are of the new task
    for rows in seen.rows:
        counts = torch.bincount(seen.pool.labels[rows], minlength=4)[seen.pool.labels.unique()]
        assert int(counts.max() - counts.min()) <= 1 and int(counts.sum()) == 8


def test_the_pool_has_as_many_new_images_as_remembered_ones(tmp_path, monkeypatch) -> None:
    seen = Watched(monkeypatch)
    learn_second_task(Bench(tmp_path), method={"name": "gem", "memory": 8}, rebalance={"epochs": 1})
    assert torch.bincount(seen.pool.labels).tolist()[2:] == [4, 4]
    assert int((seen.pool.labels < 2).sum()) == 8


def test_only_the_head_moves_and_nothing_else_is_remembered(tmp_path) -> None:
    bench = Bench(tmp_path)
    with_stage, first = learn_second_task(bench, rebalance={"epochs": 2})
    without = bench.learn_task(2, first, method="er", batch_size=BATCH)
    changed = {n for n, digest in with_stage.digests.items() if without.digests[n] != digest}
    assert {n for n in changed if not n.startswith("answers/")} == {"head", "result.json"}


def test_the_first_task_has_nothing_to_be_balanced_with(tmp_path) -> None:
    bench = Bench(tmp_path)
    with_stage, without = (bench.learn_task(1, rebalance=r) for r in ({"epochs": 2}, None))
    assert with_stage.digests == without.digests


def test_killed_after_the_last_step_of_training_it_ends_with_the_same_bits(tmp_path) -> None:
    bench = Bench(tmp_path)
    undisturbed, first = learn_second_task(bench, rebalance={"epochs": 1})
    steps = undisturbed.result["steps"]
    at = steps - math.ceil(bench.n / BATCH)
    recipe = {"method": "er", "batch_size": BATCH, "rebalance": {"epochs": 1}}
    assert bench.resumed(2, first, at, at + 1, **recipe).digests == undisturbed.digests


def test_without_remembered_images_the_stage_is_left_out_with_a_warning(tmp_path) -> None:
    bench = Bench(tmp_path)
    first = bench.learn_task(1, method="finetune")
    plain, asked = (bench.learn_task(2, first, method="er", rebalance=r) for r in (None, {}))
    assert asked.network_digests == plain.network_digests
    assert asked.warns("remembers no image of an earlier task")


def test_methods_are_rebalanced_by_the_loss_of_their_own_classifier(tmp_path, monkeypatch) -> None:
    used: list[str] = []
    for kind, name in ((IcarlMethod, "icarl"), (ExpandingMethod, "expanding")):
        monkeypatch.setattr(
            kind,
            "compute_head_tuning_loss",
            _record_use(kind.compute_head_tuning_loss, name, used),
            raising=True,
        )
    learn_second_task(Bench(tmp_path), method="icarl", rebalance={"epochs": 1})
    assert used == ["icarl"] * math.ceil(22 / BATCH)


def _record_use(loss: Any, name: str, used: list[str]) -> Any:
    def tuning_loss(self: Any, logits: Any, y: Any) -> Any:
        used.append(name)
        return loss(self, logits, y)

    return tuning_loss
