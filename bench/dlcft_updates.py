"""Many updates of one model by DLCFT: whether they stay equally cheap, and whether their forecasts come true.

    python -m bench.dlcft_updates --data DIR [--updates 100] [--curvature tkfac] [--threads 2]

DIR holds `cifar100/classes_*.zip`. A ResNet-20 learns the first 80 classes, then the images of the other 20 come in
`--updates` tasks of the data scenario, each learned in a process of its own by the product's job. Each task is also
tried once at a rate drawn from 0.0001 to 0.03: versions that nobody would keep, whose forecasts should say so; the
next task goes on from the version of the usual rate. Printed are, for some updates and as a
ratio of the last five to the second to sixth: seconds from the first step to the end of the curvature pass, by the clock and of the
processor, and peak memory (goal ≤ 1.1), with the evaluation apart; bytes of a version's parts, and of those that are new in it.
Then the forecast, c/2 Δᵀ H Δ + qᵀ Δ (c: the coupling of layers, q: the earlier tasks' gradient), against the measured rise of
the mean loss on `--measured` images of each earlier task, and on as many held-out images of each class: rank
correlation (goal ≥ 0.9), calibration, the fall of accuracy, and how long measuring took beyond the end of training,
when the forecast is known. A squared error's rise is exactly mean ½ ‖δ‖² + mean (f - y)ᵀ δ, δ the change of the
outputs f: each term of the forecast is set beside its own.
"""

import argparse
import functools
import hashlib
import itertools
import json
import math
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
from queue import Empty
from typing import Any

import numpy as np
import scipy.stats
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.experiment.data import Files
from bench.experiment.plan import DataSet, Images
from core.learn import job
from core.learn.catalogue import catalogue
from core.learn.dataset import Dataset
from core.learn.method import Method
from core.learn.methods.dlcft import DlcftHyper
from core.learn.methods.dlcft_memory import Memory
from core.learn.networks import Network
from core.learn.precision import Inputs
from core.learn.state import Section, load_tensors
from core.recipe.resolve import resolve
from worker.child import MALLOC

NORMALISE = {"mean": [0.5071, 0.4865, 0.4409], "std": [0.2673, 0.2564, 0.2762]}
ARCHITECTURE = {"name": "resnet20"}
BASE = Images(path="cifar100", classes="0-79", train_per_class=250)
RATE, TRIED = 1e-3, (1e-4, 3e-2)
FIRST, LAST = slice(1, 6), slice(-5, None)  # updates that are compared
BATCH = 256

Json = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What a network says of some images: logits float64 [n, classes], labels int64 [n].

    Arrays, since a tensor's memory is gone with the process that sends it.
    """

    logits: NDArray[np.float64]
    y: NDArray[np.int64]


@dataclass(frozen=True)
class Terms:
    """A rise of the mean loss, its part of second order and that of first order.

    `blocks`: the second order of layers by themselves; `late`: the rise by this update's own coupling, known after it.
    """

    rise: float
    bend: float
    slope: float
    blocks: float = math.nan
    late: float = math.nan


@dataclass
class Update:
    """What one update cost and said. `measured`, `held_out`: the earlier tasks' rise and the change of accuracy."""

    seconds: float
    processor: float
    evaluating: float
    peak: int
    bytes: dict[str, int]
    digests: dict[str, str]
    predicted: Terms | None
    tasks: list[Said]
    test: Said
    measuring: float
    measured: tuple[Terms, float] | None = None
    held_out: tuple[Terms, float] | None = None


def main() -> None:
    """Learn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--base-epochs", type=int, default=4)
    parser.add_argument("--curvature", choices=("diagonal", "kfac", "tkfac"), default="tkfac")
    parser.add_argument("--measured", type=int, default=20, help="images of each earlier task, all at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):  # as a worker's jobs run
        os.execve(
            sys.executable, [sys.executable, "-m", "bench.dlcft_updates", *sys.argv[1:]], os.environ | MALLOC
        )
    with tempfile.TemporaryDirectory() as folder:
        updates, trials = learn(options, Path(folder))
    print(
        f"\nresnet20, {options.curvature}, {options.threads} threads, {options.device}, torch {torch.__version__}"
    )
    print(*costs(updates), *forecasts(updates, trials), sep="\n")


def learn(options: argparse.Namespace, folder: Path) -> tuple[list[Update], list[Update]]:
    """The base, then all updates, one after the other: those that were kept, and those tried beside them."""
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
    spec = _spec(options, "class", resolve(catalogue(), "class", recipe).recipe, task, first, first)
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
    parent, tasks, updates = zero, list[Path](), list[Update]()
    before: Update | None = None
    test = files.file(stream, classes, "test")
    draw = random.Random(0)
    trials = list[Update]()
    for i in range(options.updates):
        tasks.append(files.file(stream, classes, "train", (i, options.updates, 0)))
        tried = TRIED[0] * (TRIED[1] / TRIED[0]) ** draw.random()
        for rate, found in ((tried, trials), (RATE, updates)):
            patch: Json = {"method": {"name": "dlcft", "curvature": options.curvature, "probes": 1}}
            patch["optimizer"] = {"name": "adam", "lr": rate, "head_lr": 10 * rate, "weight_decay": 1e-5}
            patch |= {"augment": "shift-flip", "epochs": options.epochs}
            recipe = resolve(catalogue(), "data", patch).recipe
            task = {"number": i + 1, "classes": zero["manifest"]["classes"], "train": str(tasks[-1])}
            out = folder / f"update-{i + 1}-{len(trials) - len(updates)}"
            spec = _spec(options, "data", recipe, {**task, "held_out": None}, parent, zero)
            update = in_child(run_update, spec, out, tasks, test, options.measured)
            if before is not None:
                update.measured = changed(before.tasks, update.tasks[:-1])
                update.held_out = changed([before.test], [update.test])
            found.append(update)
        trials[-1].tasks, before = [], updates[-1]
        parent = {"version": i + 1, "manifest": _manifest(out / "result"), "parts": _parts(out / "result")}
        if i % 10 == 9:
            print(
                f"update {i + 1}: {update.seconds:.1f} s, forecast {update.predicted}, {update.measured}",
                flush=True,
            )
    return updates, trials


def run_base(spec: Json, out: Path) -> None:
    """In a child: train the base."""
    job.run({**spec, "out": str(out)}, lambda event: None)


def run_update(spec: Json, out: Path, tasks: list[Path], test: Path, count: int) -> Update:
    """In a child: one update, timed by the job's own events, and what its network says of all tasks so far."""
    at: dict[str, float] = {}
    used: dict[str, float] = {}
    peak = 0
    said: list[Said] = []
    measuring = 0.0

    def emit(event: Json) -> None:
        nonlocal peak
        if event["event"] == "phase":
            at[event["phase"]], used[event["phase"]] = time.perf_counter(), time.process_time()
            if event["phase"] == "evaluate":
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def judge(network: Network, method: Method, inputs: Inputs) -> None:
        nonlocal measuring
        begun = time.perf_counter()
        for path in tasks:
            said.append(ask(network, method, inputs, path, spec["task"]["classes"], count))
        measuring = time.perf_counter() - begun
        said.append(ask(network, method, inputs, test, spec["task"]["classes"], count * len(network.classes)))

    job.run({**spec, "out": str(out)}, emit, judge=judge)
    ended = time.perf_counter()
    folder = out / "result"
    result = json.loads((folder / "result.json").read_text())
    files = {part["name"]: folder / part["file"] for part in result["parts"]}
    return Update(
        at["evaluate"] - at["train"],
        used["evaluate"] - used["train"],
        ended - at["evaluate"] - measuring,
        peak * 1024,
        {name: path.stat().st_size for name, path in files.items()},
        {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()},
        predicted(spec["parent"], _parts(folder), result),
        said[:-1],
        said[-1],
        measuring,
    )


@torch.inference_mode()
def ask(network: Network, method: Method, inputs: Inputs, path: Path, classes: list[str], count: int) -> Said:
    """What the network says of `count` images of a file, always the same."""
    data = Dataset.read(path, classes)
    rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:count]
    logits = [
        method.predict_logits(network, inputs(images), None).cpu()
        for images in data.images[rows].split(BATCH)
    ]
    return Said(torch.cat(logits).double().numpy(), data.units(network.classes)[rows].numpy())


def predicted(parent: Json, parts: list[Json], result: Json) -> Terms | None:
    """The forecast of an update, and its terms from the files of the two versions."""
    if "forecast" not in result:
        return None
    section = Section()
    old, new = _tensors(parent["parts"]), _tensors(parts)
    kept = _tensors([part for part in parent["parts"] if part["type"] == "curvature"])
    section.load(kept, parent["manifest"]["method"]["state"]["curvature"], torch.device("cpu"))
    memory = Memory(section)
    moved = {n: t - old[n] for n, t in new.items() if n.startswith(("displacement.", "head.")) and n in old}
    blocks, rise = float(memory.curvature.gradient(moved)[1]), result["forecast"]["predicted"]
    bend = memory.coupling * blocks
    own = result["method"]["state"]["curvature"]["coupling"]
    return Terms(rise, bend, rise - bend, blocks, rise - bend + own * blocks)


def changed(before: list[Said], after: list[Said]) -> tuple[Terms, float]:
    """How the mean loss of files rose, each file counting alike, and how accuracy changed."""
    found = []
    for old, new in zip(before, after, strict=True):
        delta = new.logits - old.logits
        residual = old.logits - DlcftHyper().alpha * np.eye(delta.shape[1])[old.y]
        bend = (delta**2).sum(1).mean() / 2
        slope = (residual * delta).sum(1).mean()
        right = [(said.logits.argmax(1) == said.y).mean() for said in (old, new)]
        found.append((bend, slope, right[1] - right[0]))
    bend, slope, accuracy = (statistics.fmean(column) for column in zip(*found, strict=True))
    return Terms(bend + slope, bend, slope), accuracy


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
        except Empty:
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
    for name in ("seconds", "processor", "peak"):
        late, early = (statistics.median(getattr(u, name) for u in updates[part]) for part in (LAST, FIRST))
        lines.append(f"{name}: last five over the second to sixth: {late / early:.3f} (goal ≤ 1.1)")
    backbones = [{n: d for n, d in u.digests.items() if n.startswith("backbone")} for u in updates]
    same = all(b == backbones[0] for b in backbones)
    lines.append(f"the base's parts are {'the same' if same else 'NOT the same'} in all versions")
    return lines


def forecasts(updates: list[Update], trials: list[Update]) -> list[str]:
    """Predicted beside measured, over all updates that have one, and over those kept and those tried apart."""
    both = [(False, u) for u in updates] + [(True, u) for u in trials]
    lines = []
    for where, part in (("images of the earlier tasks", "measured"), ("held-out images", "held_out")):
        rows = [(tried, u.predicted, *getattr(u, part)) for tried, u in both if u.predicted is not None]
        tried = [row[0] for row in rows]
        said, seen = [row[1] for row in rows], [row[2] for row in rows]
        lines.append(
            f"{where}: predicted {_span([t.rise for t in said])}; measured {_span([t.rise for t in seen])}"
        )
        rises, changes = [t.rise for t in seen], [t.bend for t in seen]
        for name, p, m in (
            ("forecast", [t.rise for t in said], rises),
            ("forecast by the update's own coupling", [t.late for t in said], rises),
            ("c/2 Δᵀ H Δ alone", [t.bend for t in said], rises),
            ("1/2 Δᵀ H Δ alone", [t.blocks for t in said], rises),
            ("c/2 Δᵀ H Δ and mean ½ ‖δ‖²", [t.bend for t in said], changes),
            ("1/2 Δᵀ H Δ and mean ½ ‖δ‖²", [t.blocks for t in said], changes),
            ("qᵀ Δ and mean (f - y)ᵀ δ", [t.slope for t in said], [t.slope for t in seen]),
            ("forecast and fall of accuracy", [t.rise for t in said], [-row[3] for row in rows]),
        ):
            lines.append(f"  {name}: {_beside(p, m, tried)}")
        lines += _bands([t.rise for t in said], rises, [-row[3] for row in rows])
    lines.append(
        f"known {statistics.median(u.measuring for u in updates[LAST]):.1f} s sooner than measured on the earlier "
        "tasks, in the last updates"
    )
    return lines


def _bands(predicted: list[float], measured: list[float], falls: list[float]) -> list[str]:
    """Calibration: updates in bands of the forecast, with what was measured of them."""
    edges = [-math.inf, -1, 0, 1, 3, 10, 30, 100, math.inf]
    lines = []
    for low, high in itertools.pairwise(edges):
        rows = [(p, m, f) for p, m, f in zip(predicted, measured, falls, strict=True) if low <= p < high]
        if rows:
            p, m, f = (statistics.median(column) for column in zip(*rows, strict=True))
            lines.append(
                f"  forecast {low:g} to {high:g}: {len(rows)} updates; medians: forecast {p:.3g}, measured {m:.3g}, "
                f"accuracy falls by {100 * f:.1f} points"
            )
    return lines


def _span(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}, median {statistics.median(values):.3g}"


def _beside(predicted: list[float], measured: list[float], tried: list[bool]) -> str:
    """Rank correlations, of all and of those kept and tried apart; measured by predicted of those tried."""
    columns = [predicted, measured, tried]
    parts = [list(zip(*columns, strict=True))]
    parts += [[row for row in parts[0] if row[2] is which] for which in (False, True)]
    all_, kept, tries = (
        scipy.stats.spearmanr([r[0] for r in rows], [r[1] for r in rows]).statistic for rows in parts
    )
    low, middle, high = statistics.quantiles([m / p for p, m, _ in parts[2] if p], n=4)
    return (
        f"rank correlation {all_:.3f} (kept {kept:.3f}, tried {tries:.3f}); of those tried, measured by predicted "
        f"{middle:.2f} ({low:.2f} to {high:.2f})"
    )


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


def _tensors(parts: list[Json]) -> dict[str, Tensor]:
    return {name: t for part in parts for name, t in load_tensors(Path(part["path"])).items()}


def _parts(folder: Path) -> list[Json]:
    result = json.loads((folder / "result.json").read_text())
    return [{**part, "path": str(folder / part["file"])} for part in result["parts"]]


if __name__ == "__main__":
    main()
