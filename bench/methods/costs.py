"""What every registered method costs beside plain fine-tuning on the same network, in the same run.

    python -m bench.methods.costs [--data DIR] [--methods er gem …] [--threads 2] [--device cpu]
        [--rounds 2]

A ResNet-20 (a small vision transformer for methods that need one) learns a first task of ten
classes with each method, then a second one. Printed per method, as ratios to `finetune`: a step of
the second task, beside what theory says; the whole second update, from measuring the parent to the
evaluated version, Fisher or herding included; and in MB what the method holds beside network and
optimizer while it trains, by how much a step rises above that beyond a step of `finetune`, and what
it leaves in the version. In the row `gem, task 21` memories of twenty tasks are held;
`ewc, 500 drawn` takes one drawn class per image for its Fisher, not all; `der++, shared` has one
draw for logits and labels; `gem, 64 drawn` looks at 64 images of a memory in a step. Methods take
turns, `--rounds` times; ratios are of medians. Goals for whole updates: EWC ≤ 1.2, DER++ ≤ 2.2 and
with a shared draw ≤ 2.1, GEM with 64 drawn ≤ 3. Images are made up unless DIR holds
`cifar100/classes_*.zip`.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from bench.job_run import complete_and_run_job_spec
from bench.methods.theory import format_expected_cost
from core.contract.jobs.control_request import JobControlRequest
from core.contract.jobs.job_spec import LocalVersionPartFile
from core.ingest.dataset import memory_map_image_dataset, write_image_dataset_file
from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
from core.ingest.limits import ArchiveLimits
from core.learning.catalogue import build_recipe_catalogue
from core.learning.data import image_packs
from core.learning.methods import registry
from core.learning.state import TYPES, save_tensors
from core.recipe.resolve import resolve_recipe
from core.settings import Settings
from worker.attempts.child import MALLOC

GOALS = {
    "ewc": 1.2,
    "ewc, 500 drawn": 1.2,
    "ewc-online": 1.2,
    "der++": 2.2,
    "der++, shared": 2.1,
    "gem, 64 drawn": 3.0,
}
NETWORKS: dict[str, dict[str, Any]] = {
    "vit": {"name": "vit"},
    "dne": {"name": "dne"},
}  # family → its example, where resnet20 is refused
CLASSES = 10  # of each task
FIRST_IMAGES = 512  # of the first task: every memory fills up
HELD_OUT = 200  # images of each task
WARM, STEPS, STEP_SECONDS = 1, 8, 4.0  # a turn's steps: so many, or fewer slow ones
MANY_EPOCHS = 100  # more steps than any turn takes
PAST_TASKS = 20
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "ewc": {
        "ewc, 500 drawn": {"fisher": "sample", "examples": 500}
    },  # a class each, not the sum over all
    "der++": {"der++, shared": {"draws": "shared"}},
    "gem": {"gem, 64 drawn": {"memory_batch": 64}},
}
"""Method → row → hyper-parameters that differ from its defaults."""
BASE = {"version": 0, "manifest": {"init": {"kind": "random", "seed": 0}}, "parts": []}


@dataclass
class MethodCostCase:
    """A method on a network whose training cost is measured."""

    label: str
    method: str
    network: dict[str, Any]
    scenario: str
    past: int = 1  # tasks learned before
    hyper: dict[str, Any] = field(default_factory=dict)  # what is not the method's default
    parent: dict[str, Any] = field(default_factory=lambda: BASE)
    steps: list[float] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)
    held: int = 0
    peak: int = 0
    stored: int = 0

    @property
    def reference_key(self) -> tuple[str, str]:
        """Key of the fine-tuning run with which the case is compared."""
        return self.network["name"], self.scenario


def main() -> None:
    """Measure time and memory of training by each method relative to fine-tuning; print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument(
        "--methods", nargs="+", choices=list(registry.METHODS), default=list(registry.METHODS)
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument(
        "--images", type=int, default=750, help="training images of the second task"
    )
    parser.add_argument("--epochs", type=int, default=2, help="of a whole update")
    options = parser.parse_args()
    # With the allocator settings of a worker's jobs.
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(
            sys.executable,
            [sys.executable, "-m", "bench.methods.costs", *sys.argv[1:]],
            os.environ | MALLOC,
        )
    with tempfile.TemporaryDirectory() as folder:
        write_two_task_datasets(Path(folder), options.data, options.images)
        bench = MethodCostBench(Path(folder), options)
        cases = list(list_cost_cases(options.methods))
        for case in cases:
            bench.learn_first_task(case)
            bench.measure_and_store_step_memory(case)
        for _, case in itertools.product(range(options.rounds), cases):
            case.steps += bench.measure_step_seconds(case)
        for _, case in itertools.product(range(options.rounds), cases):
            if case.past == 1:
                case.updates.append(bench.measure_update_seconds(case))
    print(
        f"batch {options.batch}, {options.threads} threads, {options.device}, torch "
        f"{torch.__version__}"
    )
    print_cost_table(cases, options.batch)


def list_cost_cases(names: list[str]) -> Iterator[MethodCostCase]:
    """Yield the methods and networks to measure, with the fine-tuning runs they are compared with."""
    requested_cases = [_build_method_cost_case(name) for name in names if name != "finetune"] or [
        _build_method_cost_case("finetune")
    ]
    for network, scenario in dict.fromkeys(
        (json.dumps(c.network), c.scenario) for c in requested_cases
    ):
        yield MethodCostCase("finetune", "finetune", json.loads(network), scenario)
    for case in requested_cases:
        if case.method != "finetune":
            yield case
        if case.method == "gem":
            yield MethodCostCase(
                f"gem, task {PAST_TASKS + 1}", "gem", case.network, case.scenario, PAST_TASKS
            )
        for label, hyper in VARIANTS.get(case.method, {}).items():
            yield MethodCostCase(label, case.method, case.network, case.scenario, hyper=hyper)


def _build_method_cost_case(name: str) -> MethodCostCase:
    method = registry.get_method(name)
    families = method.accepts.architectures
    refused = families is not None and "small-resnet" not in families
    network = NETWORKS[families[0]] if families and refused else {"name": "resnet20"}
    return MethodCostCase(
        name, name, network, "class" if "class" in method.scenarios else method.scenarios[0]
    )


class MethodCostBench:
    """Runs learning jobs for measurements, with their files in `folder`."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._device = torch.device(options.device)
        self._runs = itertools.count(1)

    def learn_first_task(self, case: MethodCostCase) -> None:
        """Learn the first task of a case, so that the measured second task has a parent version."""
        result = self._run_task_job(case, 1, epochs=1)
        facts = json.loads((result / "result.json").read_text())
        manifest_keys = ("classes", "heads", "network", "method", "normalise")
        parts = [
            {"name": part["name"], "type": part["type"], "path": str(result / part["file"])}
            for part in facts["parts"]
        ]
        replay_buffer = image_packs.read_method_state(
            [LocalVersionPartFile.from_json(part) for part in parts]
        ).get("buffer")
        # Store the buffer with its images, as versions did before image packs.
        if replay_buffer is not None and case.past > 1:
            parts = [part for part in parts if part["type"] != "buffer" or part["name"] == "buffer"]
            copies = {
                name: t.repeat(case.past, *[1] * (t.dim() - 1)) for name, t in replay_buffer.items()
            }
            copies["tasks"] = torch.arange(1, case.past + 1).repeat_interleave(
                len(replay_buffer["tasks"])
            )
            save_tensors(copies, result / "parts" / "buffer.safetensors")
        case.parent = {
            "version": 1,
            "manifest": {key: facts[key] for key in manifest_keys},
            "parts": parts,
        }
        case.stored = sum(Path(p["path"]).stat().st_size for p in parts if p["type"] in TYPES)

    def measure_step_seconds(self, case: MethodCostCase) -> list[float]:
        """Measure the seconds of training steps of the second task."""
        clock = StepTimeRecorder(self._device)
        self._run_task_job(case, case.past + 1, clock, epochs=MANY_EPOCHS)
        return clock.step_durations

    def measure_update_seconds(self, case: MethodCostCase) -> float:
        """Measure the seconds of learning the whole second task."""
        start = time.perf_counter()
        self._run_task_job(case, 2, epochs=self._options.epochs, held_out=True)
        return time.perf_counter() - start

    def measure_and_store_step_memory(self, case: MethodCostCase) -> None:
        """Measure the memory in use after a training step, and its rise during the next one."""
        method, peak = registry.get_method(case.method), StepMemoryRecorder(self._device)
        after_step = method.after_step

        def record_kept_bytes_after_step(self: Any, ctx: Any, batch: Any) -> None:
            after_step(self, ctx, batch)
            sections = [section.tensors for _, section in self.state.iterate_filled_sections()]
            storages = {
                t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
                for t in _iterate_tensors([sections, ctx.cache])
            }
            case.held = sum(storages.values())

        with mock.patch.object(method, "after_step", record_kept_bytes_after_step):
            self._run_task_job(case, case.past + 1, peak, epochs=MANY_EPOCHS)
        case.peak = peak.bytes

    def _run_task_job(
        self,
        case: MethodCostCase,
        number: int,
        control: Any = None,
        *,
        epochs: int,
        held_out: bool = False,
    ) -> Path:
        """Run the learning job of one task; return the folder of its result, missing if it was
        stopped.
        """
        options, accepts = self._options, registry.get_method(case.method).accepts
        out = self._folder / f"run-{next(self._runs)}"
        out.mkdir()
        tasks = [
            {
                "number": k,
                "classes": [
                    f"{i + (CLASSES if k > 1 and case.scenario != 'data' else 0)}"
                    for i in range(CLASSES)
                ],
                "train": str(self._folder / f"train-{min(k, 2)}.safetensors"),
                "held_out": str(self._folder / f"held-out-{min(k, 2)}.safetensors")
                if held_out
                else None,
            }
            for k in dict.fromkeys((1, number))
        ]
        patch = {
            "method": {"name": case.method, **case.hyper},
            "epochs": epochs,
            "batch_size": options.batch,
            "depth": max(accepts.depths),
            "optimizer": {"name": accepts.optimizers[0], "lr": 0.001},
        }
        spec = {
            "architecture": case.network,
            "image": {"size": 32, "channels": 3},
            "scenario": case.scenario,
            "recipe": resolve_recipe(build_recipe_catalogue(), case.scenario, patch).recipe,
            "normalise": None,
            "classes": tasks[0]["classes"] if case.scenario == "data" else None,
            "task": tasks[-1],
            "history": tasks[:-1],
            "parent": case.parent,
            "base": BASE,
            "snapshot": None,
            "out": str(out),
            "threads": options.threads,
            "device": options.device,
        }
        complete_and_run_job_spec(spec, control=control)
        return out / "result"


class StepTimeRecorder:
    """Training control that records when each step ended, and stops the job after enough steps."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ends: list[float] = []

    @property
    def has_pending_request(self) -> bool:
        """Record the end of a training step; True once enough were measured."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._ends.append(time.perf_counter())
        measured_steps = len(self._ends) - WARM
        return measured_steps >= STEPS or (
            measured_steps >= 1 and self._ends[-1] - self._ends[0] > STEP_SECONDS
        )

    def take_control_request(self) -> JobControlRequest:
        """Request that the training job stops."""
        return JobControlRequest.STOP

    @property
    def step_durations(self) -> list[float]:
        """Seconds of each measured training step after the warm-up."""
        return [end - start for start, end in itertools.pairwise(self._ends[WARM - 1 :])]


class StepMemoryRecorder:
    """Training control that measures the memory of the second step, then stops the job."""

    def __init__(self, device: torch.device) -> None:
        self.bytes = 0
        self._cuda = device if device.type == "cuda" else None
        self._step = 0
        self._start = 0
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    @property
    def has_pending_request(self) -> bool:
        """Record the end of a training step; True after the second one."""
        self._step += 1
        if self._step == 1:
            self._begin_watching_memory()
        else:
            self._end_watching_memory()
        return self._step == 2

    def take_control_request(self) -> JobControlRequest:
        """Request that the training job stops."""
        return JobControlRequest.STOP

    def _begin_watching_memory(self) -> None:
        if self._cuda is None:
            self._profile.start()
        else:
            torch.cuda.reset_peak_memory_stats(self._cuda)
            self._start = torch.cuda.memory_allocated(self._cuda)

    def _end_watching_memory(self) -> None:
        if self._cuda is not None:
            self.bytes = torch.cuda.max_memory_allocated(self._cuda) - self._start
            return
        self._profile.stop()
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            self._profile.export_chrome_trace(file.name)
            events = json.loads(Path(file.name).read_text())["traceEvents"]
        changes = [(e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]"]
        self.bytes = max(itertools.accumulate(change for _, change in sorted(changes)), default=0)


def write_two_task_datasets(folder: Path, data: Path | None, count: int) -> None:
    """Write dataset files of two tasks: images of CIFAR-100, or random ones without `data`."""
    for task in (1, 2):
        if data is None:
            images, labels = _draw_noise_images_marked_by_class(task, 5000)
        else:
            archive = data / "cifar100" / f"classes_{task - 1}0-{task - 1}9.zip"
            options = IngestOptions(32, 3, ArchiveLimits.from_settings(Settings()))
            done = decode_archive_to_datasets(archive, "zip", folder / f"cifar-{task}", options)
            images, labels = memory_map_image_dataset(done.train)
        order = np.random.default_rng(task).permutation(len(labels))
        n = FIRST_IMAGES if task == 1 else count
        for part, rows in (("train", order[:n]), ("held-out", order[n : n + HELD_OUT])):
            file = folder / f"{part}-{task}.safetensors"
            write_image_dataset_file(
                file, labels[rows], (32, 32, 3), [np.ascontiguousarray(images[rows])]
            )


def _draw_noise_images_marked_by_class(seed: int, n: int) -> tuple[Any, Any]:
    """Return random images in which a bright row shows the class, with their labels."""
    random = np.random.default_rng(100 + seed)
    labels = np.arange(n, dtype=np.int64) % CLASSES
    images = random.integers(0, 120, (n, 32, 32, 3), dtype=np.uint8)
    images[np.arange(n), 3 * labels] += 120
    return images, labels


def _iterate_tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from itertools.chain(value.parameters(), value.buffers())
    elif isinstance(value, dict):
        yield from _iterate_tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _iterate_tensors(item)


def print_cost_table(cases: list[MethodCostCase], batch: int) -> None:
    """Print the measured training costs as a table, one line per method."""
    print(
        f"{'':14} {'network':9} {'step ms':>8} {'ratio':>6} {'theory':>6}  {'':24}"
        f" {'update s':>8} {'ratio':>6} {'goal':>6}   {'held MB':>8} {'peak MB':>8} "
        f"{'stored MB':>9}"
    )
    references = {case.reference_key: case for case in cases if case.label == "finetune"}
    for case in cases:
        plain = references[case.reference_key]
        hyper = resolve_recipe(
            build_recipe_catalogue(), case.scenario, {"method": {"name": case.method, **case.hyper}}
        ).recipe["method"]
        number, formula = format_expected_cost(case.method, hyper, batch, case.past + 1)
        step, plain_step = statistics.median(case.steps), statistics.median(plain.steps)
        update_columns = f"{'':8} {'':6} {'':6}"
        if case.updates:
            update, plain_update = statistics.median(case.updates), statistics.median(plain.updates)
            goal = f"≤ {GOALS[case.label]}" if case.label in GOALS else ""
            update_columns = f"{update:8.1f} {update / plain_update:6.2f} {goal:>6}"
        rise = max(0, case.peak - plain.peak)
        memory = "   ".join(f"{bytes_ / 2**20:8.1f}" for bytes_ in (case.held, rise, case.stored))
        print(
            f"{case.label:14} {case.network['name']:9} {step * 1e3:8.1f} {step / plain_step:6.2f} "
            f"{number:>6}  {formula:24} {update_columns}   {memory}",
            flush=True,
        )


if __name__ == "__main__":
    main()
