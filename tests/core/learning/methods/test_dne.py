"""DNE: what moves in which stage, its three losses, its exemplars, and versions that never
change.
"""

import itertools

import pytest
import torch
from recipes import resolve_patch
from streams import Bench, spy_on_calls, spy_on_losses
from torch.nn import functional

from core.learning.memory.exemplars import ExemplarBuffer
from core.learning.memory.rehearsal import (
    choose_exemplars_by_herding,
    draw_exemplars_to_add_to_batch,
)
from core.learning.methods import dne, expanding, registry
from core.learning.methods.dne import DneMethod
from core.learning.methods.expanding import CLASSIFIER, EXPERT
from core.learning.networks import ImageSpec, build_network
from core.learning.networks.dne.network import DneNetwork
from core.learning.state import MethodState
from core.learning.training.context import TrainingBatch

SMALL = {"name": "dne", "layers": 2, "head_dim": 4, "heads": 2, "patch": 3}
FEW = {"name": "dne", "exemplars": 14}


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path, "class", SMALL)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three tasks as the defaults learn them, with 14 exemplars; no test changes them."""
    bench = Bench(tmp_path_factory.mktemp("three"), "class", SMALL)
    return bench.learn_tasks(3, method=FEW)


def load_deployed_network(learned):
    return learned.deployed()[0]


def collect_part_digests(learned):
    """Return the digest of every part that is not the classifier."""
    return {
        name: d for name, d in learned.digests.items() if name.startswith(("backbone", "expert"))
    }


# What moves.


def test_a_task_trains_its_expert_and_the_classifier_then_the_classifier_alone(
    bench, monkeypatch
) -> None:
    seen = {}
    spy_on_losses(
        monkeypatch,
        DneMethod,
        lambda method, ctx, batch, terms: seen.setdefault(
            (ctx.task, ctx.stage), set(ctx.trainable)
        ),
    )
    bench.stream(2, method={"name": "dne", "tuning_epochs": 1})
    head = {"head.weight", "head.bias"}
    assert {n.split(".")[0] for n in seen[1, EXPERT]} == {"backbone", "head"}
    assert {n.split(".")[0] for n in seen[2, EXPERT]} == {"experts", "auxiliary", "head"}
    assert seen[2, CLASSIFIER] == head and (1, CLASSIFIER) not in seen


@pytest.mark.slow
def test_shards_of_older_experts_are_the_same_bytes_in_every_later_version(three) -> None:
    found = [collect_part_digests(learned) for learned in three]
    assert set(found[0]) == {"backbone.1", "backbone.2"} and set(found[2]) == {
        *found[0],
        "expert.2",
        "expert.3",
    }
    for before, after in itertools.pairwise(found):
        assert all(after[name] == digest for name, digest in before.items())


def test_a_version_is_its_shards_and_a_classifier_and_nothing_of_training(three) -> None:
    learned = three[1]
    parts = {part["name"] for part in learned.result["parts"]}
    images = {"exemplars.images.1", "exemplars.images.2"}
    assert parts == {"backbone.1", "backbone.2", "expert.2", "head", "exemplars", *images}
    assert learned.result["network"] == {"family": "dne", "experts": [1]}


@pytest.mark.slow
def test_each_task_says_how_many_heads_its_expert_has(bench, three) -> None:
    second = bench.learn_task(2, three[0], method={"name": "dne", "heads": 2}, epochs=1)
    third = bench.learn_task(3, second, method={"name": "dne", "heads": 1}, epochs=1)
    assert third.result["network"]["experts"] == [2, 1]
    assert load_deployed_network(third).head.widths == [8, 8, 4]


# Losses.


def test_the_first_task_has_one_loss(bench, monkeypatch) -> None:
    seen = spy_on_losses(monkeypatch, DneMethod, lambda method, ctx, batch, terms: set(terms))
    bench.learn_task(1, method="dne")
    assert seen and all(names == {"task"} for names in seen)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["bce", "ce"])
def test_the_losses_are_those_of_the_paper_with_the_share_of_old_classes(
    bench, monkeypatch, loss
) -> None:
    """Two old and two new classes: λ = 1/2. Without dropped branches, from logits of whole
    passes.
    """
    seen = []

    def record_expected_losses(method, ctx, batch, terms):
        if ctx.task == 1 or ctx.stage != EXPERT or ctx.cache.setdefault("looked", False):
            return
        ctx.cache["looked"] = True
        share = draw_exemplars_to_add_to_batch(ctx, ExemplarBuffer(method.state["exemplars"]))
        x, y = torch.cat([batch.x, share[0]]), torch.cat([batch.y, share[1]])
        with torch.no_grad():
            z, old = ctx.network(x).double(), before(x).double()
            own = ctx.network.auxiliary(ctx.network.features(x)[:, 8:]).double()
        target = torch.tensor([{0: 0, 1: 0, 2: 1, 3: 2}[int(label)] for label in y])
        error = compute_binary_cross_entropy if loss == "bce" else functional.cross_entropy
        distance = (old.softmax(1) * (old.log_softmax(1) - z[:, :2].log_softmax(1))).sum(1).mean()
        if loss == "bce":
            distance = distance / 2
        wanted = {
            "task": error(z, y) / 2,
            "distillation": distance / 2,
            "auxiliary": 0.1 * error(own, target),
        }
        seen.append(
            (
                {n: float(t.detach()) for n, t in terms.items()},
                {n: float(t) for n, t in wanted.items()},
            )
        )

    def compute_binary_cross_entropy(z, y):
        p, hot = z.sigmoid(), functional.one_hot(y, z.shape[1])
        return -(hot * p.log() + (1 - hot) * (1 - p).log()).mean()

    method = {"name": "dne", "loss": loss, "drop_path": 0.0}
    first = bench.learn_task(1, method=method)
    before = load_deployed_network(first)
    spy_on_losses(monkeypatch, DneMethod, record_expected_losses)
    bench.learn_task(2, first, method=method)
    ((found, wanted),) = seen
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-7)
    assert found["distillation"] == pytest.approx(
        0, abs=1e-7
    )  # at the first step the old logits are the old ones


def test_the_teacher_is_the_version_before_bit_by_bit(bench, three, monkeypatch) -> None:
    first = three[0]
    seen = spy_on_calls(
        monkeypatch,
        dne,
        "compute_linear_layer_block_by_block",
        lambda out, features, *_: (features, out),
    )
    bench.learn_task(2, first, method="dne", epochs=1)
    features, logits = seen[0]
    assert torch.equal(load_deployed_network(first).logits(features), logits)


@pytest.mark.parametrize(("head", "same"), [("zero", True), ("official", False)])
def test_old_answers_survive_the_expansion_with_the_default_head_alone(
    bench, three, monkeypatch, head, same
) -> None:
    """The authors' head gives the old classes random weights for the new expert: the switch must
    show that it does.
    """
    found = []

    def record_old_task_logits(method, ctx, batch, terms):
        if ctx.task == 2 and not found:
            ctx.network.eval()
            with torch.no_grad():
                found.append((ctx.network(batch.x)[:, :2], before(batch.x), terms["distillation"]))

    before = load_deployed_network(three[0])
    spy_on_losses(monkeypatch, DneMethod, record_old_task_logits)
    method = {"name": "dne", "head": head, "drop_path": 0.0}
    bench.learn_task(2, three[0], method=method, epochs=1)
    now, then, distance = found[0]
    # The head multiplies more columns than before: the last bit of the old ones may be rounded
    # otherwise.
    assert (float((now - then).abs().max()) < 1e-6) is same
    assert (float(distance.detach().abs()) < 1e-7) is same


def test_where_it_pays_older_experts_are_packed_once_and_a_task_ends_where_it_would(
    bench, three, monkeypatch
) -> None:
    first, exact, _ = three
    made = spy_on_calls(
        monkeypatch, DneNetwork, "pack_older_experts", lambda packed, network: packed
    )
    monkeypatch.setattr(dne, "is_expert_packing_faster", lambda device: True)
    packed = bench.learn_task(2, first, method=FEW)
    assert len(made) == 1
    for part in ("expert.2", "head"):
        a, b = (of.tensors(part) for of in (exact, packed))
        for name in a:
            torch.testing.assert_close(a[name], b[name], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_with_packed_experts_a_kill_changes_no_bit_and_older_shards_none(
    bench, three, monkeypatch
) -> None:
    monkeypatch.setattr(dne, "is_expert_packing_faster", lambda device: True)
    third = bench.learn_task(3, three[1], method=FEW, epochs=1)
    again = bench.resumed(3, three[1], 1, 2, method=FEW, epochs=1)
    assert again.digests == third.digests
    assert collect_part_digests(three[1]).items() <= collect_part_digests(third).items()


def test_branches_are_dropped_by_step_and_task_and_seed(bench) -> None:
    first = bench.learn_task(1, method="dne")
    same = bench.learn_task(1, method="dne")
    none = bench.learn_task(1, method={"name": "dne", "drop_path": 0.0})
    assert first.network_digests == same.network_digests != none.network_digests


# Exemplars.


def test_exemplars_are_shared_out_and_older_lists_are_beginnings_of_longer_ones(three) -> None:
    held = [learned.tensors("exemplars") for learned in three]
    sizes = [torch.bincount(t["labels"]).tolist() for t in held]
    assert sizes == [[7, 7], [3, 3, 3, 3], [2] * 6]
    for before, after in itertools.pairwise(held):
        for label in before["labels"].unique().tolist():
            longer, shorter = (t["images"][t["labels"] == label] for t in (before, after))
            assert torch.equal(longer[: len(shorter)], shorter)


def test_two_thousand_exemplars_make_room_for_fifty_to_a_hundred_classes() -> None:
    exemplars = ExemplarBuffer(MethodState()["exemplars"])
    network = build_network({"name": "mlp", "hidden": [4]}, ImageSpec(2, 1), "class")
    generator = torch.Generator().manual_seed(0)
    sizes, seen, before = [], 0, {}
    for task, new in enumerate([50, 10, 10, 10, 10, 10], 1):
        labels = torch.arange(seen, seen + new).repeat_interleave(45)
        images = torch.randint(
            0, 256, (len(labels), 2, 2, 1), dtype=torch.uint8, generator=generator
        )
        seen += new
        x = images.permute(0, 3, 1, 2).float() / 255
        batch = TrainingBatch(
            x, labels, torch.arange(len(x)), None, lambda rows, images=images: images[rows]
        )
        share = 2000 // seen
        exemplars.trim_exemplars_per_class(share)
        exemplars.append_and_trim_class_exemplars(
            choose_exemplars_by_herding(network, [batch], share), task, share
        )
        sizes.append(exemplars.size)
        assert exemplars.labels.bincount().tolist() == [share] * seen
        lists = {c: exemplars.images[exemplars.labels == c] for c in range(seen)}
        assert all(torch.equal(old[: len(lists[c])], lists[c]) for c, old in before.items())
        before = lists
    assert sizes == [2000, 1980, 1960, 2000, 1980, 2000]


def test_the_classifier_is_tuned_on_as_many_of_each_class(bench, monkeypatch) -> None:
    def count_exemplars_by_class(batch, ctx, exemplars):
        return torch.bincount(exemplars.labels).tolist()

    counts = spy_on_calls(monkeypatch, expanding, "draw_exemplar_batch", count_exemplars_by_class)
    bench.stream(2, method={"name": "dne", "exemplars": 12, "tuning_epochs": 2})
    assert set(map(tuple, counts)) == {(3, 3, 3, 3)} and len(counts) == 12


def test_exemplars_too_few_for_the_classes_are_told(bench) -> None:
    learned = bench.learn_task(1, method={"name": "dne", "exemplars": 1})
    assert learned.warns("1 exemplars are fewer than 2 classes")


# Versions.


def test_every_version_answers_the_same_from_its_own_files_and_from_a_later_chain(three) -> None:
    x = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    versions = [load_deployed_network(learned) for learned in three]
    newest = versions[-1]
    with torch.no_grad():
        features = newest.features(x)
        for version in versions:
            of_version = sum(version.head.widths)
            assert torch.equal(version.logits(features[:, :of_version]), version(x))


def test_a_model_of_another_architecture_is_refused(tmp_path) -> None:
    bench = Bench(tmp_path, "class", {"name": "mlp", "hidden": [12]})
    with pytest.raises(ValueError, match="dne works on architectures of dne, not on mlp"):
        bench.learn_task(1, method="dne")


def test_what_a_recipe_leaves_open_is_adamw_and_rows_that_are_drawn() -> None:
    found = resolve_patch({"method": "dne"}, "class")
    assert (found.optimizer.name, found.head.init) == ("adamw", "default")
    assert registry.get_method("dne").family == DneNetwork.family
