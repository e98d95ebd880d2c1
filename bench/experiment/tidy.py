"""The results as tidy CSV: a row per run × protocol, and a row per accuracy that was measured."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.experiment.grid import ExperimentRun
from bench.experiment.outcomes import RunOutcomeUnderProtocol
from bench.experiment.runs import ExperimentResultStore

RUN = (
    "key",
    "data",
    "scenario",
    "method",
    "depth",
    "order",
    "seed",
    "architecture",
    "base",
    "status",
)
FIGURES = (
    "acc", "last", "average_incremental", "bwt", "forgetting", "learning_accuracy", "update_norm",
    "gap_to_joint", "intransigence", "source", "seconds", "new_megabytes", "kept_images",
)  # fmt: skip
LAST = ("trainable", "parameters", "state_bytes")
STAGE = ("stage", "seconds", "update_backbone", "update_head", "update_relative", *LAST)
TEST = ("test", "task", "correct", "total", "accuracy")


def render_results_csv(
    runs: Sequence[ExperimentRun],
    outcomes: Sequence[RunOutcomeUnderProtocol],
    failed: Sequence[tuple[ExperimentRun, Mapping[str, Any]]],
) -> str:
    """Render results as CSV with a row per run and protocol: its figures, or why it failed.

    `trainable`, `parameters` and `state_bytes` are those of the last task.
    """
    done = {(o.run.log_name, o.readout): o for o in outcomes}
    reasons = {run.log_name: record["failure"] for run, record in failed}
    rows = []
    for run in runs:
        for readout in run.evaluation_protocols:
            outcome = done.get((run.log_name, readout))
            if outcome is not None:
                last = outcome.record["stages"][-1]
                facts = {**outcome.figures, **{name: last[name] for name in LAST}}
                rows.append({**_build_csv_columns_of_run(run, "done"), "readout": readout, **facts})
            elif run.log_name in reasons:
                why = reasons[run.log_name]
                rows.append(
                    {
                        **_build_csv_columns_of_run(run, "failed"),
                        "readout": readout,
                        "failure": why["kind"],
                        "reason": why["reason"],
                    }
                )
    return _render_csv((*RUN, "readout", *FIGURES, *LAST, "failure", "reason"), rows)


def render_accuracies_csv(runs: Sequence[ExperimentRun], store: ExperimentResultStore) -> str:
    """Render accuracies as CSV with a row per run, task learned, protocol and test set.

    `test` is "task", then `task` is its number, or "source" for the base's classes.
    """
    rows = []
    for run in runs:
        record = store.read_run_record(run.result_inputs_digest)
        for stage in record["stages"] if record else []:
            norms = {f"update_{name}": value for name, value in stage["update_norm"].items()}
            facts = {name: stage[name] for name in STAGE if name in stage}
            for row in stage["results"]:
                source = row["test"] == "source"
                rows.append(
                    {
                        **_build_csv_columns_of_run(run, record["status"] if record else ""),
                        **facts,
                        **norms,
                        "readout": row["readout"],
                        "test": "source" if source else "task",
                        "task": "" if source else row["test"],
                        "correct": row["correct"],
                        "total": row["total"],
                        "accuracy": row["correct"] / row["total"] if row["total"] else None,
                    }
                )
    return _render_csv((*RUN, "readout", *STAGE, *TEST), rows)


def _build_csv_columns_of_run(run: ExperimentRun, status: str) -> dict[str, Any]:
    return {
        "key": run.result_inputs_digest,
        **{name: getattr(run, name) for name in RUN[1:7]},
        "architecture": run.config["architecture"]["name"],
        "base": run.base.name if run.base else "",
        "status": status,
    }


def _render_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
