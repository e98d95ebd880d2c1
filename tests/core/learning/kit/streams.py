"""Small streams of tasks for tests: learnable synthetic images, specs, and runs of the job.

A `Bench` makes dataset files in a folder and runs tasks as the worker does. Each run starts from
the files of the one before, so only bytes pass from task to task.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import simulated_device
import torch
from recipes import complete_recipe
from safetensors.torch import load, save_file

from core.contract.jobs.control_request import JobControlRequest
from core.contract.jobs.job_result import MeasuredVersion, TaskPredictionsByteRange
from core.contract.jobs.job_spec import LearnJobSpec, LocalVersionPartFile
from core.contract.manifest import PER_TASK, Manifest
from core.ingest.stored_predictions import read_predictions_written_by_job
from core.learning.data import image_packs
from core.learning.evaluation import predicting
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.problems.registry import get_problem
from core.learning.state import TYPES, load_tensors
from core.learning.training import job

QUICK = {"epochs": 2, "batch_size": 4, "augment": "shift", "data_report": "off"}
"""The default recipe of tests; only tests of the report spend time on one."""
MODEL = ("architecture", "image", "scenario", "problem")
"""Settings of a model that specs and manifests share; classification names no problem."""
CLASSES = (("ant", "bee"), ("cat", "dog"), ("elk", "fox"))
DEVICE = os.environ.get("PERENNIAL_TEST_DEVICE", "cpu")
"""Device on which benches learn: cpu, cuda, or sim (`simulated_device.py`)."""
if DEVICE == simulated_device.NAME:
    simulated_device.install_device()


class Killed(Exception):
    """Exception that stands for the end of a killed process."""


class Script:
    """A control that requests snapshots at some steps, and stops or kills the run at one."""

    def __init__(
        self, snapshot_at: Sequence[int] = (), kill_at: int = -1, stop_at: int = -1
    ) -> None:
        self._step = 0
        self._snapshot_at, self._kill_at, self._stop_at = set(snapshot_at), kill_at, stop_at

    @property
    def has_pending_request(self) -> bool:
        self._step += 1
        if self._step == self._kill_at:
            raise Killed
        return self._step in self._snapshot_at or self._step == self._stop_at

    def take_control_request(self) -> JobControlRequest | None:
        return JobControlRequest.STOP if self._step == self._stop_at else JobControlRequest.SNAPSHOT


def run_learn_task(
    spec: dict[str, Any], emit: Callable[[dict[str, Any]], None], *more: Any
) -> None:
    """Run `job.learn_task` with the spec and events as JSON.

    Manifests may leave out what the spec says about the model.
    """
    model = {key: spec[key] for key in MODEL if key in spec}
    versions = {
        name: {**spec[name], "manifest": {**model, **spec[name]["manifest"]}}
        for name in ("parent", "base")
    }
    job.learn_task(
        LearnJobSpec.from_json({**spec, **versions}), lambda event: emit(event.to_json()), *more
    )


@dataclass
class Learned:
    """The output of one run."""

    spec: dict[str, Any]
    events: list[dict[str, Any]]
    folder: Path

    @property
    def result(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads((self.folder / "result.json").read_text()))

    @property
    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every part, of answers on held-out images, and of result.json."""
        files = {part["name"]: self.folder / part["file"] for part in self.result["parts"]}
        files["result.json"] = self.folder / "result.json"
        written = {name: path.read_bytes() for name, path in files.items()}
        for (version, task), data in self._written_answers.items():
            written[f"answers/{version}.{task}"] = data
        return {name: hashlib.sha256(data).hexdigest() for name, data in written.items()}

    @property
    def answers(self) -> dict[tuple[MeasuredVersion, int], dict[str, torch.Tensor]]:
        """Return the answers on held-out images by version and task."""
        return {of: load(data) for of, data in self._written_answers.items()}

    @property
    def _written_answers(self) -> dict[tuple[MeasuredVersion, int], bytes]:
        parts = [TaskPredictionsByteRange.from_json(said) for said in self.result["answers"]]
        return read_predictions_written_by_job(self.folder, parts)

    @property
    def network_digests(self) -> dict[str, str]:
        return {
            name: d
            for name, d in self.digests.items()
            if name.startswith(("backbone", "displacement", "head"))
        }

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """Return all tensors of the network."""
        return {name: t for part in self.network_digests for name, t in self.tensors(part).items()}

    def tensors(self, part: str) -> dict[str, torch.Tensor]:
        """Return the tensors of a part; those of a memory include its images."""
        if part in TYPES:
            return image_packs.read_method_state(
                [LocalVersionPartFile.from_json(p) for p in self.as_parent()["parts"]]
            )[part]
        return load_tensors(self.folder / "parts" / f"{part}.safetensors")

    def cell(self, version: str, task: int) -> dict[str, Any]:
        """Return the measured accuracy of "base", "parent" or "new" on a task."""
        return next(
            r for r in self.result["results"] if (r["version"], r["task"]) == (version, task)
        )

    def warns(self, words: str) -> bool:
        """Return whether one of the warnings contains these words."""
        return any(words in text for text in self.result["warnings"])

    def logged(self, level: str = "info") -> list[str]:
        """Return the lines of the log."""
        return [e["message"] for e in self.events if e["event"] == "log" and e["level"] == level]

    def metric(self, name: str) -> list[Any]:
        """Return the values of a metric, in order."""
        return [e["value"] for e in self.events if e.get("name") == name]

    def deployed(self) -> tuple[Network, Method]:
        """Return the network and the method of this version, rebuilt from its files."""
        version = self.as_parent()
        known = {key: self.spec[key] for key in MODEL if key in self.spec}
        manifest = Manifest.from_json({**known, **version["manifest"]})
        paths = {part["name"]: Path(part["path"]) for part in version["parts"]}
        return predicting.load_version_network(manifest, paths), predicting.load_prediction_method(
            manifest, paths
        )

    def as_parent(self) -> dict[str, Any]:
        result = self.result
        number = self.spec["task"]["number"]
        manifest = {key: self.spec[key] for key in MODEL if key in self.spec}
        manifest |= {
            key: result[key] for key in ("classes", "heads", "network", "method", "normalise")
        }
        manifest |= {"temperature": result.get("temperature")}
        parts = [
            {"name": p["name"], "type": p["type"], "path": str(self.folder / p["file"])}
            for p in result["parts"]
        ]
        parts += [p for p in self.spec.get("parent", {}).get("parts", []) if p["type"] in PER_TASK]
        return {"version": number, "manifest": {"version": number, **manifest}, "parts": parts}


@dataclass
class Bench:
    """The settings of a model and the files of its tasks."""

    folder: Path
    scenario: str = "class"
    architecture: dict[str, Any] = field(default_factory=lambda: {"name": "mlp", "hidden": [12]})
    size: int = 6
    channels: int = 1
    n: int = 22
    n_held_out: int = 8
    classes: tuple[tuple[str, ...], ...] = CLASSES
    recipe: dict[str, Any] = field(default_factory=dict)
    # Even tasks show each class as its neighbour: what they teach contradicts the odd ones
    drift: bool = False
    problem: str | None = None
    device: str = DEVICE
    _runs: int = 0

    def task_classes(self, number: int) -> list[str]:
        if self.scenario == "data":
            return sorted(self.classes[0])
        return sorted(self.classes[(number - 1) % len(self.classes)])

    def outputs(self, number: int) -> list[str]:
        """Return the outputs that a head needs for a task: its classes."""
        return get_problem(self.problem).list_outputs_for_labels(self.task_classes(number))

    def dataset(self, number: int, part: str) -> Path:
        path = self.folder / f"{self.scenario}-{number}-{part}.safetensors"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            generator = torch.Generator().manual_seed(number * 10 + len(part))
            n = self.n if part == "train" else self.n_held_out
            shape = (n, self.size, self.size, self.channels)
            names = self.task_classes(number)
            labels = torch.arange(n) % len(names)
            shown = labels + 1 if self.drift and number % 2 == 0 else labels
            images = torch.randint(0, 120, shape, generator=generator)
            for i, label in enumerate(shown.tolist()):
                images[i, get_class_row(names[label % len(names)])] += 120
            save_file({"images": images.to(torch.uint8), "labels": labels}, path)
        return path

    def show_digits(self) -> None:
        """Use real digits as the images of the tasks: 0 and 1, 2 and 3, and so on.

        The bench must have the class scenario and size 8.
        """
        from sklearn.datasets import (
            load_digits,
        )  # here alone: the kit also runs on GPU machines without it

        pixels, digits = load_digits(return_X_y=True)
        held_out = np.arange(len(digits)) % 6 == 0
        for task in range(1, len(self.classes) + 1):
            for part, share in (("train", ~held_out), ("held_out", held_out)):
                rows = np.flatnonzero(np.isin(digits, (2 * task - 2, 2 * task - 1)) & share)
                images = np.rint(pixels[rows] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
                labels = torch.from_numpy(digits[rows].astype(np.int64) - (2 * task - 2))
                path = self.folder / f"class-{task}-{part}.safetensors"
                save_file({"images": torch.from_numpy(images), "labels": labels}, path)

    def spec(self, number: int, parent: Learned | None, **recipe: Any) -> dict[str, Any]:
        """Return the spec of task `number`.

        `recipe` overrides the recipe of the bench, which overrides `QUICK`.
        """
        self._runs += 1
        model = {
            "architecture": self.architecture,
            "image": {"size": self.size, "channels": self.channels},
            "scenario": self.scenario,
            **({} if self.problem is None else {"problem": self.problem}),
        }
        manifest: dict[str, Any] = {
            "init": {"kind": "random", "seed": 5},
            "classes": [],
            "heads": [],
            **model,
        }
        if self.scenario == "data":
            manifest["classes"] = self.outputs(1)
        base = {"version": 0, "manifest": manifest, "parts": []}
        tasks = [
            {
                "number": k,
                "classes": self.task_classes(k),
                "train": str(self.dataset(k, "train")),
                "held_out": str(self.dataset(k, "held_out")),
            }
            for k in range(1, number + 1)
        ]
        return {
            **model,
            "recipe": complete_recipe({**QUICK, **self.recipe, **recipe}, self.scenario),
            "normalise": None,
            "classes": self.task_classes(1) if self.scenario == "data" else None,
            "task": tasks[-1],
            "history": [{k: v for k, v in task.items() if k != "train"} for task in tasks[:-1]],
            "parent": parent.as_parent() if parent else base,
            "base": base,
            "snapshot": None,
            "out": str(self.folder / f"run-{self._runs}"),
            "threads": 1,
            "device": self.device,
        }

    def learn(self, spec: dict[str, Any], control: Any = None) -> Learned:
        """Run a spec in this process."""
        Path(spec["out"]).mkdir(parents=True, exist_ok=True)
        events: list[dict[str, Any]] = []
        run_learn_task(spec, events.append, control)
        return Learned(spec, events, Path(spec["out"]) / "result")

    def learn_task(self, number: int, parent: Learned | None = None, **recipe: Any) -> Learned:
        """Learn one task after `parent`, or after version 0."""
        return self.learn(self.spec(number, parent, **recipe))

    def learn_tasks(
        self, count: int, learn: Callable[[dict[str, Any]], Learned] | None = None, **recipe: Any
    ) -> list[Learned]:
        """Learn tasks 1 … `count` one after the other, in this process or by `learn`."""
        found: list[Learned] = []
        for number in range(1, count + 1):
            spec = self.spec(number, found[-1] if found else None, **recipe)
            found.append(learn(spec) if learn else self.learn(spec))
        return found

    def stream(self, tasks: int, **recipe: Any) -> Learned:
        """Learn tasks 1 … `tasks` and return the last."""
        return self.learn_tasks(tasks, **recipe)[-1]

    def killed(self, spec: dict[str, Any], script: Script) -> dict[str, Any]:
        """Run until the script kills the run, and return a spec that resumes it.

        The spec resumes from the last snapshot.
        """
        events: list[dict[str, Any]] = []
        Path(spec["out"]).mkdir(parents=True, exist_ok=True)
        try:
            run_learn_task(spec, events.append, script)
        except Killed:
            pass
        else:
            raise AssertionError("the run ended before its kill")
        paths = [event["path"] for event in events if event["event"] == "snapshot"]
        return {**spec, "snapshot": paths[-1] if paths else None}

    def resumed(
        self, number: int, parent: Learned | None, at: int, kill_at: int, **recipe: Any
    ) -> Learned:
        """Learn a task that is killed at step `kill_at`, and resume it.

        It resumes from a snapshot that was made after step `at`.
        """
        again = self.killed(self.spec(number, parent, **recipe), Script([at], kill_at))
        assert again["snapshot"]
        torch.manual_seed(999)  # nothing of this process may matter
        return self.learn(again)


def get_class_row(name: str) -> int:
    """Return the bright row that identifies a class."""
    return ("ant", "bee", "cat", "dog", "elk", "fox").index(name)


def spy_on_losses(monkeypatch: Any, method: Any, look: Callable[..., Any]) -> list[Any]:
    """Call look(method, ctx, batch, terms) after every loss, and return the list of its results."""
    return spy_on_calls(
        monkeypatch, method, "compute_loss_terms", lambda terms, *arguments: look(*arguments, terms)
    )


def spy_on_calls(monkeypatch: Any, owner: Any, name: str, look: Callable[..., Any]) -> list[Any]:
    """Call look(result, *arguments) after every call of `owner.name`, and return the list of its
    results.
    """
    seen: list[Any] = []
    original = getattr(owner, name)

    def call_and_record(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        seen.append(look(result, *arguments, **named))
        return result

    monkeypatch.setattr(owner, name, call_and_record)
    return seen
