"""Plans over a few digits, and a process that runs plans."""

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.experiment.grid import ExperimentRun
from bench.experiment.program import ENVIRONMENT
from bench.experiment.runs import ExperimentResultStore, execute_run_stages
from bench.experiment.unfinished import FinishedStageRecords
from core.learning.training.control import ControlRequestSource, EmptyControlRequestSource

ROOT = Path(__file__).parents[4]
PLAN = """
name = "digits"
description = "Four digits, two at a time."
scenarios = ["class"]
architecture = { name = "mlp", hidden = [8] }
recipe = { epochs = 1, batch_size = 8, augment = "none", optimizer = { lr = 0.05, schedule = "constant" } }
data = [{ name = "digits", path = "digits", classes = "0-3", classes_per_task = 2, \
train_per_class = 12, test_per_class = 20 }]
"""
FINETUNE_AND_JOINT = """
[[methods]]
name = "finetune"
[[methods]]
name = "joint"
joint = true
"""
FACTS = {
    "update_norm": {"backbone": 3.0, "head": 4.0, "relative": 0.5},
    "trainable": 25,
    "parameters": 100,
    "seconds": 2.0,
    "state_bytes": 7,
    "new_bytes": 3_000_000,
    "kept_images": 40,
    "environment": {"device": "cpu"},
}
"""Fields of a stage's record besides its results."""


def make_run(
    method: str = "a", seed: int = 0, depth: int = 5, order: int = 0, **other: Any
) -> ExperimentRun:
    """Make a run without stages, as tables show it."""
    settings = {"joint": False, "reference": False, "base": None, **other}
    config = {"architecture": {"name": "mlp"}, "base": None, "name": (method, seed, depth, order)}
    return ExperimentRun(
        "d", "class", method, depth, order, seed, **settings, config=config, stages=[]
    )


def learn_run(
    run: ExperimentRun, store: ExperimentResultStore, control: ControlRequestSource | None = None
) -> dict[str, Any]:
    """Learn all stages of a run, or those that are left, and return its record."""
    return execute_run_stages(
        run,
        store,
        control or EmptyControlRequestSource(),
        FinishedStageRecords(store.get_unfinished_folder(run.result_inputs_digest)),
    )


def learn_runs(runs: list[ExperimentRun], store: ExperimentResultStore) -> None:
    """Learn runs and write their records."""
    for run in runs:
        store.write_run_record(
            run.result_inputs_digest,
            {**learn_run(run, store), "name": run.log_name, "config": run.config},
        )


def write_idx(path: Path, values: np.ndarray, kind: int = 8) -> None:
    """Write an idx file, compressed with gzip if its name ends in .gz."""
    shape = np.array(values.shape, ">i4").tobytes()
    raw = bytes([0, 0, kind, values.ndim]) + shape + values.tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_plan(path: Path, extra: str) -> Path:
    """Write a file with `PLAN` and `extra`, whose keys replace those of `PLAN`."""
    extra = textwrap.dedent(extra)
    changed = {
        line.partition("=")[0].strip()
        for line in extra.partition("[[")[0].splitlines()
        if "=" in line
    }
    kept = [line for line in PLAN.splitlines() if line.partition("=")[0].strip() not in changed]
    path.write_text("\n".join([*kept, extra]))
    return path


class Server:
    """A server that runs `python -m bench.experiment …` in children of one preloaded process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("experiment_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        )

    def start(
        self, *arguments: object, log: Path, figures: bool = False, hold_after: int | None = None
    ) -> int:
        """Start a run with its output in `log`, and return its process.

        Args:
            hold_after: results after which the run waits.
        """
        assert self._process.stdin and self._process.stdout
        argv = [str(argument) for argument in arguments]
        request = {"argv": argv, "log": str(log), "figures": figures, "hold_after": hold_after}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait(self) -> int:
        """Return the exit status of the started run, negative for a signal."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("wait\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()  # nothing runs any more, and its own end takes a second
        self._process.communicate()


class Runner:
    """The command line on one plan and one folder of results."""

    def __init__(self, server: Server, data: Path, folder: Path) -> None:
        self._server, self._data, self._folder = server, data, folder
        self.out = folder / "out"

    def arguments(self, extra: str, jobs: int) -> list[object]:
        path = write_plan(self._folder / "plan.toml", extra)
        return [path, "--data", self._data, "--out", self.out, "--jobs", jobs]

    def __call__(self, extra: str, *, figures: bool = False) -> tuple[int, str]:
        """Run to the end, and return (exit status, output)."""
        log = self._folder / "log.txt"
        self._server.start(*self.arguments(extra, 2), log=log, figures=figures)
        return self._server.wait(), log.read_text()

    def killed_after(self, extra: str, results: int) -> None:
        """Kill the runner with SIGKILL in the run after so many results.

        Wait until its children are gone too.
        """
        log = self._folder / "log.txt"
        pid = self._server.start(*self.arguments(extra, 1), log=log, hold_after=results)
        wait_until(
            lambda: (
                any((self.out / "unfinished").glob("*/1/result")) and len(self.records()) == results
            )
        )
        os.kill(pid, signal.SIGKILL)
        assert self._server.wait() == -signal.SIGKILL
        wait_until(lambda: not _is_group_alive(pid))

    def records(self) -> dict[str, dict]:
        """Return the content of every result by file name."""
        return {
            p.name: json.loads(p.read_text()) for p in sorted((self.out / "runs").glob("*.json"))
        }

    def times(self) -> dict[str, int]:
        """Return the time at which each result was written, in nanoseconds."""
        return {p.name: p.stat().st_mtime_ns for p in (self.out / "runs").glob("*.json")}


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def _is_group_alive(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True
