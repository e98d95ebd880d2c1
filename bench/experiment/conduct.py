"""Trains bases, then all runs that have no result, several at once, and writes the report."""

import contextlib
import fcntl
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from bench.experiment.data import ExperimentDatasetCache
from bench.experiment.figures import draw_experiment_figures
from bench.experiment.grid import BaseTrainingRun, ExperimentRun, expand_plan_to_runs
from bench.experiment.outcomes import collect_run_outcomes
from bench.experiment.plan import ExperimentPlan, PlanError
from bench.experiment.pool import ChildProcessWork, run_work_in_children
from bench.experiment.runs import (
    ExperimentResultStore,
    build_failed_run_record,
    execute_and_record_run,
    train_and_store_base,
)
from bench.experiment.tables import render_experiment_summary
from bench.experiment.tidy import render_accuracies_csv, render_results_csv


def run_experiment_plan(plan: ExperimentPlan, data: Path, out: Path, jobs: int, device: str) -> int:
    """Carry out an experiment plan; return 1 if runs failed, else 0. Raises PlanError before the
    first run.
    """
    # Counted without touching CUDA, which a process that forks must not.
    if device == "cuda" and not torch.cuda.device_count():
        raise PlanError("--device cuda: there is no CUDA device here")
    with _hold_experiment_folder_lock(out):
        bases, runs = expand_plan_to_runs(plan, ExperimentDatasetCache(data, out / "data"), device)
        store = ExperimentResultStore(out)
        waiting = {
            base.result_inputs_digest
            for base in bases
            if not store.get_base_folder(base.result_inputs_digest).exists()
        }
        store.remove_unwanted_runs(
            waiting
            | {
                run.result_inputs_digest
                for run in runs
                if not store.is_run_finished(run.result_inputs_digest)
            }
        )
        try:
            run_unfinished_runs(bases, runs, store, jobs)
        finally:
            failed = write_experiment_report(plan, runs, bases, store)
    return 1 if failed else 0


def run_unfinished_runs(
    bases: Sequence[BaseTrainingRun],
    runs: Sequence[ExperimentRun],
    store: ExperimentResultStore,
    jobs: int,
) -> None:
    """Do all runs of the experiment that have no result yet; repeat killed ones with fewer at once."""
    while True:
        run_work_in_children(_iterate_untrained_base_work(bases, store), jobs)
        run_work_in_children(
            _iterate_unfinished_run_work(runs, store, RunProgressPrinter(runs, store, jobs)), jobs
        )
        if jobs == 1 or all(store.is_run_finished(run.result_inputs_digest) for run in runs):
            return
        jobs //= 2
        print(f"again, {jobs} at once: what was killed or had too little memory", flush=True)


@contextlib.contextmanager
def _hold_experiment_folder_lock(out: Path) -> Iterator[None]:
    """Lock the experiment in folder `out` within the block, once no other process works on it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{out}: another process is at work there; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_experiment_report(
    plan: ExperimentPlan,
    runs: Sequence[ExperimentRun],
    bases: Sequence[BaseTrainingRun],
    store: ExperimentResultStore,
) -> int:
    """Write the experiment's tables, summary and figures; return the number of failed runs."""
    outcomes, failed = collect_run_outcomes(runs, store)
    (store.out / "results.csv").write_text(render_results_csv(runs, outcomes, failed))
    (store.out / "accuracies.csv").write_text(render_accuracies_csv(runs, store))
    text = render_experiment_summary(plan, runs, bases, store, outcomes, failed)
    (store.out / "summary.md").write_text(text + "\n")
    draw_experiment_figures(outcomes, store.out / "figures")
    for run, record in failed:
        print(f"failed: {run.log_name}: {record['failure']['reason']}")
    print(f"report: {store.out / 'summary.md'}, results.csv, accuracies.csv, figures/", flush=True)
    return len(failed)


def _iterate_untrained_base_work(
    bases: Sequence[BaseTrainingRun], store: ExperimentResultStore
) -> Iterator[ChildProcessWork]:
    for base in bases:
        if store.get_base_folder(base.result_inputs_digest).exists():
            continue

        def print_base_end(reason: str | None, base: BaseTrainingRun = base) -> None:
            print(f"base {base.name}: {reason or 'trained'}", flush=True)

        print(f"base {base.name}: training", flush=True)
        yield ChildProcessWork(partial(train_and_store_base, base, store), print_base_end)


def _iterate_unfinished_run_work(
    runs: Sequence[ExperimentRun], store: ExperimentResultStore, progress: "RunProgressPrinter"
) -> Iterator[ChildProcessWork]:
    seen = set()
    for run in runs:
        if run.result_inputs_digest in seen or store.is_run_finished(run.result_inputs_digest):
            continue
        seen.add(run.result_inputs_digest)  # runs under two names are made once

        if (
            isinstance(run.base, BaseTrainingRun)
            and not store.get_base_folder(run.base.result_inputs_digest).exists()
        ):
            _record_run_failure(run, store, f"its base {run.base.name} could not be trained")
            progress.print_run_end(run)
            continue

        def record_failure_and_print_run_end(reason: str | None, run: ExperimentRun = run) -> None:
            if reason is not None:
                _record_run_failure(run, store, reason)
            progress.print_run_end(run)

        yield ChildProcessWork(
            partial(execute_and_record_run, run, store), record_failure_and_print_run_end
        )


def _record_run_failure(run: ExperimentRun, store: ExperimentResultStore, reason: str) -> None:
    store.write_run_record(
        run.result_inputs_digest,
        {**build_failed_run_record("killed", reason), "name": run.log_name, "config": run.config},
    )


class RunProgressPrinter:
    """Prints a line when an experiment run ends, with the estimated time left.

    A run is expected to take as long as those of its cell did, else as long as all did on average.
    """

    def __init__(
        self, runs: Sequence[ExperimentRun], store: ExperimentResultStore, jobs: int
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._seconds: dict[tuple[object, ...], list[float]] = {}
        self._left = {
            run.result_inputs_digest: run
            for run in runs
            if not store.is_run_finished(run.result_inputs_digest)
        }
        self._total = len({run.result_inputs_digest for run in runs})
        for run in runs:
            if run.result_inputs_digest not in self._left:
                self._record_run_duration(run)
        print(
            f"{self._total} runs: {self._total - len(self._left)} done, {len(self._left)} to do",
            flush=True,
        )

    def print_run_end(self, run: ExperimentRun) -> None:
        """Print how an experiment run ended, and the estimated time that is left."""
        self._left.pop(run.result_inputs_digest, None)
        self._record_run_duration(run)
        record = self._store.read_run_record(run.result_inputs_digest)
        assert record is not None
        how = (
            f"{record['seconds']:.0f} s"
            if record["status"] == "done"
            else f"failed: {record['failure']['reason']}"
        )
        done = self._total - len(self._left)
        print(
            f"[{done}/{self._total}] {run.log_name}: {how}; {self._format_remaining_time()}",
            flush=True,
        )

    def _record_run_duration(self, run: ExperimentRun) -> None:
        record = self._store.read_run_record(run.result_inputs_digest)
        if record is not None and record["status"] == "done":
            self._seconds.setdefault(run.table_cells[0], []).append(record["seconds"])

    def _format_remaining_time(self) -> str:
        mean_seconds = {
            cell: statistics.fmean(durations) for cell, durations in self._seconds.items()
        }
        if not mean_seconds:
            return f"{len(self._left)} left"
        usual = statistics.fmean(mean_seconds.values())
        seconds = (
            sum(mean_seconds.get(run.table_cells[0], usual) for run in self._left.values())
            / self._jobs
        )
        return f"{len(self._left)} left, about {time.strftime('%H:%M:%S', time.gmtime(seconds))}"
