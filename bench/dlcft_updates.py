"""Many updates of one model by DLCFT: whether they stay equally cheap, and whether their forecasts come true.

    python -m bench.dlcft_updates --data DIR [--updates 100] [--curvature tkfac] [--threads 2]

DIR holds `cifar100/classes_*.zip`. A ResNet-20 learns the first 80 classes, then the images of the other 20 come in
`--updates` tasks of the data scenario, each learned in a process of its own by the product's job, at a learning rate
drawn anew from 0.0003 to 0.003, so that updates differ in what they cost. Printed are, for some updates and as a
ratio of the last five to the second to sixth: seconds from the first step to the end of the curvature pass, and peak
memory (goal for both ≤ 1.1), with the evaluation apart; bytes of a version's parts, and of those that are new in it.
Then the forecast, ½ Δᵀ H Δ (with the gradient where tasks ended), against the measured rise of the mean loss on
`--measured` images of each earlier task: rank correlation (goal ≥ 0.9), calibration, the fall of their accuracy, and how long
measuring took beyond the end of training, when the forecast is known.
"""

import argparse
import functools
import hashlib
import json
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy.stats
import torch
import torch._dynamo  # the first optimizer of every child would import it

from bench.experiment.data import Files
from bench.experiment.plan import DataSet, Images
from core.learn import job
from core.learn.dataset import Dataset
from core.learn.methods.base import Method
from core.learn.networks import Network
from core.learn.precision import Inputs
from core.learn.recipe import resolve
from worker.child import MALLOC

NORMALISE = {"mean": [0.5071, 0.4865, 0.4409], "std": [0.2673, 0.2564, 0.2762]}
ARCHITECTURE = {"name": "resnet20"}
BASE = Images(path="cifar100", classes="0-79", train_per_class=250)
RATES = 3e-4, 3e-3
FIRST, LAST = slice(1, 6), slice(-5, None)  # updates that are compared
BATCH = 256

Json = dict[str, Any]


@dataclass
class Update:
    """What one update cost and said. Losses and accuracies are means over the earlier tasks' images."""

    seconds: float
    evaluating: float
    peak: int
    bytes: dict[str, int]
    digests: dict[str, str]
    predicted: float | None
    before: list[tuple[float, float]]
    after: list[tuple[float, float]]
    measuring: float


def main() -> None:
    """Learn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--base-epochs", type=int, default=8)
    parser.add_argument("--curvature", choices=("diagonal", "kfac", "tkfac"), default="tkfac")
    parser.add_argument("--measured", type=int, default=40, help="images of each earlier task, all at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):  # as a worker's jobs run
        os.execve(
            sys.executable, [sys.executable, "-m", "bench.dlcft_updates", *sys.argv[1:]], os.environ | MALLOC
        )
    with tempfile.TemporaryDirectory() as folder:
        updates = learn(options, Path(folder))
    print(
        f"\nresnet20, {options.curvature}, {options.threads} threads, {options.device}, torch {torch.__version__}"
    )
    print(*costs(updates), *forecasts(updates), sep="\n")


def learn(options: argparse.Namespace, folder: Path) -> list[Update]:
    """The base, then all updates, one after the other."""
    files = Files(options.data, folder / "data")
    stream = DataSet(name="stream", path="cifar100", classes="80-99", splits=options.updates)
    names = files.source(BASE).names
    base_classes, classes = BASE.chosen(len(names)), stream.chosen(len(names))
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
        "train": str(files.file(BASE, base_classes, "train")),
        "held_out": str(files.file(BASE, base_classes, "test")),
    }
    spec = _spec(options, "class", resolve(recipe, "class").model_dump(by_alias=True), task, first, first)
    begun = time.monotonic()
    in_child(run_base, spec, folder / "base")
    result = json.loads((folder / "base" / "result" / "result.json").read_text())
    counts = result["results"][-1]
    accuracy = counts["correct"] / counts["total"]
    print(f"base: {accuracy:.3f} on its 80 classes after {time.monotonic() - begun:.0f} s", flush=True)
    parts = [part for part in _parts(folder / "base" / "result") if part["type"] == "backbone"]
    zero: Json = {
        "version": 0,
        "manifest": {"classes": [names[c] for c in classes], "heads": []},
        "parts": parts,
    }
    parent, tasks, updates, before = zero, list[Path](), list[Update](), list[tuple[float, float]]()
    draw = random.Random(0)
    for i in range(options.updates):
        rate = RATES[0] * (RATES[1] / RATES[0]) ** draw.random()
        patch: Json = {"method": {"name": "dlcft", "curvature": options.curvature, "probes": 1}}
        patch |= {
            "optimizer": {"name": "adam", "lr": rate, "head_lr": 10 * rate, "weight_decay": 1e-5},
            "augment": "shift-flip",
        }
        recipe = resolve({**patch, "epochs": options.epochs}, "data").model_dump(by_alias=True)
        tasks.append(files.file(stream, classes, "train", (i, options.updates, 0)))
        task = {
            "number": i + 1,
            "classes": zero["manifest"]["classes"],
            "train": str(tasks[-1]),
            "held_out": None,
        }
        out = folder / f"update-{i + 1}"
        spec = _spec(options, "data", recipe, task, parent, zero)
        update = in_child(run_update, spec, out, tasks, before, options.measured)
        updates.append(update)
        before = update.after
        parent = {"version": i + 1, "manifest": _manifest(out / "result"), "parts": _parts(out / "result")}
        if i % 10 == 9:
            print(f"update {i + 1}: {update.seconds:.1f} s, forecast {update.predicted}", flush=True)
    return updates


def run_base(spec: Json, out: Path) -> None:
    """In a child: train the base."""
    job.run({**spec, "out": str(out)}, lambda event: None)


def run_update(
    spec: Json, out: Path, tasks: list[Path], before: list[tuple[float, float]], count: int
) -> Update:
    """In a child: one update, timed by the job's own events, and its losses on all tasks so far."""
    at: dict[str, float] = {}
    peak = 0
    after: list[tuple[float, float]] = []
    measuring = 0.0

    def emit(event: Json) -> None:
        nonlocal peak
        if event["event"] == "phase":
            at[event["phase"]] = time.perf_counter()
            if event["phase"] == "evaluate":
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def judge(network: Network, method: Method, inputs: Inputs) -> None:
        nonlocal measuring
        begun = time.perf_counter()
        for path in tasks:
            after.append(measured(network, method, inputs, path, spec["task"]["classes"], count))
        measuring = time.perf_counter() - begun

    job.run({**spec, "out": str(out)}, emit, judge=judge)
    ended = time.perf_counter()
    folder = out / "result"
    result = json.loads((folder / "result.json").read_text())
    files = {part["name"]: folder / part["file"] for part in result["parts"]}
    return Update(
        at["evaluate"] - at["train"],
        ended - at["evaluate"] - measuring,
        peak * 1024,
        {name: path.stat().st_size for name, path in files.items()},
        {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()},
        (result.get("forecast") or {}).get("predicted"),
        before,
        after,
        measuring,
    )


@torch.inference_mode()
def measured(
    network: Network, method: Method, inputs: Inputs, path: Path, classes: list[str], count: int
) -> tuple[float, float]:
    """Mean loss and accuracy on `count` of a task's training images, always the same."""
    data = Dataset.read(path, classes)
    rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:count]
    kept, wanted = data.images[rows], data.units(network.classes)[rows]
    loss = right = 0.0
    for images, y in zip(kept.split(BATCH), wanted.split(BATCH), strict=True):
        x, y = inputs(images), y.to(inputs.device)
        loss += float(method.example_losses(network, x, y, None).double().sum())
        right += float((method.predict_logits(network, x, None).argmax(1) == y).sum())
    return loss / len(rows), right / len(rows)


def in_child(function: Any, *arguments: Any) -> Any:
    """A function's value, from a process of its own, whose memory is its own too."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_answer, args=(queue, functools.partial(function, *arguments)))
    child.start()
    while True:
        try:
            good, value = queue.get(timeout=1)
            break
        except Exception:  # noqa: BLE001 - multiprocessing's Empty: nothing yet
            if not child.is_alive() and queue.empty():
                raise SystemExit(f"a child ended with {child.exitcode}") from None
    child.join()
    if not good:
        raise SystemExit(value)
    return value


def _answer(queue: Any, work: Any) -> None:
    try:
        queue.put((True, work()))
    except Exception as error:
        queue.put((False, f"{type(error).__name__}: {error}"))
        raise


def costs(updates: list[Update]) -> list[str]:
    """Time, memory and bytes over the updates."""
    lines = ["update   s to the end of the curvature pass   s evaluating   peak MB   MB of parts   MB new"]
    known: set[str] = set()
    for i, update in enumerate(updates):
        new = sum(update.bytes[name] for name, digest in update.digests.items() if digest not in known)
        known |= set(update.digests.values())
        if i in (0, 1, len(updates) // 2, len(updates) - 1):
            lines.append(
                f"{i + 1:6} {update.seconds:36.2f} {update.evaluating:14.2f} {update.peak / 1e6:9.0f} "
                f"{sum(update.bytes.values()) / 1e6:13.2f} {new / 1e6:8.2f}"
            )
    for name in ("seconds", "peak"):
        late, early = (statistics.median(getattr(u, name) for u in updates[part]) for part in (LAST, FIRST))
        lines.append(f"{name}: last five over the second to sixth: {late / early:.3f} (goal ≤ 1.1)")
    backbones = [{n: d for n, d in u.digests.items() if n.startswith("backbone")} for u in updates]
    same = all(b == backbones[0] for b in backbones)
    lines.append(f"the base's parts are {'the same' if same else 'NOT the same'} in all versions")
    return lines


def forecasts(updates: list[Update]) -> list[str]:
    """Predicted beside measured, over all updates that have one."""
    rows = []
    for update in updates:
        if update.predicted is None or not update.before:
            continue
        n = len(update.before)
        old, new = (
            tuple(map(statistics.fmean, zip(*part, strict=True)))
            for part in (update.before, update.after[:n])
        )
        rows.append((update.predicted, new[0] - old[0], new[1] - old[1]))
    predicted, rise, accuracy = zip(*rows, strict=True)
    rank = scipy.stats.spearmanr(predicted, rise)
    ratios = sorted(m / p for p, m in zip(predicted, rise, strict=True) if p > 0)
    quarter = len(ratios) // 4
    fall = scipy.stats.spearmanr(predicted, [-a for a in accuracy])
    slope = statistics.median(-a / p for p, a in zip(predicted, accuracy, strict=True) if p > 0)
    return [
        f"forecasts: {len(rows)} updates, predicted {min(predicted):.3g} to {max(predicted):.3g}, measured rise "
        f"{min(rise):.3g} to {max(rise):.3g}",
        f"rank correlation {rank.statistic:.3f} (goal ≥ 0.9); measured over predicted: median "
        f"{statistics.median(ratios):.2f}, quartiles {ratios[quarter]:.2f} to {ratios[-quarter - 1]:.2f}",
        f"accuracy on earlier tasks: rank correlation of its fall with the forecast {fall.statistic:.3f}; it falls by "
        f"{100 * slope:.3f} points per unit of predicted loss (median)",
        f"known {statistics.median(u.measuring for u in updates[LAST]):.1f} s sooner than measured, in the last updates",
    ]


def _spec(
    options: argparse.Namespace, scenario: str, recipe: Json, task: Json, parent: Json, base: Json
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


def _manifest(folder: Path) -> Json:
    result = json.loads((folder / "result.json").read_text())
    return {name: result[name] for name in ("classes", "heads", "method", "normalise", "network")}


def _parts(folder: Path) -> list[Json]:
    result = json.loads((folder / "result.json").read_text())
    return [{**part, "path": str(folder / part["file"])} for part in result["parts"]]


if __name__ == "__main__":
    main()
