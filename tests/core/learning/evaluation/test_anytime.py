"""Anytime deployment: when states are validated and tested, the best one, and the report."""

import json
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from streams import Bench, Learned, Script
from torch import nn

from core.contract.jobs.control_request import JobControlRequest
from core.contract.jobs.job_spec import LearnJobSpec
from core.contract.manifest import Manifest
from core.learning.data.augment import draw_epoch_random_numbers
from core.learning.data.dataset import Dataset
from core.learning.evaluation import predicting
from core.learning.evaluation.anytime import (
    AnytimePerformanceCurve,
    is_adp_checkpoint,
    is_validation_step,
)
from core.learning.evaluation.evaluate import EvaluationImages
from core.learning.problems.classification import CLASSIFICATION
from core.learning.state import load_tensors
from core.learning.training import job, validation
from core.learning.training.loop import VALIDATION_EPOCH
from core.learning.training.validation import RunValidator

ANYTIME = {"validation": 0.25, "anytime": True, "epochs": 4}


def test_validation_gaps_grow_from_one_to_ten_steps() -> None:
    wanted = list(accumulate((min(k, 10) for k in range(1, 40)), initial=0))
    assert wanted[:12] == [0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 65]
    assert [step for step in range(wanted[-1] + 1) if is_validation_step(step)] == wanted


def test_checkpoints_are_the_numbers_of_fibonacci() -> None:
    wanted, a, b = [0], 1, 2
    while a < 1000:
        wanted.append(a)
        a, b = b, a + b
    assert wanted[:14] == [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377]
    assert [step for step in range(1000) if is_adp_checkpoint(step)] == wanted


class Counter(nn.Module):
    """A network whose state is the number of steps that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.zeros(()))


def run_validation(
    steps: int, right: dict[int, float], tested: dict[int, float], monkeypatch
) -> RunValidator:
    """Run `RunValidator` over made-up accuracies of the validation part and of the test part, by
    step.
    """
    network, measured = Counter(), []

    def score_image_predictions(net: Counter, *_: object) -> torch.Tensor:
        return torch.arange(100) < 100 * right[int(net.step)]

    def measure_step() -> dict[str, float]:
        measured.append(int(network.step))
        return {"1": tested[measured[-1]]}

    monkeypatch.setattr(validation, "score_network_on_images", score_image_predictions)
    recipe = SimpleNamespace(anytime=True, validation=0.5)
    recipe.batch_size = 32
    class_rows, warned = torch.arange(2), pytest.fail
    ctx = SimpleNamespace(
        network=network,
        recipe=recipe,
        task=1,
        task_argument_of_forward=None,
        inputs=None,
        class_rows=class_rows,
        warn=warned,
    )
    images, wanted = torch.zeros(100, 1, 1, 1, dtype=torch.uint8), torch.zeros(100)
    method = SimpleNamespace(predict_logits=None, get_loss_forecast_limit=lambda: None)
    found = RunValidator(
        ctx, method, EvaluationImages(images, wanted), steps, lambda event: None, measure_step
    )
    found.validate_before_first_step()
    for step in range(1, steps + 1):
        network.step.data.fill_(step)
        found.validate_after_step(step, 0)
        assert int(network.step) == step  # testing the best state has put the present one back
    assert measured == list(dict.fromkeys(measured)), "a state was tested twice"
    found.load_best_state()
    return found


RIGHT = {0: 0.10, 1: 0.30, 3: 0.25, 6: 0.50, 10: 0.45, 13: 0.40}
TESTED = {0: 0.10, 1: 0.28, 3: 0.26, 6: 0.49, 10: 0.47}


def test_the_curve_is_the_test_accuracy_of_the_best_validated_state_so_far(monkeypatch) -> None:
    found = run_validation(13, RIGHT, TESTED, monkeypatch)
    points = [(point.step, point.accuracy["1"]) for point in found.curve.points]
    assert points == [(0, 0.10), (1, 0.28), (2, 0.28), (3, 0.28), (5, 0.28), (8, 0.49), (13, 0.49)]
    assert [point.best_step for point in found.curve.points] == [0, 1, 1, 1, 1, 6, 6]
    assert int(found._ctx.network.step) == found.best.step == 6


def test_adp_mean_is_over_the_checkpoints_from_the_first_step_on(monkeypatch) -> None:
    adp = run_validation(13, RIGHT, TESTED, monkeypatch).build_anytime_performance()
    assert adp is not None
    assert adp.mean["1"] == pytest.approx((4 * 0.28 + 2 * 0.49) / 6, abs=1e-15)


def test_a_tie_keeps_the_earlier_state(monkeypatch) -> None:
    found = run_validation(10, {**RIGHT, 6: 0.30, 10: 0.30}, TESTED, monkeypatch)
    assert found.best.step == 1


@pytest.mark.parametrize("steps", [4, 8])
def test_the_last_state_is_one_to_deploy_but_none_of_the_curve(monkeypatch, steps) -> None:
    """The cadence has neither step.

    ADP has a checkpoint at 8, where the state of step 6 is the best by its rule.
    """
    found = run_validation(steps, {**RIGHT, steps: 0.60}, TESTED, monkeypatch)
    assert found.best.step == int(found._ctx.network.step) == steps
    whole = run_validation(13, RIGHT, TESTED, monkeypatch).curve.points
    assert found.curve.points == [point for point in whole if point.step <= steps]


def test_a_run_without_a_step_has_no_mean() -> None:
    curve = AnytimePerformanceCurve()
    curve.add_checkpoint(0, 0, 0.1, lambda: {"1": 0.1})
    assert curve.compute_adp_means() == {}


def test_the_mean_is_of_tasks_that_were_tested_at_every_checkpoint() -> None:
    curve = AnytimePerformanceCurve()
    curve.add_checkpoint(1, 1, 0.1, lambda: {"1": 0.1, "2": 0.2})
    curve.add_checkpoint(2, 2, 0.1, lambda: {"2": 0.4})
    assert curve.compute_adp_means() == {"2": pytest.approx(0.3)}


# In a job.


def read_curve(learned: Learned) -> list[dict]:
    return learned.result["adp"]["curve"]


def read_metric(learned: Learned, name: str) -> list[tuple[int, float]]:
    return [(e["step"], e["value"]) for e in learned.events if e.get("name") == name]


def test_a_job_reports_validation_and_adp_in_events_and_result(bench) -> None:
    learned = bench.learn_task(1, **ANYTIME)
    assert learned.result["steps"] == 16
    validated = read_metric(learned, "validation_accuracy")
    assert [step for step, _ in validated] == [0, 1, 3, 6, 10, 15, 16]
    assert read_metric(learned, "adp") == [
        (p["step"], p["accuracy"]["1"]) for p in read_curve(learned)
    ]
    assert [p["step"] for p in read_curve(learned)] == [0, 1, 2, 3, 5, 8, 13]
    best = max(validated, key=lambda at: (at[1], -at[0]))
    assert read_metric(learned, "deployed_step") == [(16, best[0])]
    best_by_13 = max((v for v in validated if v[0] <= 13), key=lambda at: (at[1], -at[0]))
    assert (
        read_curve(learned)[-1]["best_step"],
        read_curve(learned)[-1]["validation"],
    ) == best_by_13


def test_without_anytime_there_is_no_adp_and_validation_is_per_epoch(bench) -> None:
    learned = bench.learn_task(1, validation=0.25, epochs=3)
    assert learned.result["adp"] is None and read_metric(learned, "adp") == []
    assert [step for step, _ in read_metric(learned, "validation_accuracy")] == [4, 8, 12]


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_earlier_tasks_are_tested_beside_the_new_one(tmp_path, scenario) -> None:
    bench = Bench(tmp_path, scenario, recipe=ANYTIME)
    first, learned = bench.learn_tasks(2)
    kept = first.cell("new", 1)
    assert (
        read_curve(learned)[0]["accuracy"]["1"] == kept["correct"] / kept["total"]
    )  # nothing is trained yet
    assert all(set(point["accuracy"]) == {"1", "2"} for point in read_curve(learned))
    assert set(learned.result["adp"]["mean"]) == {"1", "2"}


def test_looking_changes_nothing_of_the_training(tmp_path) -> None:
    """Looking does not change BatchNorm or dropout-like state, the optimizer or any generator."""
    bench = Bench(tmp_path, architecture={"name": "resnet20"}, size=8, n=11)
    plain = bench.learn_task(1, validation=0.25)
    looked = bench.learn_task(1, validation=0.25, anytime=True)
    losses = [
        [e["loss"] for e in run.events if e["event"] == "progress"] for run in (plain, looked)
    ]
    assert losses[0] == losses[1]


def test_what_is_deployed_does_not_depend_on_the_test_part(bench) -> None:
    honest = bench.learn_task(1, **ANYTIME)
    spec = bench.spec(1, None, **ANYTIME)
    tensors = load_tensors(Path(spec["task"]["held_out"]))
    save_file({**tensors, "labels": 1 - tensors["labels"]}, bench.folder / "wrong.safetensors")
    spec["task"]["held_out"] = str(bench.folder / "wrong.safetensors")
    misled = bench.learn(spec)
    assert misled.network_digests == honest.network_digests
    assert read_curve(misled) != read_curve(honest)


@pytest.mark.parametrize(
    # A curve has the same points in all scenarios.
    "scenario",
    [*(pytest.param(other, marks=pytest.mark.campaign) for other in ("data", "task")), "class"],
)
def test_a_kill_at_any_step_changes_no_bit_of_weights_or_curve(tmp_path, scenario) -> None:
    bench = Bench(tmp_path, scenario, recipe={**ANYTIME, "sampler": "stratified"})
    first, undisturbed = bench.learn_tasks(2)
    assert len(read_curve(undisturbed)) == 7
    for at in (1, 2, 6, 13, 15):
        assert bench.resumed(2, first, at, at + 1).digests == undisturbed.digests
    stopped = bench.spec(2, first)
    bench.learn(stopped, Script(stop_at=16))  # after the last step
    again = {**stopped, "snapshot": str(Path(stopped["out"]) / "snapshot-1")}
    assert bench.learn(again).digests == undisturbed.digests


def test_an_interrupted_run_has_the_curve_up_to_its_snapshot(bench) -> None:
    again = bench.killed(bench.spec(1, None, **ANYTIME), Script([5], 7))
    held = json.loads((Path(again["snapshot"]) / "snapshot.json").read_text())
    assert [point["step"] for point in held["validation"]["curve"]] == [0, 1, 2, 3, 5]


def test_a_run_goes_on_after_the_data_of_an_earlier_task_was_deleted(tmp_path) -> None:
    bench = Bench(tmp_path, recipe=ANYTIME)
    again = bench.killed(bench.spec(2, bench.learn_task(1)), Script([5], 6))
    again["history"][0]["held_out"], again["erased_tasks"] = None, [1]
    adp = bench.learn(again).result["adp"]
    assert set(adp["mean"]) == {"2"} and set(adp["curve"][-1]["accuracy"]) == {"2"}


def test_testing_gives_a_sign_of_life_for_each_task(tmp_path) -> None:
    """Many tasks take long, and a job that reports nothing is ended as stalled."""
    bench = Bench(tmp_path, recipe=ANYTIME)
    events = bench.learn_task(2, bench.learn(bench.spec(1, None))).events
    kinds = [e.get("name", e["event"]) for e in events]
    begins = next(number for number, e in enumerate(events) if e.get("phase") == "train")
    assert kinds[begins : kinds.index("adp")].count("alive") == 2


@pytest.mark.parametrize(
    ("n", "recipe", "said"),
    [
        (20, {"validation": 0.2, "anytime": True}, "4 images of 2 classes are few"),
        (20, {"validation": 0.2}, "4 images of 2 classes are few"),
        (6, {"validation": 0.05}, "too few images for a validation part of 0.05"),
        (
            80,
            {"validation": 0.5, "anytime": True, "batch_size": 1},
            "40 images after every 10 steps",
        ),
    ],
)
def test_what_a_validation_part_of_that_size_means_is_said(tmp_path, n, recipe, said) -> None:
    bench = Bench(tmp_path, n=n, recipe={"epochs": 1, **recipe})
    (warning,) = bench.learn_task(1).result["warnings"]
    assert said in warning


def test_nothing_is_said_of_a_validation_part_that_will_do(tmp_path) -> None:
    bench = Bench(tmp_path, n=80, recipe={"epochs": 1, "validation": 0.2, "anytime": True})
    assert bench.learn_task(1).result["warnings"] == []


def test_without_a_validation_part_there_is_no_curve_and_a_resumed_run_says_nothing_twice(
    tmp_path,
) -> None:
    bench = Bench(tmp_path, n=6, recipe={"validation": 0.05, "anytime": True})
    learned = bench.learn_task(1)
    assert learned.warns("too few images") and learned.result["adp"] is None
    assert bench.resumed(1, None, 2, 3).digests == learned.digests


class Asking(Script):
    """A control that requests the best state after some steps."""

    def __init__(self, *at: int) -> None:
        super().__init__(at)

    def take_control_request(self) -> JobControlRequest:
        return JobControlRequest.ANYTIME


def read_anytime_state(learned: Learned, number: int) -> tuple[Path, dict]:
    paths = [Path(e["path"]) for e in learned.events if e["event"] == "anytime"]
    return paths[number], json.loads((paths[number] / "result.json").read_text())


def test_the_best_state_that_is_asked_for_is_written_beside_the_training(bench) -> None:
    spec = bench.spec(1, None, **ANYTIME)
    learned = bench.learn(spec, Asking(2, 16))
    undisturbed = bench.learn_task(1, **ANYTIME)
    assert learned.network_digests == undisturbed.network_digests
    announced = [e["step"] for e in learned.events if e["event"] == "best"]
    _, early = read_anytime_state(learned, 0)
    assert early["steps"] == max(s for s in announced if s <= 2)
    folder, facts = read_anytime_state(learned, 1)
    assert facts["steps"] == announced[-1]
    for part in facts[
        "parts"
    ]:  # nothing was better after step 16: what is deployed is what was handed out
        ours, final = (load_tensors(f / part["file"]) for f in (folder, learned.folder))
        assert all(torch.equal(tensor, final[name]) for name, tensor in ours.items())


def test_the_best_state_has_the_validation_accuracy_that_it_is_handed_out_with(bench) -> None:
    spec = bench.spec(1, None, **ANYTIME)
    learned = bench.learn(spec, Asking(12))
    folder, facts = read_anytime_state(learned, 0)
    stored = [{**part, "sha256": "", "bytes": 0} for part in facts["parts"]]
    manifest = {
        **{key: spec[key] for key in ("architecture", "image", "scenario")},
        **facts,
        "parts": stored,
    }
    network = predicting.load_version_network(
        Manifest.from_json(manifest), {p["name"]: folder / p["file"] for p in facts["parts"]}
    )
    run = job.LearningJob(
        LearnJobSpec.from_json(spec), lambda event: None, job.EmptyControlRequestSource()
    )
    data = Dataset.read_dataset_file(Path(spec["task"]["train"]), spec["task"]["classes"])
    part = split_validation_rows(data, spec)
    held_back = EvaluationImages(data.images[part], data.labels[part])
    right = validation.score_network_on_images(
        network, held_back, None, type(network).forward, run._inputs
    )
    assert (int(right.sum()), len(part)) == (
        facts["validation"]["correct"],
        facts["validation"]["total"],
    )


def split_validation_rows(data: Dataset, spec: dict) -> torch.Tensor:
    order = draw_epoch_random_numbers(0, 1, VALIDATION_EPOCH, len(data))[:, 0]
    return CLASSIFICATION.split_training_and_validation_rows(
        data.labels, spec["recipe"]["validation"], order
    )[1]


def test_a_recipe_without_anytime_hands_nothing_out(bench) -> None:
    learned = bench.learn(bench.spec(1, None, validation=0.25), Asking(2))
    assert not [e for e in learned.events if e["event"] in ("best", "anytime", "snapshot")]


def test_a_resumed_run_says_again_that_there_is_a_best_state(bench) -> None:
    again = bench.killed(bench.spec(1, None, **ANYTIME), Script([4], 5))
    learned = bench.learn(again)
    assert next(e["step"] for e in learned.events if e["event"] == "best") <= 4
