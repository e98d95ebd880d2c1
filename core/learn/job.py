"""What the job process runs: one task, from a spec file to a result folder, with events on a pipe.

The spec names local files only; the result is parts (safetensors) and `result.json`. The process has no clock,
no database and no store: it reports events as JSON lines and writes snapshots when its control pipe asks.
Phases: measure (base and parent on the new task) → train → consolidate → evaluate (the new version on every
task that it can answer).
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.learn import methods, predicting
from core.learn.augment import Augmentation, epoch_seed
from core.learn.context import Context
from core.learn.control import EXIT_ORPHANED, NoControl, PipeControl
from core.learn.dataset import DataError, Dataset
from core.learn.evaluate import can_answer, measure
from core.learn.loop import Control, Loop, NonFinite, Snapshot, Stopped
from core.learn.methods.base import Method
from core.learn.networks import Network
from core.learn.output import Part, read_snapshot, write_result, write_snapshot
from core.learn.precision import Inputs, choose_device, place
from core.learn.recipe import Recipe, resolve
from core.learn.state import TYPES, State, load_tensors

Emit = Callable[[dict[str, Any]], None]

OPTIMIZER_PART = "optimizer"
EXIT_ERROR = 1


def run(spec: Mapping[str, Any], emit: Emit, control: Control | None = None) -> None:
    """Learn the task of a spec. Ends with a `done` or `stopped` event, or raises.

    Raises DataError for a dataset that does not fit, NonFinite for a diverged loss, ValueError for a spec that
    contradicts itself.
    """
    Job(spec, emit, control or NoControl()).run()


class Job:
    """One attempt at one task."""

    def __init__(self, spec: Mapping[str, Any], emit: Emit, control: Control) -> None:
        torch.set_num_threads(int(spec["threads"]))
        self._spec = spec
        self._emit = emit
        self._control = control
        self._recipe: Recipe = resolve(spec["recipe"], spec["scenario"])
        self._device = choose_device(spec.get("device") or "auto")
        self._normalise = spec.get("normalise") or spec["parent"]["manifest"].get("normalise")
        self._inputs = Inputs(self._normalise, spec["image"]["channels"], self._device)
        self._warnings: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        task = spec["task"]
        self._number = int(task["number"])
        self._classes: list[str] = list(task["classes"])

    def run(self) -> None:
        """All phases; resumes when the spec names a snapshot."""
        spec, recipe = self._spec, self._recipe
        torch.manual_seed(epoch_seed(recipe.seed, self._number, 0))
        data = Dataset.read(Path(spec["task"]["train"]), self._names(self._classes))
        if len(data) == 0:
            raise DataError("the task has no training images")
        network = self._network("parent")
        method_type = methods.get(recipe.method["name"])
        hyper = method_type.Hyper.model_validate({k: v for k, v in recipe.method.items() if k != "name"})
        method = method_type(hyper, State())
        snapshot = self._read_snapshot()
        if snapshot is not None:
            self._rows = list(snapshot.json["results"])
            self._warnings = list(snapshot.json["warnings"])
            self._numbers = itertools.count(snapshot.json["number"] + 1)
        else:
            self._measure_before(network, method)
        if spec["scenario"] == "data" and int(spec["parent"]["version"]) == 0:
            # Version 0 answers by zero rows; training starts from rows of the recipe's init.
            network = self._network("parent", untaught=True)
        start = {name: p.detach().cpu().contiguous().clone() for name, p in network.named_parameters()}
        network = method.build(network)
        self._grow(network)
        place(network, self._device)
        ctx = self._context(network)
        loop = Loop(ctx, method, data, self._emit, self._control, self._write_snapshot)
        if snapshot is not None:
            loop.resume(snapshot.tensors, snapshot.json)
            self._erase(method)  # deleted since the snapshot
        else:
            self._load_state(method)
            method.begin_task(ctx)
            if recipe.optimizer.carry_state:
                loop.carry(self._parent_tensors(OPTIMIZER_PART))
        self._emit({"event": "phase", "phase": "train"})
        try:
            loop.train()
        except Stopped:
            self._emit({"event": "stopped"})
            return
        self._emit({"event": "phase", "phase": "consolidate"})
        loop.consolidate()
        self._emit({"event": "phase", "phase": "evaluate"})
        self._measure_after(network, method)
        path = self._write_result(network, method, loop, start, ctx)
        self._emit({"event": "done", "path": str(path)})

    # Networks and state.

    def _manifest(self, which: str) -> dict[str, Any]:
        spec, source = self._spec, self._spec[which]
        known = {"architecture": spec["architecture"], "image": spec["image"], "scenario": spec["scenario"]}
        manifest = {**known, **source["manifest"], "version": source["version"]}
        if spec["scenario"] == "data" and not manifest.get("classes"):
            manifest["classes"] = self._names(self._classes)
        return manifest

    def _network(self, which: str, *, untaught: bool = False) -> Network:
        paths = {part["name"]: Path(part["path"]) for part in self._spec[which]["parts"]}
        manifest = self._manifest(which)
        if untaught:
            manifest["classes"] = []
        return predicting.load(manifest, paths)

    def _names(self, classes: list[str]) -> list[str]:
        """What labels in a dataset file index: the model's classes in the data scenario, else the task's."""
        fixed = self._spec.get("classes")
        return list(fixed) if self._spec["scenario"] == "data" and fixed else list(classes)

    def _grow(self, network: Network) -> None:
        generator = torch.Generator().manual_seed(epoch_seed(self._recipe.seed, self._number, 3))
        network.grow(self._number, self._names(self._classes), self._recipe.head.init, generator)

    def _context(self, network: Network) -> Context:
        known = network.classes_of(self._number if network.scenario == "task" else None)
        row = {name: i for i, name in enumerate(known)}
        units = sorted(row[name] for name in self._classes)
        size = int(self._spec["image"]["size"])
        return Context(
            network=network,
            scenario=network.scenario,
            task=self._number,
            classes=self._classes,
            units=torch.tensor(units, device=self._device),
            recipe=self._recipe,
            device=self._device,
            inputs=self._inputs,
            augment=Augmentation(self._recipe.augment, size),
            first=int(self._spec["parent"]["version"]) == 0,
            warn=self._warn,
        )

    def _load_state(self, method: Method) -> None:
        """The parent's state: all of it for the same method, else the types that the method takes over."""
        manifest = self._spec["parent"]["manifest"]
        before = manifest.get("method") or {}
        values: dict[str, Any] = before.get("state") or {}
        parts = {
            part["type"]: load_tensors(Path(part["path"]))
            for part in self._spec["parent"]["parts"]
            if part["type"] in TYPES
        }
        if before and before.get("name") != method.name:
            left = sorted((set(parts) | set(values)) - set(method.takes))
            parts = {kind: named for kind, named in parts.items() if kind in method.takes}
            values = {kind: named for kind, named in values.items() if kind in method.takes}
            if left or (method.takes and not parts):
                what = f" ({', '.join(left)} not used)" if left else ""
                self._warn(
                    f"the method changed from {before.get('name')} to {method.name}{what}: "
                    "earlier tasks are unprotected where nothing was taken over"
                )
        method.state.load(parts, values, self._device)
        self._erase(method)

    def _erase(self, method: Method) -> None:
        """Take the examples of tasks whose data was deleted out of the method's memory."""
        erased = {int(n) for n in self._spec.get("erased_tasks") or []}
        if erased:
            method.erase(erased)

    def _parent_tensors(self, kind: str) -> dict[str, Tensor]:
        for part in self._spec["parent"]["parts"]:
            if part["type"] == kind:
                return load_tensors(Path(part["path"]))
        return {}

    # Measuring.

    def _measure_before(self, network: Network, method: Method) -> None:
        """Base and parent, as they are, on the new task's held-out part."""
        self._emit({"event": "phase", "phase": "measure"})
        path = self._spec["task"].get("held_out")
        if not path:
            return
        held_out = Dataset.read(Path(path), self._names(self._classes))
        names = [held_out.names[i] for i in held_out.labels.unique().tolist()]  # type: ignore[no-untyped-call]
        same = self._spec["base"]["version"] == self._spec["parent"]["version"]
        for version in ("parent",) if same else ("base", "parent"):
            manifest = self._manifest(version)
            if not _may_answer(manifest, self._number, names):
                continue
            measured = network if version == "parent" else self._network("base")
            place(measured, self._device)
            # A parent is measured as it was deployed, a base by its plain forward pass.
            predict = method.predict_logits if version == "parent" else Network.forward
            self._result(version, measured, held_out, self._number, predict)
        if same:
            self._rows += [{**row, "version": "base"} for row in self._rows]
        network.to("cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def _measure_after(self, network: Network, method: Method) -> None:
        tasks = [*self._spec.get("history", []), self._spec["task"]]
        for task in tasks:
            if task.get("held_out"):
                data = Dataset.read(Path(task["held_out"]), self._names(list(task["classes"])))
                self._result("new", network, data, int(task["number"]), method.predict_logits)

    def _result(self, version: str, network: Network, data: Dataset, task: int, predict: Any) -> None:
        names = [data.names[i] for i in data.labels.unique().tolist()]  # type: ignore[no-untyped-call]
        if len(data) == 0 or not can_answer(network, task, names):
            return
        result = measure(network, data, task, predict, self._inputs)
        row = {"version": version, "task": task, **vars(result)}
        self._rows.append(row)
        self._emit({"event": "metric", "name": "result", "step": None, "data": row})

    # Files.

    def _read_snapshot(self) -> Snapshot | None:
        path = self._spec.get("snapshot")
        if not path:
            return None
        snapshot = read_snapshot(Path(path))
        content = snapshot.json
        if content["task"] != self._number or content["recipe"] != self._recipe.model_dump(by_alias=True):
            raise ValueError("the snapshot belongs to another task or recipe")
        return snapshot

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        facts = {
            "task": self._number,
            "recipe": self._recipe.model_dump(by_alias=True),
            "results": self._rows,
            "warnings": self._warnings,
        }
        path = write_snapshot(Path(self._spec["out"]), next(self._numbers), snapshot, facts)
        position = snapshot.json["position"]
        self._emit(
            {
                "event": "snapshot",
                "path": str(path),
                "stage": position["stage"],
                "epoch": position["epoch"],
                "step": position["step"],
            }
        )

    def _write_result(
        self, network: Network, method: Method, loop: Loop, start: Mapping[str, Tensor], ctx: Context
    ) -> Path:
        parts: list[Part] = [
            (name, name.partition(".")[0], tensors) for name, tensors in network.parts().items()
        ]
        parts += [(kind, kind, tensors) for kind, tensors in method.state.parts().items()]
        if self._recipe.optimizer.carry_state and (carried := loop.optimizer_state()):
            parts.append((OPTIMIZER_PART, OPTIMIZER_PART, carried))
        hyper = {k: v for k, v in self._recipe.method.items() if k != "name"}
        facts = {
            "classes": network.classes,
            "heads": [{"task": t, "classes": names} for t, names in network.head_classes.items()],
            "results": self._rows,
            "method": {"name": method.name, "hyper": hyper, "state": method.state.json()},
            "update_norm": update_norm(network, start, set(ctx.trainable)),
            "trainable": sum(p.numel() for p in ctx.trainable.values()),
            "parameters": sum(p.numel() for p in network.parameters()),
            "normalise": self._inputs.values,
            "environment": environment(self._device),
            "steps": loop.position.step,
            "images": loop.position.images,
            "warnings": self._warnings,
        }
        return write_result(Path(self._spec["out"]), parts, facts)

    def _warn(self, message: str) -> None:
        self._warnings.append(message)
        self._emit({"event": "log", "level": "warning", "message": message})


def update_norm(network: Network, start: Mapping[str, Tensor], names: set[str]) -> dict[str, float | None]:
    """‖θ_new - θ_old‖₂ over the set S, rows that both have; `relative` to ‖θ_old‖₂.

    `relative` is None when the old norm is zero.
    """
    moved = {"backbone": 0.0, "head": 0.0}
    norm = 0.0
    for name, parameter in network.named_parameters():
        if name not in names or name not in start:
            continue
        # Contiguous: sums in another memory layout differ in the last bit.
        old = start[name].double()
        new = parameter.detach().cpu().double().contiguous()[: old.shape[0]]
        group = "backbone" if name.startswith("backbone.") else "head"
        moved[group] += float((new - old).square().sum())
        norm += float(old.square().sum())
    total = moved["backbone"] + moved["head"]
    return {
        "backbone": moved["backbone"] ** 0.5,
        "head": moved["head"] ** 0.5,
        "relative": (total / norm) ** 0.5 if norm > 0 else None,
    }


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers of a run depend on besides its inputs."""
    return {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def main(spec_path: str, out_fd: int, control_fd: int) -> int:
    """Run the spec in a file with events to `out_fd` and requests from `control_fd`; the exit status.

    Every failure is an `error` event of kind data, memory, non-finite or code.
    """
    spec = json.loads(Path(spec_path).read_text())
    with os.fdopen(out_fd, "w", buffering=1, encoding="utf-8") as out:

        def emit(event: dict[str, Any]) -> None:
            out.write(json.dumps(event, allow_nan=False) + "\n")
            out.flush()

        try:
            run(spec, emit, PipeControl(control_fd))
        except BrokenPipeError:
            os._exit(EXIT_ORPHANED)
        except Exception as error:  # noqa: BLE001 - reported: the worker decides by the kind
            emit(
                {
                    "event": "error",
                    "kind": kind_of(error),
                    "message": f"{type(error).__name__}: {error}",
                    "traceback": "".join(traceback.format_exception(error)),
                }
            )
            return EXIT_ERROR
    return 0


def kind_of(error: Exception) -> str:
    """data, non-finite, memory or code."""
    if isinstance(error, DataError):
        return "data"
    if isinstance(error, NonFinite):
        return "non-finite"
    out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    if out_of_memory or "can't allocate memory" in str(error):
        return "memory"
    return "code"


def _may_answer(manifest: Mapping[str, Any], task: int, names: list[str]) -> bool:
    """As evaluate.can_answer, from a manifest alone, so that no network is built in vain."""
    if manifest["scenario"] == "task":
        return any(int(head["task"]) == task for head in manifest.get("heads") or [])
    return bool(names) and set(names) <= set(manifest.get("classes") or [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
