"""What the job process runs: one task, from a spec file to a result folder, with events on a pipe.

The spec names local files only; the result is parts (safetensors) and `result.json`. The process has no clock,
no database and no store: it reports events as JSON lines and writes snapshots when its control pipe asks.
Phases: measure (base and parent on the new task) → train → consolidate → evaluate (the new version on every
task that it can answer).
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.learn import image_packs, log_lines
from core.learn.ancestors import Ancestors
from core.learn.augment import Augmentation, epoch_seed
from core.learn.comparison import update_norm
from core.learn.context import Context
from core.learn.control import EXIT_ORPHANED, NoControl, PipeControl
from core.learn.dataset import DataError, Dataset
from core.learn.failures import kind_of
from core.learn.loop import Control, Loop, NonFinite, Snapshot, Stopped
from core.learn.measuring import Measuring
from core.learn.method import Method
from core.learn.methods import registry
from core.learn.networks import Network, architectures
from core.learn.networks.network import part_type
from core.learn.optim.olor import anchored
from core.learn.output import Part, read_snapshot, write_parts, write_snapshot
from core.learn.precision import Inputs, choose_device, place
from core.learn.recipe import Recipe, StartingPoint
from core.learn.state import TYPES, State
from core.learn.validation import Best

Emit = Callable[[dict[str, Any]], None]
Judge = Callable[[Network, Method, Inputs], None]
"""Sees the learned network, on its device, before it is stored."""

OPTIMIZER_PART = "optimizer"
EXIT_ERROR = 1


def run(
    spec: Mapping[str, Any], emit: Emit, control: Control | None = None, judge: Judge | None = None
) -> None:
    """Learn the task of a spec. Ends with a `done` or `stopped` event, or raises.

    `judge` measures what the job itself does not, for benchmarks; it leaves the network as it is.
    Raises DataError for a dataset that does not fit, NonFinite for a diverged loss, ValueError for a spec that
    contradicts itself.
    """
    Job(spec, emit, control or NoControl(), judge).run()


class Job:
    """One attempt at one task."""

    def __init__(
        self, spec: Mapping[str, Any], emit: Emit, control: Control, judge: Judge | None = None
    ) -> None:
        torch.set_num_threads(int(spec["threads"]))
        self._spec = spec
        self._emit = emit
        self._control = control
        self._judge = judge
        self._recipe = Recipe.model_validate(spec["recipe"])
        self._device = choose_device(spec.get("device") or "auto")
        normalise = spec.get("normalise") or spec["parent"]["manifest"].get("normalise")
        self._inputs = Inputs(normalise, spec["image"]["channels"], self._device)
        self._ancestors = Ancestors(spec, self._device)
        self._measuring = Measuring(spec, self._ancestors, self._inputs, emit)
        self._warnings: list[str] = []
        self._numbers = itertools.count(1)
        self._best_numbers = itertools.count(1)
        self._start: dict[str, Tensor] = {}
        # Opened now: a cache may drop the files before the task ends.
        self._packs = {kind: image_packs.packs_of(kind, spec["parent"]["parts"]) for kind in TYPES}
        task = spec["task"]
        self._number = int(task["number"])
        self._classes: list[str] = list(task["classes"])

    def run(self) -> None:
        """All phases; resumes when the spec names a snapshot."""
        spec, recipe = self._spec, self._recipe
        torch.manual_seed(epoch_seed(recipe.seed, self._number, 0))
        data = Dataset.read(Path(spec["task"]["train"]), self._ancestors.names(self._classes))
        if len(data) == 0:
            raise DataError("the task has no training images")
        network = self._ancestors.network("parent")
        method_type = registry.get(recipe.method["name"])
        hyper = method_type.Hyper.model_validate({k: v for k, v in recipe.method.items() if k != "name"})
        method = method_type(hyper, State())
        self._check_fit(network, method)
        snapshot = self._read_snapshot()
        if snapshot is not None:
            self._measuring.rows = list(snapshot.json["results"])
            self._warnings = list(snapshot.json["warnings"])
            self._numbers = itertools.count(snapshot.json["number"] + 1)
        else:
            self._phase("measure")
            if spec["task"].get("held_out"):
                self._say(log_lines.measuring(int(spec["parent"]["version"])))
            self._measuring.before(network)
        if spec["scenario"] == "data" and int(spec["parent"]["version"]) == 0:
            # Version 0 answers by zero rows; training starts from rows of the recipe's init.
            network = self._ancestors.network("parent", untaught=True)
        self._start = {name: p.detach().cpu().contiguous().clone() for name, p in network.named_parameters()}
        network = method.build(network)
        for name, p in network.named_parameters():
            if name not in self._start:  # what building added
                self._start[name] = p.detach().cpu().contiguous().clone()
        self._grow(network)
        place(network, self._device)
        ctx = self._context(network)
        loop = Loop(
            ctx,
            method,
            data,
            self._emit,
            self._control,
            save=lambda snapshot: self._write_snapshot(snapshot, loop.epoch),
            save_best=lambda best: self._write_best(network, method, best),
            test=lambda: self._measuring.during(network, method),
        )
        if recipe.optimizer.carry_state:
            loop.carry(self._ancestors.tensors("parent", OPTIMIZER_PART))
        if snapshot is not None:
            if method.settled:
                self._load_state(method)
            loop.resume(snapshot.tensors, snapshot.json)
            self._erase(method)  # deleted since the snapshot
        else:
            self._load_state(method)
            method.begin_task(ctx)
            if recipe.optimizer.olor is not None and not anchored(ctx, recipe.optimizer.olor):
                self._warn(
                    f"OLOR rolls nothing back in this task: nothing that moves at depth {recipe.depth} has a share "
                    "above 0; see depth, iota1, iota2 and anchor_old_head_rows"
                )
            if len(network.classes_of(ctx.head_task)) == 1:
                self._warn(
                    "there is one class only: nothing to tell apart, and accuracy is 1 whatever is learned"
                )
        self._phase("train")
        self._say(log_lines.training(ctx, loop))
        try:
            loop.train()
        except Stopped:
            self._emit({"event": "stopped"})
            return
        moved = update_norm(network, self._start, set(ctx.trainable))
        predicted = None if ctx.first else method.forecast(ctx)
        by_task = {task: v for task, v in method.forecast_by_task(ctx).items() if math.isfinite(v)}
        if predicted is not None and not math.isfinite(predicted):
            raise NonFinite(
                f"the forecast of what earlier tasks lose is {predicted}: lower lr or set optimizer.clip"
            )
        self._phase("consolidate")
        self._say(log_lines.CONSOLIDATING)
        loop.consolidate()
        self._phase("evaluate")
        self._say(log_lines.EVALUATING)
        compared = {"update_norm": moved, **self._measuring.after(network, method)}
        self._say(log_lines.measured(self._measuring.rows, self._number))
        if predicted is not None:
            compared["forecast"] = self._measuring.rise(network, method, predicted, by_task)
        if self._judge is not None:
            self._judge(network, method, self._inputs)
        path = self._write_result(network, method, loop, ctx, compared)
        self._emit({"event": "done", "path": str(path)})

    # Network and state.

    def _check_fit(self, network: Network, method: Method) -> None:
        """DataError when the method cannot train a network of this architecture or family."""
        name = self._spec["architecture"]["name"]
        accepted = method.accepts.architectures
        if accepted is not None and architectures()[name].family not in accepted:
            raise DataError(f"{method.name} works on architectures of {', '.join(accepted)}, not on {name}")
        version = int(self._spec["parent"]["version"])
        if version != 0 and network.family != method.family:
            raise DataError(
                f"version {version} is a {network.family} network, and {method.name} trains {method.family} ones: "
                "use a method of that family, or start a new model"
            )

    def _grow(self, network: Network) -> None:
        generator = torch.Generator().manual_seed(epoch_seed(self._recipe.seed, self._number, 3))
        network.grow(self._number, self._ancestors.names(self._classes), self._recipe.head.init, generator)

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
            weights_at=self._weights_at,
            note=lambda name, value, data: self._emit(
                {"event": "metric", "name": name, "step": None, "value": value, "data": dict(data)}
            ),
        )

    def _weights_at(self, point: StartingPoint) -> Mapping[str, Tensor]:
        """Parameters as the task found them, or version 0's: its backbone, since it has no learned head."""
        if point == "update_start":
            return self._start
        network = self._ancestors.network("base")
        return {name: p.detach() for name, p in network.named_parameters() if name.startswith("backbone.")}

    def _load_state(self, method: Method) -> None:
        """The parent's state: all of it for the same method, else the types that the method takes over."""
        manifest = self._spec["parent"]["manifest"]
        before = manifest.get("method") or {}
        gone = set(self._spec["parent"].get("deleted") or ())
        values = {kind: named for kind, named in (before.get("state") or {}).items() if kind not in gone}
        parts = image_packs.state_of(self._spec["parent"]["parts"])
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
            gone &= set(method.takes)
        if gone:
            self._warn(
                f"the stored images of earlier tasks ({', '.join(sorted(gone))}) were deleted: {method.name} "
                "starts with an empty memory, and earlier tasks are unprotected"
            )
        method.state.load(parts, values, self._device)
        self._erase(method)

    def _erase(self, method: Method) -> None:
        """Take the examples of tasks whose data was deleted out of the method's memory."""
        erased = {int(n) for n in self._spec.get("erased_tasks") or []}
        if erased:
            method.erase(erased)

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

    def _write_snapshot(self, snapshot: Snapshot, epoch: int) -> None:
        facts = {
            "task": self._number,
            "recipe": self._recipe.model_dump(by_alias=True),
            "results": self._measuring.rows,
            "warnings": self._warnings,
        }
        path = write_snapshot(Path(self._spec["out"]), next(self._numbers), snapshot, facts)
        position = snapshot.json["position"]
        where = {"stage": position["stage"], "epoch": epoch, "step": position["step"]}
        self._emit({"event": "snapshot", "path": str(path), **where})

    def _write_result(
        self, network: Network, method: Method, loop: Loop, ctx: Context, compared: Mapping[str, Any]
    ) -> Path:
        parts: list[Part] = [(name, part_type(name), tensors) for name, tensors in network.parts().items()]
        for kind, tensors in method.state.parts().items():
            parts += image_packs.parts_of(kind, tensors, self._packs[kind])
        if self._recipe.optimizer.carry_state and (carried := loop.optimizer_state()):
            parts.append((OPTIMIZER_PART, OPTIMIZER_PART, carried))
        facts = {
            **self._describe(network, method),
            "results": self._measuring.rows,
            "adp": loop.validation.adp(),
            "trainable": sum(p.numel() for p in ctx.trainable.values()),
            "parameters": sum(p.numel() for p in network.parameters()),
            "steps": loop.position.step,
            "images": loop.position.images,
            "warnings": self._warnings,
            **compared,
        }
        return write_parts(Path(self._spec["out"]), "result", parts, facts)

    def _write_best(self, network: Network, method: Method, best: Best) -> None:
        """The best validated state as parts, with what a manifest needs, while training goes on."""
        parts = [(name, part_type(name), tensors) for name, tensors in network.parts(best.tensors).items()]
        facts = {
            **self._describe(network, method),
            "steps": best.step,
            "validation": {"correct": best.correct, "total": best.total},
        }
        name = f"anytime-{next(self._best_numbers)}"
        path = write_parts(Path(self._spec["out"]), name, parts, facts)
        self._emit({"event": "anytime", "path": str(path)})

    def _describe(self, network: Network, method: Method) -> dict[str, Any]:
        """What is needed to build the network again and to know how it was made."""
        hyper = {k: v for k, v in self._recipe.method.items() if k != "name"}
        return {
            "classes": network.classes,
            "heads": [{"task": t, "classes": names} for t, names in network.head_classes.items()],
            "network": network.describe(),
            "method": {
                "name": method.name,
                "hyper": hyper,
                "state": method.state.json(),
                "predicts_with": list(method.predicts_with),
            },
            "normalise": self._inputs.values,
            "environment": environment(self._device),
        }

    def _warn(self, message: str) -> None:
        if message in self._warnings:  # of a run that goes on
            return
        self._warnings.append(message)
        self._say(message, "warning")

    def _say(self, message: str, level: str = "info") -> None:
        self._emit({"event": "log", "level": level, "message": message})

    def _phase(self, name: str) -> None:
        self._emit({"event": "phase", "phase": name})


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers of a run depend on besides its inputs."""
    return {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def main(spec_path: str, out_fd: int, control_fd: int, before: Emit = lambda event: None) -> int:
    """Run the spec in a file with events to `out_fd` and requests from `control_fd`; the exit status.

    Every failure is an `error` event of kind data, memory, disk, non-finite or code. before: sees each event first.
    """
    spec = json.loads(Path(spec_path).read_text())
    with os.fdopen(out_fd, "w", buffering=1, encoding="utf-8") as out:

        def emit(event: dict[str, Any]) -> None:
            before(event)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
