"""iCaRL: its loss, which exemplars it keeps and shows, and answers by the nearest class mean."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from streams import Bench, spy_on_calls, spy_on_losses
from torch.nn import functional

from core.learning.evaluation import predicting
from core.learning.evaluation.evaluate import EvaluationImages, score_network_on_images
from core.learning.memory.exemplars import ExemplarBuffer
from core.learning.methods.replay import icarl
from core.learning.methods.replay.icarl import IcarlMethod
from core.learning.methods.teacher import get_teacher_network
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.precision import InputNormaliser
from core.learning.state import MethodState, load_tensors

CPU = torch.device("cpu")
INPUTS = InputNormaliser(None, 1, CPU)
CLASSES = ("ant", "bee", "cat")


def make_network(scenario="class", architecture=None):
    heads = (
        HeadSpec(CLASSES)
        if scenario == "class"
        else HeadSpec(tasks=((1, CLASSES[:1]), (4, CLASSES[1:])))
    )
    made = build_network(
        architecture or {"name": "mlp", "hidden": [7]}, ImageSpec(6, 1), scenario, heads
    )
    return made.eval()


def draw_pixels(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 6, 6, 1), generator=generator).to(torch.uint8)


def make_method_with_means(net, images, labels):
    """Make a method whose means are those of these exemplars."""
    method = IcarlMethod(IcarlMethod.Hyper(), MethodState())
    exemplars = ExemplarBuffer(method.state["exemplars"])
    for label in labels.unique().tolist():
        exemplars.append_and_trim_class_exemplars({label: images[labels == label]}, 1, 99)
    with torch.no_grad():
        method._compute_and_store_class_means(
            SimpleNamespace(network=net, inputs=INPUTS), exemplars, len(CLASSES)
        )
    return method


def count_correct_predictions(learned, spec, *, head=False):
    """Count the correct predictions for the held-out part of the spec's task."""
    net, method = learned.deployed()
    task = spec["task"]["number"] if spec["scenario"] == "task" else None
    held_out = load_tensors(Path(spec["task"]["held_out"]))
    scoring = {} if head else {"scoring": predicting.SoftmaxScoring(method.predict_logits)}
    labels, _ = predicting.predict_images(net, held_out["images"].numpy(), task, **scoring)
    wanted = [spec["task"]["classes"][i] for i in held_out["labels"].tolist()]
    return sum(a == b for a, b in zip(labels, wanted, strict=True))


# The loss.


def test_the_loss_of_the_first_task_is_plain_binary_cross_entropy(bench, monkeypatch) -> None:
    def compare_first_task_loss(method, ctx, batch, terms):
        logits = ctx.network(batch.x)
        wanted = functional.binary_cross_entropy_with_logits(
            logits, functional.one_hot(batch.y, 2).float()
        )
        return set(terms), float(terms["task"].detach()), float(wanted.detach())

    seen = spy_on_losses(monkeypatch, IcarlMethod, compare_first_task_loss)
    bench.learn_task(1, method="icarl")
    assert all(names == {"task"} and got == wanted for names, got, wanted in seen)


@pytest.mark.parametrize("scenario", ["class", "task"])
def test_old_classes_have_the_teachers_sigmoid_as_target_on_new_images_and_exemplars(
    tmp_path, monkeypatch, scenario
) -> None:
    bench = Bench(tmp_path, scenario)
    first = bench.learn_task(1, method="icarl")
    shares = spy_on_calls(
        monkeypatch, icarl, "draw_exemplars_to_add_to_batch", lambda share, *_: share
    )

    def all_logits(net, x):
        return torch.cat([net(x, t) for t in (1, 2)], 1) if scenario == "task" else net(x)

    def compare_distillation_loss(method, ctx, batch, terms):
        x, labels = shares[-1]
        x, labels = torch.cat([batch.x, x]), torch.cat([batch.y + 2 * (scenario == "task"), labels])
        target = functional.one_hot(labels, 4).double()
        target[:, :2] = all_logits(get_teacher_network(ctx), x)[:, :2].double().sigmoid()
        p = all_logits(ctx.network, x).double().sigmoid()
        wanted = -(target * p.log() + (1 - target) * (1 - p).log()).mean()
        return float(sum(terms.values()).detach()), float(wanted.detach())

    seen = spy_on_losses(monkeypatch, IcarlMethod, compare_distillation_loss)
    bench.learn_task(2, first, method="icarl")
    assert [got for got, _ in seen] == pytest.approx([wanted for _, wanted in seen], rel=1e-5)


# Exemplars.


def test_an_epoch_shows_every_exemplar_once(bench, monkeypatch) -> None:
    first = bench.learn_task(1, method={"name": "icarl", "exemplars": 14})
    shown = {}

    def record_shown_exemplars(found, ctx, exemplars):
        shown.setdefault(ctx.epoch, []).append(
            [] if found is None else found[0].flatten(1).tolist()
        )

    spy_on_calls(monkeypatch, icarl, "draw_exemplars_to_add_to_batch", record_shown_exemplars)
    bench.learn_task(2, first, method={"name": "icarl", "exemplars": 14}, augment="none")
    held = INPUTS(first.tensors("exemplars")["images"]).flatten(1).tolist()
    for steps in shown.values():
        assert sorted(image for step in steps for image in step) == sorted(held)
        assert {len(step) for step in steps} == {2, 3}  # 14 among 6 batches
    assert shown[0] != shown[1]


def test_no_batch_takes_more_exemplars_than_the_batch_size(tmp_path, monkeypatch) -> None:
    bench = Bench(tmp_path, n=40)
    first = bench.learn_task(1, method="icarl")
    small = Bench(tmp_path / "small", n=10)
    spec = {**small.spec(2, first, method="icarl"), "history": []}
    sizes = spy_on_calls(
        monkeypatch, icarl, "draw_exemplars_to_add_to_batch", lambda found, *_: len(found[1])
    )
    small.learn(spec)
    assert sizes == [4] * 6


def test_there_are_never_more_than_k_and_lists_are_cut_from_the_end(bench) -> None:
    parent, before, sizes = None, {}, []
    for number in (1, 2, 3):
        parent = bench.learn_task(number, parent, method={"name": "icarl", "exemplars": 9})
        held = parent.tensors("exemplars")
        lists = {c: held["images"][held["labels"] == c] for c in held["labels"].unique().tolist()}
        sizes.append({c: len(images) for c, images in lists.items()})
        for c, images in before.items():
            assert torch.equal(lists[c], images[: len(lists[c])])
        before = lists
    assert sizes == [
        dict.fromkeys(range(2), 4),
        dict.fromkeys(range(4), 2),
        dict.fromkeys(range(6), 1),
    ]


def test_exemplars_are_raw_images_herded_by_features_of_the_published_weights(bench) -> None:
    spec = bench.spec(1, None, method={"name": "icarl", "exemplars": 6})
    learned = bench.learn(spec)
    data, held = load_tensors(Path(spec["task"]["train"])), learned.tensors("exemplars")
    net, _ = learned.deployed()
    for label in (0, 1):
        images = data["images"][data["labels"] == label]
        features = functional.normalize(net.features(INPUTS(images)).detach().double())
        chosen: list[int] = []
        for _ in range(3):
            left = [i for i in range(len(images)) if i not in chosen]
            means = torch.stack([features[[*chosen, i]].mean(0) for i in left])
            chosen.append(left[int((means - features.mean(0)).norm(dim=1).argmin())])
        assert torch.equal(held["images"][held["labels"] == label], images[chosen])


def test_a_class_smaller_than_its_share_is_kept_whole(bench) -> None:
    learned = bench.learn_task(1, method="icarl")
    assert torch.bincount(learned.tensors("exemplars")["labels"]).tolist() == [11, 11]


def test_a_class_that_reappears_has_exemplars_of_both_times(tmp_path) -> None:
    bench = Bench(tmp_path, classes=(("ant", "bee"), ("bee", "cat")))
    learned = bench.stream(2, method={"name": "icarl", "exemplars": 18})
    held = learned.tensors("exemplars")
    assert held["tasks"][held["labels"] == 1].tolist() == [1, 2, 1, 2, 1, 2]
    assert torch.bincount(held["labels"]).tolist() == [6, 6, 6]


def test_with_fewer_exemplars_than_classes_the_head_answers_and_a_warning_says_so(bench) -> None:
    learned = bench.learn_task(1, method={"name": "icarl", "exemplars": 1})
    assert {part["type"] for part in learned.result["parts"]} == {"backbone", "head"}
    assert learned.warns("raise method.exemplars")


# Answers.


@pytest.mark.parametrize("scenario", ["class", "task"])
def test_with_identical_exemplars_the_answer_is_the_nearest_prototype(scenario) -> None:
    net, prototypes = make_network(scenario), draw_pixels(3)
    labels = torch.arange(3).repeat_interleave(4)
    method = make_method_with_means(net, prototypes[labels], labels)
    x = INPUTS(draw_pixels(40, seed=1))
    with torch.no_grad():
        points, centres = (functional.normalize(net.features(v)) for v in (x, INPUTS(prototypes)))
        distances = torch.cdist(points.double(), centres.double())
        for task, units in ((1, [0]), (4, [1, 2])) if scenario == "task" else ((None, [0, 1, 2]),):
            scores = method.predict_logits(net, x, task)
            assert torch.equal(scores.argmax(1), distances[:, units].argmin(1))
            assert torch.allclose(scores.double(), -distances[:, units].square(), atol=1e-5)


def test_means_are_the_normalised_means_of_normalised_features_under_the_published_weights(
    bench,
) -> None:
    learned = bench.stream(2, method={"name": "icarl", "exemplars": 20})
    net, _ = learned.deployed()
    held, means = learned.tensors("exemplars"), learned.tensors("own")
    assert set(means) == {"class_means"} and means["class_means"].shape == (4, 12)
    features = functional.normalize(net.features(INPUTS(held["images"])).detach().double())
    for label in range(4):
        wanted = functional.normalize(features[held["labels"] == label].mean(0), dim=0)
        assert torch.allclose(means["class_means"][label].double(), wanted, atol=1e-6)


def test_features_of_an_image_do_not_depend_on_the_images_beside_it() -> None:
    net = make_network(architecture={"name": "resnet20", "width": 8})
    x = INPUTS(draw_pixels(64))
    with torch.no_grad():
        whole = icarl.compute_normalised_features(net, x)
        alone = torch.cat([icarl.compute_normalised_features(net, image[None]) for image in x])
    assert torch.allclose(whole, alone, atol=1e-6)


def test_evaluating_changes_no_exemplar_and_no_mean() -> None:
    net, images, labels = make_network(), draw_pixels(9), torch.arange(9) % 3
    method = make_method_with_means(net, images, labels)
    before = {
        kind: {n: t.clone() for n, t in named.items()}
        for kind, named in method.state.collect_tensors_by_type().items()
    }
    for _ in range(2):
        score_network_on_images(
            net, EvaluationImages(images, labels), None, method.predict_logits, INPUTS
        )
    after = method.state.collect_tensors_by_type()
    assert after.keys() == before.keys() == {"exemplars", "own"}
    for kind, named in before.items():
        assert all(torch.equal(after[kind][name], tensor) for name, tensor in named.items())


def test_an_evaluation_in_the_middle_of_an_update_asks_the_head(bench, monkeypatch) -> None:
    def compare_with_head_scores(scores, method, net, x, task):
        return torch.equal(scores, net(x, task))

    parent = None
    for number, cells in ((1, 1), (2, 2)):
        with monkeypatch.context() as patched:
            seen = spy_on_calls(patched, IcarlMethod, "predict_logits", compare_with_head_scores)
            parent = bench.learn_task(number, parent, method="icarl", validation=0.2)
        assert seen[:2] == [True, True]  # after each epoch
        assert not any(seen[2:]) and len(seen) >= 2 + cells


@pytest.mark.parametrize("scenario", ["class", "task"])
def test_predictions_are_what_was_measured(tmp_path, scenario) -> None:
    bench = Bench(tmp_path, scenario, n_held_out=40)
    learned = bench.stream(2, method="icarl", optimizer={"lr": 1e-3})
    measured = learned.cell("new", 2)["correct"]
    assert count_correct_predictions(learned, learned.spec) == measured
    assert count_correct_predictions(learned, learned.spec, head=True) != measured


def test_a_parent_is_measured_by_its_own_method_and_means(tmp_path) -> None:
    bench = Bench(tmp_path, classes=(("ant", "bee"),), n_held_out=40)
    first = bench.learn_task(1, method="icarl", optimizer={"lr": 1e-3})
    for method in ("icarl", "finetune"):
        second = bench.learn_task(2, first, method=method)
        before, after = (second.cell(version, 2)["correct"] for version in ("parent", "new"))
        assert before == count_correct_predictions(first, second.spec)
        assert before != count_correct_predictions(first, second.spec, head=True)
        changes = second.result["changes"]["2"]
        gained = after - before
        assert changes["improved"] - changes["regressed"] == gained


# Deleted data, other methods.


def test_exemplars_of_erased_tasks_go_and_means_are_of_what_is_left(tmp_path) -> None:
    bench = Bench(tmp_path, classes=(("ant", "bee"), ("ant", "bee"), ("cat", "dog")))
    second = bench.stream(2, method={"name": "icarl", "exemplars": 20})
    spec = {**bench.spec(3, second, method={"name": "icarl", "exemplars": 20}), "erased_tasks": [1]}
    third = bench.learn(spec)
    held, means = third.tensors("exemplars"), third.tensors("own")["class_means"]
    assert torch.bincount(held["labels"]).tolist() == [5, 5, 5, 5]
    assert set(held["tasks"].tolist()) == {2, 3}
    net, _ = third.deployed()
    sums = net.features(INPUTS(held["images"][held["labels"] == 0])).detach()
    assert torch.allclose(
        means[0], functional.normalize(functional.normalize(sums).sum(0), dim=0), atol=1e-6
    )


def test_where_a_class_has_no_exemplars_left_the_head_answers_and_a_warning_says_so(bench) -> None:
    first = bench.learn_task(1, method="icarl")
    second = bench.learn({**bench.spec(2, first, method="icarl"), "erased_tasks": [1]})
    assert set(second.tensors("exemplars")["tasks"].tolist()) == {2}
    assert "own" not in {part["type"] for part in second.result["parts"]}
    assert second.warns("2 of 4 classes have no exemplars")


def test_erasing_takes_the_means_with_the_exemplars() -> None:
    method = make_method_with_means(make_network(), draw_pixels(6), torch.arange(6) % 3)
    method.erase_task_examples({7})
    assert "class_means" in method.state["own"].tensors
    method.erase_task_examples({1})
    assert not method.state.collect_tensors_by_type()


def test_coming_from_another_method_is_said(bench) -> None:
    first = bench.learn_task(1, method="finetune")
    second = bench.learn_task(2, first, method="icarl")
    assert second.warns("unprotected")
    assert set(second.tensors("exemplars")["tasks"].tolist()) == {2}
