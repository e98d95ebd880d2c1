"""Many updates of one model by DLCFT: whether they stay equally cheap, and whether their forecasts
come true.

    python -m bench.research.dlcft_updates --data DIR [--updates 100] [--curvature tkfac]
        [--threads 2]

DIR holds `cifar100/classes_*.zip`. A ResNet-20 learns the first 80 classes, then the images of the
other 20 come in `--updates` tasks of the data scenario, each learned in a process of its own by the
product's job. Each task is also tried once at a rate drawn from 0.0001 to 0.03: versions that
nobody would keep, whose forecasts should say so; the next task goes on from the version of the
usual rate. Printed are, for some updates and as a ratio of the last five to the second to sixth:
seconds from the first step to the end of the curvature pass, by the clock and of the processor, and
peak memory (goal ≤ 1.1), with the evaluation apart; bytes of a version's parts, and of those that
are new in it. Then the forecast, c/2 Δᵀ H Δ + qᵀ Δ (c: the coupling of layers, q: the earlier
tasks' gradient), against the measured rise of the mean loss on `--measured` images of each earlier
task, and on as many held-out images of each class: rank correlation (goal ≥ 0.9), calibration, the
fall of accuracy, and how long measuring took beyond the end of training, when the forecast is
known. A squared error's rise is exactly mean ½ ‖δ‖² + mean (f - y)ᵀ δ, δ the change of the outputs
f: each term of the forecast is set beside its own.
"""

import argparse
import functools
import hashlib
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from queue import Empty
from typing import Any

import torch
from torch import Tensor

from bench.experiment.data import ExperimentDatasetCache
from bench.experiment.plan import PlannedDataSet, PlannedImages
from bench.job_run import complete_and_run_job_spec
from bench.research.dlcft_figures import (
    DlcftUpdateMeasurement,
    LossForecastTerms,
    NetworkPredictions,
    compute_loss_and_accuracy_changes,
    describe_forecast_quality,
    describe_update_costs,
)
from core.contract.responses.recipe import RecipeOut
from core.learning.catalogue import build_recipe_catalogue
from core.learning.data.dataset import Dataset
from core.learning.methods.dlcft_memory import CurvatureMemory
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.learning.state import MethodStateSection, load_tensors
from core.recipe.resolve import resolve_recipe
from worker.attempts.child import MALLOC

NORMALISE = {"mean": [0.5071, 0.4865, 0.4409], "std": [0.2673, 0.2564, 0.2762]}
ARCHITECTURE = {"name": "resnet20"}
BASE = PlannedImages(path="cifar100", classes="0-79", train_per_class=250)
RATE, TRIED = 1e-3, (1e-4, 3e-2)
BATCH = 256

Json = dict[str, Any]


def main() -> None:
    """Run many DLCFT updates, and compare forecast with measured losses."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--base-epochs", type=int, default=4)
    parser.add_argument("--curvature", choices=("diagonal", "kfac", "tkfac"), default="tkfac")
    parser.add_argument(
        "--measured", type=int, default=20, help="images of each earlier task, all at most"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    # With the allocator settings of a worker's jobs.
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(
            sys.executable,
            [sys.executable, "-m", "bench.research.dlcft_updates", *sys.argv[1:]],
            os.environ | MALLOC,
        )
    with tempfile.TemporaryDirectory() as folder:
        updates, trials = train_base_and_run_updates(options, Path(folder))
    print(
        f"\nresnet20, {options.curvature}, {options.threads} threads, {options.device}, torch "
        f"{torch.__version__}"
    )
    print(*describe_update_costs(updates), *describe_forecast_quality(updates, trials), sep="\n")


def train_base_and_run_updates(
    options: argparse.Namespace, folder: Path
) -> tuple[list[DlcftUpdateMeasurement], list[DlcftUpdateMeasurement]]:
    """Train the base, then run all updates: those of the stream, and trial ones beside them."""
    files = ExperimentDatasetCache(options.data, folder / "data")
    stream = PlannedDataSet(name="stream", path="cifar100", classes="80-99", splits=options.updates)
    names = files.decode_experiment_data_set(BASE).names
    base_classes, classes = (
        BASE.list_chosen_class_numbers(len(names)),
        stream.list_chosen_class_numbers(len(names)),
    )
    first: Json = {"version": 0, "manifest": {"init": {"kind": "random", "seed": 0}}, "parts": []}
    recipe: Json = {
        "method": "finetune",
        "epochs": options.base_epochs,
        "batch_size": 64,
        "augment": "shift-flip",
    }
    recipe["optimizer"] = {"lr": 0.1, "weight_decay": 5e-4}
    task = {
        "number": 1,
        "classes": [names[c] for c in base_classes],
        "train": str(files.make_dataset_file_of_classes(BASE, base_classes, "train")),
        "held_out": str(files.make_dataset_file_of_classes(BASE, base_classes, "test")),
    }
    spec = _build_job_spec(
        options,
        "class",
        resolve_recipe(build_recipe_catalogue(), "class", recipe).recipe,
        task,
        first,
        first,
    )
    start_time = time.monotonic()
    run_function_in_child(train_base_by_job, spec, folder / "base")
    result = json.loads((folder / "base" / "result" / "result.json").read_text())
    counts = result["results"][-1]
    accuracy = counts["correct"] / counts["total"]
    print(
        f"base: {accuracy:.3f} on its 80 classes after {time.monotonic() - start_time:.0f} s",
        flush=True,
    )
    parts = [
        part
        for part in _list_result_parts(folder / "base" / "result")
        if part["type"] == "backbone"
    ]
    zero: Json = {
        "version": 0,
        "manifest": {"classes": [names[c] for c in classes], "heads": []},
        "parts": parts,
    }
    parent, tasks, updates = zero, list[Path](), list[DlcftUpdateMeasurement]()
    before: DlcftUpdateMeasurement | None = None
    test = files.make_dataset_file_of_classes(stream, classes, "test")
    draw = random.Random(0)
    trials = list[DlcftUpdateMeasurement]()
    for i in range(options.updates):
        tasks.append(
            files.make_dataset_file_of_classes(stream, classes, "train", (i, options.updates, 0))
        )
        tried = TRIED[0] * (TRIED[1] / TRIED[0]) ** draw.random()
        for rate, measurements in ((tried, trials), (RATE, updates)):
            patch: Json = {"method": {"name": "dlcft", "curvature": options.curvature, "probes": 1}}
            patch["optimizer"] = {
                "name": "adam",
                "lr": rate,
                "head_lr": 10 * rate,
                "weight_decay": 1e-5,
            }
            patch |= {"augment": "shift-flip", "epochs": options.epochs}
            resolved = resolve_recipe(build_recipe_catalogue(), "data", patch).recipe
            task = {
                "number": i + 1,
                "classes": zero["manifest"]["classes"],
                "train": str(tasks[-1]),
            }
            out = folder / f"update-{i + 1}-{len(trials) - len(updates)}"
            spec = _build_job_spec(
                options, "data", resolved, {**task, "held_out": None}, parent, zero
            )
            update = run_function_in_child(
                run_and_measure_update, spec, out, tasks, test, options.measured
            )
            if before is not None:
                update.measured = compute_loss_and_accuracy_changes(before.tasks, update.tasks[:-1])
                update.held_out = compute_loss_and_accuracy_changes([before.test], [update.test])
            measurements.append(update)
        trials[-1].tasks, before = [], updates[-1]
        parent = {
            "version": i + 1,
            "manifest": _read_manifest_of_job_result(out / "result"),
            "parts": _list_result_parts(out / "result"),
        }
        if i % 10 == 9:
            print(
                f"update {i + 1}: {update.seconds:.1f} s, forecast {update.predicted}, "
                f"{update.measured}",
                flush=True,
            )
    return updates, trials


def train_base_by_job(spec: Json, out: Path) -> None:
    """In a child process: train the base network."""
    complete_and_run_job_spec({**spec, "out": str(out)})


def run_and_measure_update(
    spec: Json, out: Path, tasks: list[Path], test: Path, count: int
) -> DlcftUpdateMeasurement:
    """In a child process: run and time one update, and predict all tasks so far."""
    at: dict[str, float] = {}
    cpu_times: dict[str, float] = {}
    peak = 0
    predictions: list[NetworkPredictions] = []
    measuring = 0.0

    def record_job_event(event: Json) -> None:
        nonlocal peak
        if event["event"] == "phase":
            at[event["phase"]], cpu_times[event["phase"]] = time.perf_counter(), time.process_time()
            if event["phase"] == "evaluate":
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def record_sample_predictions(
        network: Network, method: Method, inputs: InputNormaliser
    ) -> None:
        nonlocal measuring
        start_time = time.perf_counter()
        for path in tasks:
            predictions.append(
                predict_sample_of_file(
                    network, method, inputs, path, spec["task"]["classes"], count
                )
            )
        measuring = time.perf_counter() - start_time
        predictions.append(
            predict_sample_of_file(
                network, method, inputs, test, spec["task"]["classes"], count * len(network.classes)
            )
        )

    complete_and_run_job_spec(
        {**spec, "out": str(out)}, record_job_event, hook=record_sample_predictions
    )
    ended = time.perf_counter()
    folder = out / "result"
    result = json.loads((folder / "result.json").read_text())
    files = {part["name"]: folder / part["file"] for part in result["parts"]}
    return DlcftUpdateMeasurement(
        at["evaluate"] - at["train"],
        cpu_times["evaluate"] - cpu_times["train"],
        ended - at["evaluate"] - measuring,
        peak * 1024,
        {name: path.stat().st_size for name, path in files.items()},
        {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()},
        read_loss_forecast_terms(spec["parent"], _list_result_parts(folder), result),
        predictions[:-1],
        predictions[-1],
        measuring,
    )


@torch.inference_mode()
def predict_sample_of_file(
    network: Network,
    method: Method,
    inputs: InputNormaliser,
    path: Path,
    classes: list[str],
    count: int,
) -> NetworkPredictions:
    """Predict a fixed sample of `count` images of a file."""
    data = Dataset.read_dataset_file(path, classes)
    rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:count]
    logits = [
        method.predict_logits(network, inputs(images), None).cpu()
        for images in data.images[rows].split(BATCH)
    ]
    return NetworkPredictions(
        torch.cat(logits).double().numpy(),
        data.convert_labels_to_targets(network.classes)[rows].numpy(),
    )


def read_loss_forecast_terms(
    parent: Json, parts: list[Json], result: Json
) -> LossForecastTerms | None:
    """Read the loss forecast of an update and its terms from the files of two versions."""
    if "forecast" not in result:
        return None
    section = MethodStateSection()
    old, new = _load_part_tensors(parent["parts"]), _load_part_tensors(parts)
    curvature_tensors = _load_part_tensors(
        [part for part in parent["parts"] if part["type"] == "curvature"]
    )
    section.replace_content(
        curvature_tensors, parent["manifest"]["method"]["state"]["curvature"], torch.device("cpu")
    )
    memory = CurvatureMemory(section)
    moved = {
        n: t - old[n]
        for n, t in new.items()
        if n.startswith(("displacement.", "head.")) and n in old
    }
    blocks, rise = (
        float(memory.curvature.compute_penalty_and_gradient(moved)[1]),
        result["forecast"]["predicted"],
    )
    bend = memory.coupling * blocks
    new_coupling = result["method"]["state"]["curvature"]["coupling"]
    return LossForecastTerms(rise, bend, rise - bend, blocks, rise - bend + new_coupling * blocks)


def run_function_in_child(function: Any, *arguments: Any) -> Any:
    """Call a function in a child process with its own memory, and return its value."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(
        target=_run_work_and_queue_result, args=(queue, functools.partial(function, *arguments))
    )
    child.start()
    while True:
        try:
            good, value = queue.get(timeout=1)
            break
        except Empty:
            if not child.is_alive() and queue.empty():
                raise SystemExit(f"a child ended with {child.exitcode}") from None
    child.join()
    if not good:
        raise SystemExit(value)
    return value


def _run_work_and_queue_result(queue: Any, work: Any) -> None:
    try:
        queue.put((True, work()))
    except Exception as error:
        queue.put((False, f"{type(error).__name__}: {error}"))
        raise


def _build_job_spec(
    options: argparse.Namespace,
    scenario: str,
    recipe: RecipeOut,
    task: Json,
    parent: Json,
    base: Json,
) -> Json:
    return {
        "architecture": ARCHITECTURE,
        "image": {"size": 32, "channels": 3},
        "scenario": scenario,
        "recipe": recipe,
        "normalise": NORMALISE,
        "classes": task["classes"] if scenario == "data" else None,
        "task": task,
        "history": [],
        "erased_tasks": [],
        "parent": parent,
        "base": base,
        "snapshot": None,
        "threads": options.threads,
        "device": options.device,
    }


def _read_manifest_of_job_result(folder: Path) -> Json:
    result = json.loads((folder / "result.json").read_text())
    return {name: result[name] for name in ("classes", "heads", "method", "normalise", "network")}


def _load_part_tensors(parts: list[Json]) -> dict[str, Tensor]:
    return {name: t for part in parts for name, t in load_tensors(Path(part["path"])).items()}


def _list_result_parts(folder: Path) -> list[Json]:
    result = json.loads((folder / "result.json").read_text())
    return [{**part, "path": str(folder / part["file"])} for part in result["parts"]]


if __name__ == "__main__":
    main()
