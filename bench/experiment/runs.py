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
from bench.experiment.grid import BaseTrainingRun, ExperimentRun, NamedPackagedBase
from bench.experiment.readout import (
    TaskTestImages,
    TrainedBaseHeadAndTestImages,
    count_correct_on_base_test_images,
    evaluate_by_protocol,
)
from bench.experiment.unfinished import (
    FinishedStageRecords,
    PeriodicSnapshotControl,
    ResumableJobState,
    choose_clock_for_device,
    write_json_atomically,
)
from bench.job_run import complete_and_run_job_spec
from core.contract.jobs.job_spec import LocalVersionPartFile
from core.contract.manifest import STATISTICS
from core.learning.data import image_packs
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.learning.state import TYPES
from core.learning.training.control import ControlRequestSource, PipeControlRequestSource
from core.learning.training.failures import classify_job_error
from core.packaged import packaged_base

AGAIN = ("killed", "memory")
"""Failures that need not come again: such runs are tried again at the next start."""
KEPT = (
    "update_norm",
    "trainable",
    "parameters",
    "steps",
    "images",
    "warnings",
    "environment",
)
"""What a record takes over from a job's result, for each stage."""


class ExperimentResultStore:
    """Stores results of an experiment's runs and bases as files, also of unfinished ones."""

    def __init__(self, out: Path) -> None:
        self.out = out
        for name in ("runs", "bases", "unfinished"):
            (out / name).mkdir(parents=True, exist_ok=True)

    def remove_unwanted_runs(self, planned_keys: Container[str]) -> None:
        """Remove the files of unfinished runs that the plan no longer has."""
        for run_folder in (self.out / "unfinished").iterdir():
            if run_folder.name not in planned_keys:
                shutil.rmtree(run_folder)

    def read_run_record(self, key: str) -> dict[str, Any] | None:
        """Return the stored record of a run, or None."""
        try:
            run_record: dict[str, Any] = json.loads((self.out / "runs" / f"{key}.json").read_text())
        except FileNotFoundError:
            return None
        return run_record

    def is_run_finished(self, key: str) -> bool:
        """Return True if a run has a result: it succeeded, or failed in a way that would repeat."""
        record = self.read_run_record(key)
        return record is not None and (
            record["status"] == "done" or record["failure"]["kind"] not in AGAIN
        )

    def write_run_record(self, key: str, record: dict[str, Any]) -> None:
        """Store the record of a run atomically."""
        write_json_atomically(self.out / "runs" / f"{key}.json", record)

    def get_base_folder(self, key: str) -> Path:
        """Return the folder of a trained base, with the result of its job and base.json."""
        return self.out / "bases" / key

    def read_base_record(self, key: str) -> dict[str, Any] | None:
        """Return the stored record of a trained base, or None."""
        path = self.get_base_folder(key) / "base.json"
        return json.loads(path.read_text()) if path.exists() else None

    def get_unfinished_folder(self, key: str) -> Path:
        """Return the folder of a run or base that has not ended."""
        return self.out / "unfinished" / key


def build_failed_run_record(kind: str, reason: str, details: str = "") -> dict[str, Any]:
    """Return the record of a failed run."""
    return {
        "status": "failed",
        "failure": {"kind": kind, "reason": reason, "traceback": details},
        "stages": [],
    }


def execute_and_record_run(
    run: ExperimentRun, store: ExperimentResultStore, control_fd: int
) -> None:
    """In a child process: execute a run and write its record, also after a failure."""
    stages = FinishedStageRecords(store.get_unfinished_folder(run.result_inputs_digest))
    try:
        record = execute_run_stages(run, store, PipeControlRequestSource(control_fd), stages)
    except Exception as error:  # noqa: BLE001 - a failed run is a result too
        reason = f"{type(error).__name__}: {error}"
        record = build_failed_run_record(
            classify_job_error(error), reason, "".join(traceback.format_exception(error))
        )
        record["stages"] = stages.done
    store.write_run_record(
        run.result_inputs_digest, {**record, "name": run.log_name, "config": run.config}
    )
    shutil.rmtree(store.get_unfinished_folder(run.result_inputs_digest))


@joint.register_joint_method_temporarily()
def execute_run_stages(
    run: ExperimentRun,
    store: ExperimentResultStore,
    control: ControlRequestSource,
    stages: FinishedStageRecords,
) -> dict[str, Any]:
    """Learn and evaluate all tasks of a run; return its record. Raises as `learn_task`."""
    first, old = _describe_random_version_zero(run.config), None
    if isinstance(run.base, NamedPackagedBase):
        first["parts"] = [
            _write_packaged_base_weights(
                run.base,
                run.config["form"]["channels"],
                store.get_unfinished_folder(run.result_inputs_digest),
            )
        ]
    elif run.base is not None:
        base = store.get_base_folder(run.base.result_inputs_digest)
        first = _describe_base_as_version_zero(base)
        old = TrainedBaseHeadAndTestImages(base / "parts" / "head.safetensors", run.base.stage.test)
    folder = store.get_unfinished_folder(run.result_inputs_digest)
    parent = first
    tests: list[TaskTestImages] = []
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
            facts = run_job_and_evaluate(spec, control, tests, run.evaluation_protocols, old)
            stages.add_finished_stage({"stage": number, "classes": stage.test.classes, **facts})
        if number == stages.done[-1]["stage"]:
            parent = _describe_result_as_parent_version(
                out / "result", number, sorted((folder / STATISTICS).glob("*"))
            )
            _copy_statistics_part_to_file(
                out / "result", folder / STATISTICS / f"{number:03}.safetensors"
            )
            shutil.rmtree(folder / str(number - 1), ignore_errors=True)
    return {
        "status": "done",
        "stages": stages.done,
        "seconds": sum(stage["seconds"] + stage["seconds_reading_out"] for stage in stages.done),
    }


def train_and_store_base(
    base: BaseTrainingRun, store: ExperimentResultStore, control_fd: int
) -> None:
    """In a child process: train a base and store its result folder."""
    folder = store.get_unfinished_folder(base.result_inputs_digest)
    first = _describe_random_version_zero(base.config)
    task = {"number": 1, "classes": base.stage.classes, "train": str(base.stage.train)}
    spec = _build_job_spec({**base.config, "scenario": "class"}, task, first, first, folder)
    facts = run_job_and_evaluate(
        spec, PipeControlRequestSource(control_fd), [base.stage.test], ["class"], None
    )
    write_json_atomically(
        folder / "result" / "base.json", {"name": base.name, "config": base.config, **facts}
    )
    (folder / "result").rename(store.get_base_folder(base.result_inputs_digest))
    shutil.rmtree(folder)


def run_job_and_evaluate(
    spec: dict[str, Any],
    control: ControlRequestSource,
    tests: list[TaskTestImages],
    protocols: list[str],
    old: TrainedBaseHeadAndTestImages | None,
) -> dict[str, Any]:
    """Run a learning job, resuming from its snapshot, evaluate its network, and return the record.

    The result lies in spec["out"] afterwards. `kept_images`: that the method remembers.
    `new_bytes`: of parts that the parent does not have, `new_state_bytes` of those among them that
    are not the network's.
    """
    rows: list[dict[str, Any]] = []
    clock, seconds = choose_clock_for_device(spec["device"]), 0.0

    def evaluate_network(network: Network, method: Method, inputs: InputNormaliser) -> None:
        nonlocal seconds
        started_at = clock()
        rows.extend(evaluate_by_protocol(network, method, inputs, tests, protocols))
        if old is not None:
            rows.append(
                {
                    "readout": "class",
                    "test": "source",
                    **count_correct_on_base_test_images(network, inputs, old),
                }
            )
        seconds = clock() - started_at

    out = Path(spec["out"])
    stage = ResumableJobState(out, clock)
    complete_and_run_job_spec(
        {**spec, "snapshot": stage.snapshot},
        stage.replace_snapshot_on_event,
        PeriodicSnapshotControl(control),
        evaluate_network,
    )
    took = stage.elapsed_seconds
    folder = out / "result"
    result = json.loads((folder / "result.json").read_text())
    before = {_hash_file(Path(part["path"])) for part in spec["parent"]["parts"]}
    stored = image_packs.read_method_state(
        LocalVersionPartFile(name=part["name"], type=part["type"], path=folder / part["file"])
        for part in result["parts"]
    )
    files = [(folder / part["file"], part["type"] in TYPES) for part in result["parts"]]
    new = [
        (file.stat().st_size, of_state)
        for file, of_state in files
        if _hash_file(file) not in before
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


def _hash_file(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _describe_random_version_zero(config: dict[str, Any]) -> dict[str, Any]:
    """Describe version 0 with random weights, as the parent of the first task."""
    init = {"kind": "random", "seed": config["recipe"]["seed"]}
    return {"version": 0, "manifest": {"classes": [], "heads": [], "init": init}, "parts": []}


def _describe_base_as_version_zero(base: Path) -> dict[str, Any]:
    """Describe version 0 with the backbone of a base that this experiment trained."""
    parts = [
        part
        for part in _describe_result_as_parent_version(base, 0)["parts"]
        if part["type"] == "backbone"
    ]
    return {"version": 0, "manifest": {"classes": [], "heads": []}, "parts": parts}


def _write_packaged_base_weights(
    base: NamedPackagedBase, channels: int, folder: Path
) -> dict[str, str]:
    """Write the weights of a packaged base, and return them as the part of a version 0."""
    folder.mkdir(exist_ok=True)
    path = folder / "base.safetensors"
    path.write_bytes(packaged_base.load_packaged_base_weights(channels, base.packaged))
    return {"name": "base", "type": "base", "path": str(path)}


def _copy_statistics_part_to_file(folder: Path, path: Path) -> None:
    """Copy the statistics part of a version, which later tasks need."""
    result = json.loads((folder / "result.json").read_text())
    for part in result["parts"]:
        if part["type"] == STATISTICS:
            path.parent.mkdir(exist_ok=True)
            shutil.copy(folder / part["file"], path)


def _describe_result_as_parent_version(
    folder: Path, number: int, earlier: Sequence[Path] = ()
) -> dict[str, Any]:
    """Describe a job's result as the parent version of the next task."""
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
    """Return the specification of a learning job, as a worker would write it."""
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
