"""The analytic method: what it answers, that nothing is forgotten, what it stores, and its first
session.
"""

import json
from pathlib import Path

import pytest
import torch
from recipes import complete_recipe
from streams import Bench, Learned, Script, spy_on_calls

from core.learning.analytic import balance, discriminant, ridge
from core.learning.analytic.linear import append_column_of_ones
from core.learning.analytic.sums import FeatureSums
from core.learning.data.dataset import Dataset
from core.learning.evaluation.evaluate import EvaluationImages, score_network_on_images
from core.learning.evaluation.probe import compute_image_features
from core.learning.methods.analytic import UNTRAINED, AnalyticMethod
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.learning.state import load_tensors

CPU = torch.device("cpu")
SIX = (("ant", "bee"), ("cat", "dog"), ("elk", "fox"))
HEADS = ("ncm", "ridge", "lda")
EVERY_HEAD = [*({"head": head} for head in HEADS), {"head": "ridge", "balanced": False}]


def measure_accuracy(learned: Learned, bench: Bench, task: int) -> float:
    network, method = learned.deployed()
    data = Dataset.read_dataset_file(bench.dataset(task, "held_out"), bench.task_classes(task))
    head = task if bench.scenario == "task" else None
    part = EvaluationImages(data.images, data.convert_labels_to_targets(network.list_classes(head)))
    right = score_network_on_images(network, part, head, method.predict_logits, INPUTS)
    return float(right.float().mean())


INPUTS = InputNormaliser(None, 1, CPU)


def build_analytic(**hyper: object) -> dict[str, object]:
    return {"name": "analytic", "projection": 0, **hyper}


def compute_all_features(
    bench: Bench, learned: Learned, tasks: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features of the training parts of all tasks, and their rows of the head."""
    network, _ = learned.deployed()
    data = [
        Dataset.read_dataset_file(bench.dataset(t, "train"), bench.task_classes(t))
        for t in range(1, tasks + 1)
    ]
    phi = torch.cat([compute_image_features(network, part.images, INPUTS) for part in data])
    return phi, torch.cat([part.convert_labels_to_targets(network.classes) for part in data])


@pytest.mark.parametrize("hyper", EVERY_HEAD, ids=str)
def test_a_stream_of_tasks_answers_as_if_all_images_had_been_there_at_once(
    hyper: dict[str, object], tmp_path: Path
) -> None:
    bench, head = Bench(tmp_path, n=40), hyper["head"]
    last = bench.stream(3, method=build_analytic(**hyper))
    phi, rows = compute_all_features(bench, last, 3)
    network, method = last.deployed()
    if head == "ridge":
        sums = FeatureSums.make_empty_sums(phi.shape[1] + 1, 6)
        sums.add_examples(append_column_of_ones(phi), rows)
        if hyper.get("balanced", True):
            strength = balance.RidgeLeaveOneOut(
                sums, append_column_of_ones(phi).double(), rows
            ).choose_strength(balance.weigh_classes_equally_in_sums(sums))
            weight = ridge.solve_ridge_regression(
                balance.weigh_classes_equally_in_sums(sums), strength
            )
        else:
            weight = ridge.choose_ridge_strength_and_solve(sums)[1]
        wanted = append_column_of_ones(phi).double() @ weight
    else:
        sums = FeatureSums.make_empty_sums(phi.shape[1], 6)
        sums.add_examples(phi, rows)
        share = discriminant.DiscriminantLeaveOneOut(sums, phi.double(), rows).choose_shrinkage()
        wanted = discriminant.solve_linear_discriminant_analysis(sums, share=share)(phi.double())
        if head == "ncm":
            wanted = (
                torch.nn.functional.normalize(phi.double())
                @ torch.nn.functional.normalize(sums.class_means).T
            )
    images = Dataset.read_dataset_file(bench.dataset(2, "train"), bench.task_classes(2)).images
    found = method.predict_logits(network, INPUTS(images), None)
    expected = wanted[40:80]
    assert torch.equal(found.argmax(1), expected.argmax(1))
    centred = (x - x.mean(1, keepdim=True) for x in (found.double(), expected))
    ours, theirs = (x / x.norm() for x in centred)  # up to the temperature
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scenario", ["data", "task", "class"])
@pytest.mark.parametrize("head", HEADS)
def test_it_learns_the_last_task_and_keeps_the_first(
    scenario: str, head: str, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, scenario, {"name": "mlp", "hidden": [200]}, n=40, n_held_out=24)
    last = bench.stream(3, method=build_analytic(head=head, projection=0 if head == "ncm" else 200))
    for task in (1, 3):
        assert measure_accuracy(last, bench, task) > 0.8


def test_a_version_stores_sums_and_features_of_its_own_task_and_no_image(tmp_path: Path) -> None:
    bench = Bench(tmp_path, n=60)
    first, second = bench.learn_tasks(2, method=build_analytic(projection=30, keep="sums"))
    names = {part["name"] for part in second.result["parts"]}
    assert names == {"backbone.1", "head", "statistics.2", "features.2", "projection", "own"}
    assert second.digests["projection"] == first.digests["projection"]
    assert second.digests["backbone.1"] == first.digests["backbone.1"]
    assert read_shapes(second, "statistics.2") == {
        "2.gram": (30 * 31 // 2,),
        "2.cross": (30, 2),
        "2.counts": (2,),
        "2.rows": (2,),
    }
    width = second.deployed()[0].backbone.width
    assert read_shapes(second, "features.2") == {
        "2.features": (40, width),
        "2.classes": (40,),
        "2.keys": (40, 16),
    }


def read_shapes(learned: Learned, part: str) -> dict[str, tuple[int, ...]]:
    tensors = load_tensors(learned.folder / "parts" / f"{part}.safetensors")
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def test_features_of_every_image_are_kept_those_that_no_job_reads_apart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, n=260)
    learned = bench.learn_task(1, method=build_analytic(keep="features"))
    assert read_shapes(learned, "features.1")["1.keys"] == (200, 16)
    assert read_shapes(learned, "features.1.rest")["1.rest.keys"] == (60, 16)
    parts = (
        load_tensors(learned.folder / "parts" / f"features.1{rest}.safetensors")
        for rest in ("", ".rest")
    )
    kept = torch.cat(
        [tensor for part in parts for name, tensor in part.items() if "features" in name]
    )
    phi, _ = compute_all_features(bench, learned, 1)
    order = torch.cdist(kept, phi).argmin(1)
    assert sorted(order.tolist()) == list(range(260))
    torch.testing.assert_close(kept, phi[order], rtol=1e-5, atol=1e-5)


def test_features_of_erased_tasks_judge_no_head_and_their_sums_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path, n=40, n_held_out=24)
    method = build_analytic(head="auto", keep="features")
    spec = bench.spec(2, bench.learn_task(1, method=method), method=method)
    whole = bench.learn(spec).result["method"]["state"]["own"]["auto"]["images"]
    erased = bench.learn({**spec, "erased_tasks": [1]})
    assert [whole, erased.result["method"]["state"]["own"]["auto"]["images"]] == [80, 40]
    assert measure_accuracy(erased, bench, 1) > 0.8


def test_the_better_head_answers_and_the_manifest_says_by_how_much(tmp_path: Path) -> None:
    bench = Bench(tmp_path, n=40, n_held_out=24)
    heads = {}
    for name in ("auto", "lda", "ridge"):
        learned = bench.stream(3, method=build_analytic(head=name, balanced=True))
        heads[name] = learned.deployed()[1].state["own"].tensors["weight"]
    told = bench.stream(3, method=build_analytic(head="auto", balanced=True)).result["method"][
        "state"
    ]["own"]["auto"]
    assert torch.equal(heads["auto"], heads[told["head"]])
    assert told["accuracy"][told["head"]] >= max(told["accuracy"].values()) - told["standard_error"]
    assert told["images"] == 120


def test_the_head_can_be_another_in_the_next_task(tmp_path: Path) -> None:
    bench = Bench(tmp_path, n=40, n_held_out=24)
    first = bench.learn_task(1, method=build_analytic(head="ncm"))
    then = bench.learn_task(2, first, method=build_analytic(head="lda"))
    assert measure_accuracy(then, bench, 1) > 0.8 and measure_accuracy(then, bench, 2) > 0.8


def test_a_first_session_trains_the_backbone_once_and_resumes_to_the_same_bits(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, n=40)
    method = build_analytic(adapt={"epochs": 2, "depth": 5}, projection=50)
    first = bench.learn_task(1, method=method)
    plain = bench.learn_task(1, method=build_analytic(projection=50))
    assert first.digests["backbone.1"] != plain.digests["backbone.1"]
    again = bench.killed(bench.spec(1, None, method=method), Script([7], 9))
    assert again["snapshot"] and bench.learn(again).digests == first.digests
    second = bench.learn_task(2, first, method=method)
    assert second.digests["backbone.1"] == first.digests["backbone.1"]
    assert second.result["steps"] == 0


def test_features_of_random_weights_are_warned_of_with_what_helps(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first = bench.learn_task(1, method=build_analytic())
    assert first.result["warnings"] == [UNTRAINED]
    assert bench.learn_task(2, first, method=build_analytic()).result["warnings"] == []
    adapted = build_analytic(adapt={"epochs": 1, "depth": 5})
    assert bench.learn_task(1, method=adapted).result["warnings"] == []
    patch = json.loads(UNTRAINED[UNTRAINED.index("{") :])
    assert complete_recipe(patch, "class")["method"]["adapt"] == {"epochs": 10, "depth": 5}


def test_a_class_that_comes_again_and_again_is_set_back_only_with_offsets(tmp_path: Path) -> None:
    bench = Bench(tmp_path, n=12, classes=(("ant", "bee"), *[("ant",)] * 3))
    asked, without = (
        bench.stream(4, method=build_analytic(head="ridge", offsets=said)) for said in (True, False)
    )
    found, plain = asked.tensors("own"), without.tensors("own")
    assert torch.equal(found["weight"], plain["weight"])
    moved = (found["bias"] - plain["bias"]).tolist()
    assert moved[0] < 0 < moved[1]


def test_classes_of_equally_many_images_have_no_offsets(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    asked, without = (
        bench.stream(2, method=build_analytic(offsets=said)) for said in (True, False)
    )
    assert torch.equal(asked.tensors("own")["bias"], without.tensors("own")["bias"])


def test_a_class_that_comes_again_is_the_same_column(tmp_path: Path) -> None:
    again = (("ant", "bee"), ("bee", "cat"), ("ant", "cat"))
    bench = Bench(tmp_path, classes=again, n=40, n_held_out=24)
    last = bench.stream(3, method=build_analytic(head="lda"))
    assert last.result["classes"] == ["ant", "bee", "cat"]
    assert measure_accuracy(last, bench, 1) > 0.8


@pytest.mark.parametrize("head", ["lda", "ridge", "auto"])
def test_without_held_out_images_probabilities_are_calibrated_on_left_out_ones(
    head: str, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, n=60, n_held_out=60)
    unseen = bench.dataset(2, "held_out")
    spec = bench.spec(
        2, bench.learn_task(1, method=build_analytic(head=head)), method=build_analytic(head=head)
    )
    spec["task"]["held_out"] = None
    for earlier in spec["history"]:
        earlier["held_out"] = None
    last = bench.learn(spec)
    told = last.result["temperature"]
    assert (told["source"], told["images"]) == ("left-out", 120)
    network, method = last.deployed()
    data = Dataset.read_dataset_file(unseen, bench.task_classes(2))
    logits = method.predict_logits(network, INPUTS(data.images), None).detach()
    probabilities = (logits / told["value"]).softmax(1)
    right = probabilities.argmax(1) == data.convert_labels_to_targets(network.classes)
    assert abs(float(probabilities.max(1).values.mean()) - float(right.float().mean())) < 0.15


def test_the_sums_and_the_classifier_take_one_pass_over_the_images(
    tmp_path: Path, monkeypatch
) -> None:
    passed = spy_on_calls(monkeypatch, Network, "features", lambda found, network, x, task: len(x))
    begin = spy_on_calls(monkeypatch, AnalyticMethod, "begin_task", lambda *_: len(passed))
    after = spy_on_calls(
        monkeypatch,
        AnalyticMethod,
        "_store_totals_and_solve_classifier",
        lambda *_: sum(passed[begin[-1] :]),
    )
    Bench(tmp_path, n=40).learn_task(1, method=build_analytic())
    assert after == [40]
