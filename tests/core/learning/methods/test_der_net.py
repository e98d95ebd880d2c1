"""Dynamically expandable representation: how a backbone is added, its two losses, and what
stays.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from streams import Script, spy_on_calls, spy_on_losses
from torch.nn import functional

from core.learning.memory.exemplars import ExemplarBuffer
from core.learning.memory.rehearsal import draw_exemplars_to_add_to_batch
from core.learning.methods.der_net import DerNetMethod
from core.learning.methods.expanding import CLASSIFIER, EXPERT


def test_a_new_backbone_starts_as_a_copy_of_the_one_before(bench, monkeypatch) -> None:
    second = bench.stream(2, method="der-net")
    seen = spy_on_calls(
        monkeypatch,
        DerNetMethod,
        "begin_stage",
        lambda result, method, ctx: {
            n: p.detach().clone() for n, p in ctx.network.named_parameters()
        },
    )
    bench.learn_task(3, second, method="der-net")
    newest = {
        n.removeprefix("experts.1."): p for n, p in seen[0].items() if n.startswith("experts.1.")
    }
    before = {n.removeprefix("experts.0."): t for n, t in second.tensors("expert.2").items()}
    assert newest.keys() == before.keys() and all(torch.equal(newest[n], before[n]) for n in before)


def test_older_backbones_are_the_same_bytes_in_every_later_version(bench) -> None:
    first, second, third = bench.learn_tasks(3, method="der-net")
    assert third.digests["expert.2"] == second.digests["expert.2"]
    kept = [name for name in first.digests if name.startswith("backbone")]
    assert kept and all(third.digests[name] == first.digests[name] for name in kept)
    assert third.result["network"] == {"family": "der-net", "experts": 2}


def test_its_losses_are_cross_entropies_over_all_classes_and_of_the_new_backbone(
    bench, monkeypatch
) -> None:
    found = []

    def record_expected_losses(method, ctx, batch, terms):
        if ctx.task == 1 or ctx.stage != EXPERT or found:
            return
        share = draw_exemplars_to_add_to_batch(ctx, ExemplarBuffer(method.state["exemplars"]))
        x, y = torch.cat([batch.x, share[0]]), torch.cat([batch.y, share[1]])
        with torch.no_grad():
            task = functional.cross_entropy(ctx.network(x), y)
            newest = ctx.network.features(x)[:, ctx.network.head.widths[0] :]
            target = torch.tensor([{0: 0, 1: 0, 2: 1, 3: 2}[int(label)] for label in y])
            own = functional.cross_entropy(ctx.network.auxiliary(newest), target)
        found.append((terms, {"task": task, "auxiliary": 0.5 * own}))

    spy_on_losses(monkeypatch, DerNetMethod, record_expected_losses)
    bench.stream(2, method={"name": "der-net", "expertise": 0.5})
    ((terms, wanted),) = found
    assert {n: float(t.detach()) for n, t in terms.items()} == pytest.approx(
        {n: float(t) for n, t in wanted.items()}, rel=1e-6
    )


def test_the_classifier_is_tuned_at_a_temperature(bench, monkeypatch) -> None:
    def check_tempered_loss(found, method, logits, y):
        assert torch.equal(found, functional.cross_entropy(logits / 5, y))
        return found

    losses = spy_on_calls(
        monkeypatch, DerNetMethod, "compute_head_tuning_loss", check_tempered_loss
    )
    terms_of = spy_on_losses(
        monkeypatch, DerNetMethod, lambda method, ctx, batch, terms: (ctx.stage, terms["task"])
    )
    bench.stream(2, method={"name": "der-net", "tuning_epochs": 1})
    tuned = [term for stage, term in terms_of if stage == CLASSIFIER]
    assert losses and all(torch.equal(*pair) for pair in zip(losses, tuned, strict=True))


def test_a_masked_loss_is_told_to_have_no_effect(bench) -> None:
    second = bench.stream(2, method="der-net", train_ce="masked")
    assert second.warns("train_ce masked has no effect")


def test_its_exemplars_are_shared_out_over_the_classes(bench) -> None:
    learned = bench.stream(3, method={"name": "der-net", "exemplars": 13})
    held = learned.tensors("exemplars")
    assert torch.bincount(held["labels"]).tolist() == [2] * 6


def test_a_snapshot_that_calls_the_auxiliary_classifier_expertise_resumes_to_the_same_bits(
    bench,
) -> None:
    recipe = {"method": "der-net", "validation": 0.2, "optimizer": {"name": "adam", "lr": 0.01}}
    first, undisturbed = bench.learn_tasks(2, **recipe)
    again = bench.killed(bench.spec(2, first, **recipe), Script([3], 5))
    path = Path(again["snapshot"]) / "tensors.safetensors"
    tensors = {name.replace("/auxiliary.", "/expertise."): t for name, t in load_file(path).items()}
    assert {"net/expertise.weight", "optimizer/expertise.weight|exp_avg"} <= tensors.keys()
    save_file(tensors, path)
    assert bench.learn(again).digests == undisturbed.digests
