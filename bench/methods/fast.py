"""Accuracy of a model that is deployed at any moment: the preset `fast` against the traditional new
head.

    python -m bench.methods.fast --data DIR [--seeds 3] [--rates 0.05 0.01 0.001]
        [--figure FILE.png]

A small network is trained on 50 classes of CIFAR-100 and then learns 10 others, with a head per
task, so that the old head shows what is left of the source. `fast` starts its new head at zero with
rates alpha = 0.01 for it and beta = 0.001 for the backbone; the traditional head starts at torch's
default with one rate for both. All else is equal: stratified batches of 100, SGD with momentum 0.9,
no schedule, 5 % held back for validation. Printed are Anytime Deployment Performance (test accuracy
of the best validated state by then) at some steps and its mean over the checkpoints, on the target
and on the source (Varno et al. 2020, arXiv 2007.01388). BatchNorm, where there is any, keeps the
source's statistics, as in every later task of the product.

DIR holds `cifar100/classes_00-09.zip` … `classes_50-59.zip`. About 10 minutes on two cores.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from worker.attempts.child import MALLOC

SOURCE, TARGET = 1, 2
SHOWN_STEPS = (1, 5, 13, 34, 89)
TESTED_PER_SOURCE_CLASS = 20
BATCH = 100
IMAGE = {"size": 32, "channels": 3}


@dataclass(frozen=True)
class FineTuningTask:
    """A task of the fine-tuning comparison: classes, and files of training and test images."""

    number: int
    classes: list[str]
    train: Path
    held_out: Path

    def build_spec_part(self) -> dict[str, Any]:
        """Return the task's images as the part of a job specification."""
        return {
            "number": self.number,
            "classes": self.classes,
            "train": str(self.train),
            "held_out": str(self.held_out),
        }


@dataclass(frozen=True)
class FineTuningOutcome:
    """Outcome of one fine-tuning run: target and source accuracy by checkpoint, weight movement."""

    target: dict[int, float]
    source: dict[int, float]
    means: tuple[float, float]
    deployed: tuple[float, float]
    moved: float


def main() -> None:
    """Compare fast fine-tuning settings on a target task, and print a table."""
    parser = argparse.ArgumentParser(prog="bench.methods.fast", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05, 0.01, 0.001])
    parser.add_argument("--architecture", choices=["small-cnn", "resnet20"], default="small-cnn")
    parser.add_argument("--source-epochs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--figure", type=Path, help="where to draw the curves; needs matplotlib")
    options = parser.parse_args()
    arms: dict[str, dict[str, Any]] = {"fast": {}}
    for rate in options.rates:
        arms[f"traditional {rate:g}"] = {
            "head": {"init": "default"},
            "optimizer": {"lr": rate, "head_lr": rate},
        }
    with tempfile.TemporaryDirectory() as folder:
        parts = _read_source_and_target_tasks(options.data, Path(folder))
        bench = FineTuningBench(
            Path(folder), parts, {"name": options.architecture}, options.threads
        )
        start = time.perf_counter()
        accuracy = bench.learn_source_task(options.source_epochs)
        print(
            f"source: {options.architecture}, {len(parts[0].classes)} classes, "
            f"accuracy {accuracy:.3f}, {time.perf_counter() - start:.0f} s",
            flush=True,
        )
        outcomes: dict[str, list[FineTuningOutcome]] = {name: [] for name in arms}
        for seed in range(options.seeds):
            for name, recipe in arms.items():
                start = time.perf_counter()
                outcomes[name].append(
                    bench.learn_target_with_recipe(
                        {**recipe, "epochs": options.epochs, "seed": seed}
                    )
                )
                print(f"  {name}, seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    _print_mean_outcomes(outcomes)
    if options.figure:
        _draw_outcome_curves(outcomes, options.figure)


class FineTuningBench:
    """Runs learning jobs on the source and the target task."""

    def __init__(
        self,
        folder: Path,
        parts: tuple[FineTuningTask, FineTuningTask],
        architecture: dict[str, Any],
        threads: int,
    ) -> None:
        self._folder = folder
        self._parts = parts
        self._architecture = architecture
        self._threads = threads
        self._base = {
            "version": 0,
            "manifest": {"init": {"kind": "random", "seed": 0}},
            "parts": [],
        }
        self._source: dict[str, Any] = {}
        self._runs = 0

    def learn_source_task(self, epochs: int) -> float:
        """Learn the source task, and return its test accuracy."""
        recipe = {"method": "finetune", "epochs": epochs, "batch_size": 64, "augment": "shift-flip"}
        result = self._run_learning_job(self._parts[:1], recipe, self._base)
        self._source = {
            "version": SOURCE,
            "manifest": {key: result[key] for key in ("classes", "heads", "method", "normalise")},
            "parts": [
                {**part, "path": str(result["folder"] / part["file"])} for part in result["parts"]
            ],
        }
        return _read_task_accuracy(result, SOURCE)

    def learn_target_with_recipe(self, recipe: dict[str, Any]) -> FineTuningOutcome:
        """Learn the target task with changes to the preset's recipe, and return the outcome."""
        shared = {"preset": "fast", "batch_size": BATCH, "augment": "shift-flip"}
        result = self._run_learning_job(self._parts, {**shared, **recipe}, self._source)
        curve, mean = result["adp"]["curve"], result["adp"]["mean"]
        return FineTuningOutcome(
            {point["step"]: point["accuracy"][str(TARGET)] for point in curve},
            {point["step"]: point["accuracy"][str(SOURCE)] for point in curve},
            (mean[str(TARGET)], mean[str(SOURCE)]),
            (_read_task_accuracy(result, TARGET), _read_task_accuracy(result, SOURCE)),
            result["update_norm"]["backbone"],
        )

    def _run_learning_job(
        self, tasks: Sequence[FineTuningTask], recipe: dict[str, Any], parent: dict[str, Any]
    ) -> dict[str, Any]:
        from bench.job_run import complete_and_run_job_spec
        from core.learning.catalogue import build_recipe_catalogue
        from core.recipe.resolve import resolve_recipe

        self._runs += 1
        out = self._folder / f"run-{self._runs}"
        spec = {
            "architecture": self._architecture,
            "image": IMAGE,
            "scenario": "task",
            "recipe": resolve_recipe(build_recipe_catalogue(), "task", recipe).recipe,
            "normalise": None,
            "classes": None,
            "task": tasks[-1].build_spec_part(),
            "history": [task.build_spec_part() for task in tasks[:-1]],
            "parent": parent,
            "base": self._base,
            "snapshot": None,
            "out": str(out),
            "threads": self._threads,
            "device": "cpu",
        }
        complete_and_run_job_spec(spec)
        return {
            **json.loads((out / "result" / "result.json").read_text()),
            "folder": out / "result",
        }


def _read_task_accuracy(result: dict[str, Any], task: int) -> float:
    row = next(row for row in result["results"] if row["version"] == "new" and row["task"] == task)
    return float(row["correct"] / row["total"])


def _read_source_and_target_tasks(
    data: Path, folder: Path
) -> tuple[FineTuningTask, FineTuningTask]:
    """Read the 50 classes of the source task and 10 of the target task from CIFAR-100 archives."""
    source = [_decode_class_archive_to_datasets(data, folder, first) for first in range(0, 50, 10)]
    return _join_archives_into_task(
        folder, SOURCE, source, TESTED_PER_SOURCE_CLASS
    ), _join_archives_into_task(
        folder, TARGET, [_decode_class_archive_to_datasets(data, folder, 50)], None
    )


def _decode_class_archive_to_datasets(data: Path, folder: Path, first: int) -> Any:
    from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
    from core.ingest.limits import ArchiveLimits
    from core.settings import Settings

    name = f"classes_{first:02d}-{first + 9:02d}"
    archive = data / "cifar100" / f"{name}.zip"
    return decode_archive_to_datasets(
        archive,
        "zip",
        folder / name,
        IngestOptions(IMAGE["size"], IMAGE["channels"], ArchiveLimits.from_settings(Settings())),
    )


def _join_archives_into_task(
    folder: Path, number: int, ingested: Sequence[Any], tested: int | None
) -> FineTuningTask:
    """Join archives with different classes into one, with `tested` images per class held out."""
    from core.ingest.dataset import memory_map_image_dataset, write_image_dataset_file

    classes: list[str] = []
    joined: dict[str, list[tuple[Any, Any]]] = {"train": [], "held_out": []}
    for each in ingested:
        for part, pairs in joined.items():
            images, labels = memory_map_image_dataset(getattr(each, part))
            pairs.append((images, labels + len(classes)))
        classes += each.class_list
    paths = {}
    for part, pairs in joined.items():
        images, labels = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
        if part == "held_out" and tested is not None:
            rows = np.concatenate(
                [np.flatnonzero(labels == c)[:tested] for c in range(len(classes))]
            )
            images, labels = images[rows], labels[rows]
        paths[part] = folder / f"task-{number}-{part}.safetensors"
        write_image_dataset_file(paths[part], labels, images.shape[1:], [images])
    return FineTuningTask(number, classes, paths["train"], paths["held_out"])


def _print_mean_outcomes(outcomes: dict[str, list[FineTuningOutcome]]) -> None:
    """Print mean outcomes over seeds, with standard deviations."""
    last = max(step for runs in outcomes.values() for run in runs for step in run.target)
    steps = [step for step in SHOWN_STEPS if step < last] + [last]
    for which in ("target", "source"):
        at = 0 if which == "target" else 1
        heads = [f"step {step}" for step in steps]
        print(
            f"\nADP on the {which}, mean ± standard deviation over seeds\n{'':18}"
            + "".join(f"{h:>14}" for h in (*heads, "mean", "deployed"))
        )
        for name, runs in outcomes.items():
            cells = [[getattr(run, which)[step] for run in runs] for step in steps]
            cells += [[run.means[at] for run in runs], [run.deployed[at] for run in runs]]
            print(
                f"{name:18}" + "".join(f"{_format_mean_and_deviation(cell):>14}" for cell in cells)
            )
    print("\n‖change of the backbone‖₂")
    for name, runs in outcomes.items():
        print(f"{name:18}{_format_mean_and_deviation([run.moved for run in runs]):>14}")


def _format_mean_and_deviation(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ±{statistics.stdev(values):.3f}"


def _draw_outcome_curves(outcomes: dict[str, list[FineTuningOutcome]], path: Path) -> None:
    """Draw the source and target accuracy curves, with their range over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharex=True)
    for axis, which in zip(axes, ("target", "source"), strict=True):
        for name, runs in outcomes.items():
            curves = np.array([list(getattr(run, which).values()) for run in runs])
            steps = list(getattr(runs[0], which))
            axis.plot(steps, curves.mean(0), label=name)
            axis.fill_between(steps, curves.min(0), curves.max(0), alpha=0.2)
        axis.set(
            xscale="symlog", xlabel="step", ylabel="test accuracy", title=f"ADP on the {which}"
        )
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    print(f"figure: {path}")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        # glibc reads these when a process starts.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "bench.methods.fast", *sys.argv[1:]],
            {**os.environ, **MALLOC},
        )
    main()
