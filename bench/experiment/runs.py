"""One run: the tasks of a stream learned one after the other by the product's job, and read out
after each.

Nothing but the files of a version passes from task to task, as in the service. A run's folder is
its own and is removed with it; what stays is one JSON file, which appears whole or not at all. A
run that was killed goes on from its last snapshot.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import traceback
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from bench.experiment import joint
from bench.experiment.grid import BaseRun, PackagedStart, Run
from bench.experiment.readout import HeldOut, Old, read_out, retention
from bench.experiment.unfinished import Regular, Stage, Stages, clock_of, write_json
from bench.job_run import run_job
from core.contract.jobs.job_spec import LocalPart
from core.contract.manifest import STATISTICS
from core.learning.data import image_packs
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.precision import Inputs
from core.learning.state import TYPES
from core.learning.training.control import Control, PipeControl
from core.learning.training.failures import classify_error
from core.packaged import packaged_base

AGAIN = ("killed", "memory")
"""Failures that need not come again: such runs are tried again at the next start."""
KEPT = ("update_norm", "trainable", "parameters", "steps", "images", "warnings", "environment")
"""What a record takes over from a job's result, for each stage."""


class Store:
    """Results below `out`: runs/<key>.json, bases/<key>/, and unfinished/<key>/ of runs that have
    not ended."""

    def __init__(self, out: Path) -> None:
        self.out = out
        for name in ("runs", "bases", "unfinished"):
            (out / name).mkdir(parents=True, exist_ok=True)

    def sweep(self, wanted: Container[str]) -> None:
        """Remove the files of unfinished runs whose keys are not in `wanted`."""
        for left in (self.out / "unfinished").iterdir():
            if left.name not in wanted:
                shutil.rmtree(left)

    def record(self, key: str) -> dict[str, Any] | None:
        """Return the stored record of a run, or None."""
        try:
            found: dict[str, Any] = json.loads((self.out / "runs" / f"{key}.json").read_text())
        except FileNotFoundError:
            return None
        return found

    def finished(self, key: str) -> bool:
        """Return True if a run need not be started: it succeeded, or failed in a way that would
        repeat.
        """
        record = self.record(key)
        return record is not None and (
            record["status"] == "done" or record["failure"]["kind"] not in AGAIN
        )

    def write(self, key: str, record: dict[str, Any]) -> None:
        """Store the record of a run atomically."""
        write_json(self.out / "runs" / f"{key}.json", record)

    def base(self, key: str) -> Path:
        """Return the folder of a trained base, with the result of its job and base.json."""
        return self.out / "bases" / key

    def base_facts(self, key: str) -> dict[str, Any] | None:
        """Return the stored record of a trained base, or None."""
        path = self.base(key) / "base.json"
        return json.loads(path.read_text()) if path.exists() else None

    def unfinished(self, key: str) -> Path:
        """Return the folder of a run or base that has not ended."""
        return self.out / "unfinished" / key


def build_failure(kind: str, reason: str, details: str = "") -> dict[str, Any]:
    """Return the record of a run that has no result."""
    return {
        "status": "failed",
        "failure": {"kind": kind, "reason": reason, "traceback": details},
        "stages": [],
    }


def run_and_record(run: Run, store: Store, control_fd: int) -> None:
    """In a child process: execute a run and write its record, also after a failure."""
    stages = Stages(store.unfinished(run.key))
    try:
        record = execute_run(run, store, PipeControl(control_fd), stages)
    except Exception as error:  # noqa: BLE001 - a failed run is a result too
        reason = f"{type(error).__name__}: {error}"
        record = build_failure(
            classify_error(error), reason, "".join(traceback.format_exception(error))
        )
        record["stages"] = stages.done
    store.write(run.key, {**record, "name": run.name, "config": run.config})
    shutil.rmtree(store.unfinished(run.key))


@joint.register_joint()
def execute_run(run: Run, store: Store, control: Control, stages: Stages) -> dict[str, Any]:
    """Execute a run and return its record; `stages` grows with each task. Raises as
    `core.learning.training.job.learn_task`.
    """
    first, old = _build_first_version(run.config), None
    if isinstance(run.base, PackagedStart):
        first["parts"] = [
            _load_packaged_base(run.base, run.config["form"]["channels"], store.unfinished(run.key))
        ]
    elif run.base is not None:
        base = store.base(run.base.key)
        first = _load_trained_base(base)
        old = Old(base / "parts" / "head.safetensors", run.base.stage.test)
    folder = store.unfinished(run.key)
    parent = first
    tests: list[HeldOut] = []
    for number, stage in enumerate(run.stages, 1):
        if run.scenario == "data":
            tests = [stage.test]  # the same images at every stage
        else:
            tests.append(stage.test)
        if run.joint == "last" and number < len(run.stages):
            continue
        out = folder / str(number)
        if number not in {done["stage"] for done in stages.done}:
            # A joint run learns one task, the union, from the first weights.
            task = {
                "number": 1 if run.joint else number,
                "classes": stage.classes,
                "train": str(stage.train),
            }
            spec = _build_job_spec(run.config, task, first if run.joint else parent, first, out)
            if run.joint and run.scenario == "task":
                spec["scenario"] = "class"
            if run.scenario == "data":
                spec["classes"] = stage.classes
            facts = run_learning_job(spec, control, tests, run.protocols, old)
            stages.add({"stage": number, "classes": stage.test.classes, **facts})
        if number == stages.done[-1]["stage"]:
            parent = _build_parent_version(
                out / "result", number, sorted((folder / STATISTICS).glob("*"))
            )
            _keep_statistics(out / "result", folder / STATISTICS / f"{number:03}.safetensors")
            shutil.rmtree(folder / str(number - 1), ignore_errors=True)
    return {
        "status": "done",
        "stages": stages.done,
        "seconds": sum(stage["seconds"] + stage["seconds_reading_out"] for stage in stages.done),
    }


def train_base(base: BaseRun, store: Store, control_fd: int) -> None:
    """In a child process: train a base and store its result folder."""
    folder = store.unfinished(base.key)
    first = _build_first_version(base.config)
    task = {"number": 1, "classes": base.stage.classes, "train": str(base.stage.train)}
    spec = _build_job_spec({**base.config, "scenario": "class"}, task, first, first, folder)
    facts = run_learning_job(spec, PipeControl(control_fd), [base.stage.test], ["class"], None)
    write_json(folder / "result" / "base.json", {"name": base.name, "config": base.config, **facts})
    (folder / "result").rename(store.base(base.key))
    shutil.rmtree(folder)


def run_learning_job(
    spec: dict[str, Any],
    control: Control,
    tests: list[HeldOut],
    protocols: list[str],
    old: Old | None,
) -> dict[str, Any]:
    """Run a learning job, from its last snapshot if there is one, evaluate its network, and return
    the record.

    The result lies in spec["out"] afterwards. `kept_images`: that the method remembers.
    `new_bytes`: of parts that the parent does not have, `new_state_bytes` of those among them that
    are not the network's.
    """
    rows: list[dict[str, Any]] = []
    clock, seconds = clock_of(spec["device"]), 0.0

    def judge(network: Network, method: Method, inputs: Inputs) -> None:
        nonlocal seconds
        begun = clock()
        rows.extend(read_out(network, method, inputs, tests, protocols))
        if old is not None:
            rows.append({"readout": "class", "test": "source", **retention(network, inputs, old)})
        seconds = clock() - begun

    out = Path(spec["out"])
    stage = Stage(out, clock)
    run_job({**spec, "snapshot": stage.snapshot}, stage.emit, Regular(control), judge)
    took = stage.seconds
    folder = out / "result"
    result = json.loads((folder / "result.json").read_text())
    before = {_digest(Path(part["path"])) for part in spec["parent"]["parts"]}
    stored = image_packs.restore_state(
        LocalPart(name=part["name"], type=part["type"], path=folder / part["file"])
        for part in result["parts"]
    )
    files = [(folder / part["file"], part["type"] in TYPES) for part in result["parts"]]
    new = [
        (file.stat().st_size, of_state) for file, of_state in files if _digest(file) not in before
    ]
    return {
        **{name: result[name] for name in KEPT},
        **{name: result[name] for name in ("forecast", "rollback") if name in result},
        "seconds": took - seconds,
        "seconds_reading_out": seconds,
        "state_bytes": sum(file.stat().st_size for file, of_state in files if of_state),
        "kept_images": sum(len(tensors.get(image_packs.IMAGES, ())) for tensors in stored.values()),
        "new_bytes": sum(size for size, _ in new),
        "new_state_bytes": sum(size for size, of_state in new if of_state),
        "results": rows,
    }


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _build_first_version(config: dict[str, Any]) -> dict[str, Any]:
    """Return version 0 with random weights from the seed, as the parent of the first task."""
    init = {"kind": "random", "seed": config["recipe"]["seed"]}
    return {"version": 0, "manifest": {"classes": [], "heads": [], "init": init}, "parts": []}


def _load_trained_base(base: Path) -> dict[str, Any]:
    """Return version 0 with the backbone of a base that was trained by this experiment."""
    parts = [part for part in _build_parent_version(base, 0)["parts"] if part["type"] == "backbone"]
    return {"version": 0, "manifest": {"classes": [], "heads": []}, "parts": parts}


def _load_packaged_base(base: PackagedStart, channels: int, folder: Path) -> dict[str, str]:
    """Write the part of a version 0 that starts from a packaged base, and return it."""
    folder.mkdir(exist_ok=True)
    path = folder / "base.safetensors"
    path.write_bytes(packaged_base.load_weights(channels, base.packaged))
    return {"name": "base", "type": "base", "path": str(path)}


def _keep_statistics(folder: Path, path: Path) -> None:
    """Copy the stored statistics of a version, since later tasks need those of all earlier tasks."""
    result = json.loads((folder / "result.json").read_text())
    for part in result["parts"]:
        if part["type"] == STATISTICS:
            path.parent.mkdir(exist_ok=True)
            shutil.copy(folder / part["file"], path)


def _build_parent_version(
    folder: Path, number: int, earlier: Sequence[Path] = ()
) -> dict[str, Any]:
    """Describe a result as the parent version of the next task; earlier: statistics of earlier
    tasks, in order.
    """
    result = json.loads((folder / "result.json").read_text())
    manifest = {
        "version": number,
        **{name: result[name] for name in ("classes", "heads", "method", "normalise", "network")},
    }
    parts = [{"name": STATISTICS, "type": STATISTICS, "path": str(path)} for path in earlier]
    parts += [
        {"name": part["name"], "type": part["type"], "path": str(folder / part["file"])}
        for part in result["parts"]
    ]
    return {"version": number, "manifest": manifest, "parts": parts}


def _build_job_spec(
    config: dict[str, Any],
    task: dict[str, Any],
    parent: dict[str, Any],
    base: dict[str, Any],
    out: Path,
) -> dict[str, Any]:
    """Return the specification of a job, as a worker would write it; the benchmark itself evaluates
    held-out parts.
    """
    return {
        "architecture": config["architecture"],
        "image": config["form"],
        "scenario": config["scenario"],
        "recipe": config["recipe"],
        "normalise": config["normalise"],
        "classes": None,
        "task": {**task, "held_out": None},
        "history": [],
        "erased_tasks": [],
        "parent": parent,
        "base": base,
        "snapshot": None,
        "out": str(out),
        "threads": 1,
        "device": config["device"],
    }
