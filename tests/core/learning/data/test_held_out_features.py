"""Evaluation reads each held-out image once, and what is stored in place of a pass."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from streams import Bench, Learned

from core.learning.data import held_out_features
from core.learning.data.dataset import Dataset
from core.learning.data.known_features import LEAST_BATCH
from core.learning.evaluation.evaluator import Evaluator
from core.learning.networks.backbones.mlp import MlpBackbone

ANALYTIC = {"name": "analytic", "projection": 50}
FIGURES = (
    "changes",
    "knn_probe",
    "baseline_ncm",
    "baseline_lda",
    "calibration",
    "drift",
    "temperature",
)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Batches that pass through an MLP's backbone while a new version is measured."""
    seen: list[torch.Tensor] = []
    forward, after = MlpBackbone.forward, Evaluator.measure_new_version

    def record_images_and_forward(self: MlpBackbone, x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return forward(self, x)

    def measure_with_recording(self: Evaluator, *args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(MlpBackbone, "forward", record_images_and_forward)
            return after(self, *args)

    monkeypatch.setattr(Evaluator, "measure_new_version", measure_with_recording)
    return seen


def add_answers(spec: dict[str, Any], parent: Learned) -> dict[str, Any]:
    """Add the answers that the parent's job has left to a spec."""
    said = {
        one["task"]: {
            "path": str(parent.folder / one["file"]),
            "begin": one["begin"],
            "end": one["end"],
        }
        for one in parent.result["answers"]
        if one["version"] == "new"
    }
    history = [{**task, "answers": said[task["number"]]} for task in spec["history"]]
    return {**spec, "history": history}


def collect_measurements(learned: Learned) -> dict[str, Any]:
    """Return the cells and figures. What was measured of the parent on earlier tasks is in its own
    result.
    """
    return {name: learned.result.get(name) for name in (*FIGURES, "results")}


@pytest.mark.parametrize("method", ["er", pytest.param("icarl", marks=pytest.mark.campaign)])
def test_stored_answers_of_the_parent_stand_for_its_pass(
    bench: Bench, passes: list[torch.Tensor], method: str
) -> None:
    parent = bench.stream(2, method=method)
    passes.clear()
    measured = bench.learn_task(3, parent, method=method)
    by_pass = sum(map(len, passes))
    passes.clear()
    read = bench.learn(add_answers(bench.spec(3, parent, method=method), parent))
    assert collect_measurements(read) == collect_measurements(measured)
    all_answers, new_ones = measured.answers, read.answers
    assert all_answers.keys() - new_ones.keys() == {("parent", 1), ("parent", 2)}
    assert all(torch.equal(all_answers[of]["rows"], new_ones[of]["rows"]) for of in new_ones)
    held_out = bench.n_held_out
    # The new version on three tasks; base and parent on the new one, for the probe.
    assert sum(map(len, passes)) == 3 * held_out + 2 * held_out
    assert by_pass == sum(map(len, passes)) + 2 * held_out


def test_answers_of_before_that_lack_fields_serve_and_those_of_other_images_do_not(
    bench: Bench, passes: list[torch.Tensor], tmp_path: Path
) -> None:
    parent = bench.stream(2, method="er")
    spec = add_answers(bench.spec(3, parent, method="er"), parent)
    measured = bench.learn(spec)
    oldest, other = tmp_path / "oldest.safetensors", tmp_path / "other.safetensors"
    tensors = parent.answers["new", 1]
    save_file({name: tensors[name] for name in ("rows", "probabilities")}, oldest)
    save_file({name: tensors[name][:-1] for name in ("rows", "probabilities")}, other)
    for task, path in zip(spec["history"], (oldest, other), strict=True):
        task["answers"] = {"path": str(path), "begin": 0, "end": path.stat().st_size}
    spec["out"] = f"{spec['out']}-again"
    passes.clear()
    again = bench.learn(spec)
    assert collect_measurements(again) == collect_measurements(measured)
    assert sum(map(len, passes)) == 6 * bench.n_held_out


def test_without_room_for_features_the_images_are_passed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = bench.stream(1, method="er")
    measured = bench.learn_task(2, parent, method="er")
    monkeypatch.setattr(held_out_features, "MEMORY_BYTES", 0)
    assert collect_measurements(bench.learn_task(2, parent, method="er")) == collect_measurements(
        measured
    )


def add_features(spec: dict[str, Any], *learned: Learned) -> dict[str, Any]:
    """Add the features of held-out images that earlier jobs have left to a spec."""
    left = {
        one["task"]: run.folder / one["file"]
        for run in learned
        for one in run.result["held_out_features"]
    }
    history = [{**task, "features": str(left[task["number"]])} for task in spec["history"]]
    return {**spec, "history": history}


@pytest.mark.parametrize(
    "scenario",
    ["class", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("task", "data"))],
)
def test_kept_features_stand_for_the_pass_of_a_backbone_that_does_not_move(
    bench: Bench, passes: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    bench.scenario = scenario
    first, second = bench.learn_tasks(2, method=ANALYTIC)
    measured = bench.learn_task(3, second, method=ANALYTIC)
    read_images: list[torch.Tensor] = []
    forward = MlpBackbone.forward
    monkeypatch.setattr(
        MlpBackbone, "forward", lambda self, x: (read_images.append(x), forward(self, x))[1]
    )
    kept = bench.learn(add_features(bench.spec(3, second, method=ANALYTIC), first, second))
    assert collect_measurements(kept) == collect_measurements(measured)
    by_pass, by_features = measured.answers, kept.answers
    assert by_pass.keys() == by_features.keys()
    for cell, answers in by_pass.items():
        assert torch.equal(answers["rows"], by_features[cell]["rows"])
        torch.testing.assert_close(answers["probabilities"], by_features[cell]["probabilities"])
    assert [part["name"] for part in kept.result["parts"]] == [
        part["name"] for part in measured.result["parts"]
    ]
    assert kept.network_digests == measured.network_digests
    assert {one["task"] for one in kept.result["held_out_features"]} == {3}
    assert {one["task"] for one in measured.result["held_out_features"]} == {1, 2, 3}
    # The new task's images and its held-out ones, whose batch is filled up.
    assert bench.n_held_out < LEAST_BATCH <= bench.n
    assert [len(images) for images in read_images] == [bench.n, LEAST_BATCH]


def test_features_of_other_images_or_another_width_are_not_used(
    bench: Bench, tmp_path: Path
) -> None:
    first, second = bench.learn_tasks(2, method=ANALYTIC)
    measured = bench.learn_task(3, second, method=ANALYTIC)
    spec = add_features(bench.spec(3, second, method=ANALYTIC), first, second)
    for task, cut in zip(
        spec["history"], (slice(1, None), (slice(None), slice(1, None))), strict=True
    ):
        rows = load_file(task["features"])["features"]
        task["features"] = str(tmp_path / f"{task['number']}.safetensors")
        save_file({"features": rows[cut].contiguous()}, task["features"])
    assert collect_measurements(bench.learn(spec)) == collect_measurements(measured)


def test_a_method_that_moves_the_backbone_keeps_no_features(bench: Bench) -> None:
    assert "held_out_features" not in bench.stream(2, method="er").result


def test_each_held_out_file_is_read_once_by_all_phases(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, paths = bench.stream(2, method="er"), list[Path]()
    read = Dataset.read_dataset_file

    def record_path_and_read(path: Path, *args: Any) -> Dataset:
        paths.append(path)
        return read(path, *args)

    monkeypatch.setattr(Dataset, "read_dataset_file", staticmethod(record_path_and_read))
    bench.learn_task(3, parent, method="er")
    assert len(paths) == len(set(paths)) == 4  # the batch, and three held-out parts
