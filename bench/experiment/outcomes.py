"""Outcomes of each run: the accuracy matrix of each protocol and the figures that follow from
it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.experiment.grid import Cell, ExperimentRun
from bench.experiment.runs import ExperimentResultStore
from core.statistics.matrix import (
    AccuracyMatrixVersion,
    LineageAccuracyMatrix,
    average_defined_values,
)


@dataclass(frozen=True)
class RunOutcomeUnderProtocol:
    """Figures of one finished run under one evaluation protocol.

    Accuracies are shares; `matrix` has a row per stage and a column per task, None above the
    diagonal. `moved`: the norm of each update over what may move. `source`: accuracy on the base's
    classes after each stage. `gap`: joint accuracy minus this run's, on the same order, seed and
    depth; None without a joint run.
    """

    run: ExperimentRun
    readout: str
    matrix: list[list[float | None]]
    figures: dict[str, float | None]
    by_stage: list[float | None]
    moved: list[float]
    source: list[float] | None
    record: dict[str, Any]

    @property
    def table_cell_key(self) -> Cell:
        """Cell of the result tables to which the outcome belongs."""
        return self.run.data, self.run.scenario, self.readout, self.run.method, self.run.depth

    @property
    def order_and_seed(self) -> tuple[int, int]:
        """Order and seed of the run, which tell repetitions of one cell apart."""
        return self.run.order, self.run.seed


def collect_run_outcomes(
    runs: Sequence[ExperimentRun], store: ExperimentResultStore
) -> tuple[list[RunOutcomeUnderProtocol], list[tuple[ExperimentRun, dict[str, Any]]]]:
    """Compute the outcomes of finished runs, and return (run, record) of each failed one."""
    outcomes, failed = [], []
    joint: dict[tuple[Any, ...], LineageAccuracyMatrix] = {}
    done = []
    for run in runs:
        record = store.read_run_record(run.result_inputs_digest)
        if record is None:
            continue
        if record["status"] == "failed":
            failed.append((run, record))
            continue
        for readout in run.evaluation_protocols:
            stages = _build_accuracy_matrix(record, readout)
            done.append((run, record, readout, stages))
            if run.joint:
                joint[_build_joint_run_key(run, readout)] = stages
    for run, record, readout, stages in done:
        outcomes.append(
            _build_outcome(
                run, record, readout, stages, joint.get(_build_joint_run_key(run, readout))
            )
        )
    return outcomes, failed


def group_outcomes_by_table_cell(
    outcomes: Sequence[RunOutcomeUnderProtocol],
) -> dict[Cell, list[RunOutcomeUnderProtocol]]:
    """Group outcomes by the table cell that they repeat, in the plan's order."""
    cells: dict[Cell, list[RunOutcomeUnderProtocol]] = {}
    for outcome in outcomes:
        cells.setdefault(outcome.table_cell_key, []).append(outcome)
    return cells


def list_defined_outcome_figures(
    outcomes: Sequence[RunOutcomeUnderProtocol], figure: str
) -> list[float]:
    """Return the defined values of one figure over outcomes."""
    return [value for outcome in outcomes if (value := outcome.figures[figure]) is not None]


def _build_joint_run_key(run: ExperimentRun, readout: str) -> tuple[Any, ...]:
    """Return the properties in which a joint run must equal a run to be its reference."""
    network = str(run.config["architecture"]), run.config["base"]
    return run.data, run.scenario, readout, run.depth, run.order, run.seed, network


def _build_accuracy_matrix(record: Mapping[str, Any], readout: str) -> LineageAccuracyMatrix:
    cells = {
        (stage["stage"], row["test"]): (row["correct"], row["total"])
        for stage in record["stages"]
        for row in stage["results"]
        if row["readout"] == readout and row["test"] != "source"
    }
    last = record["stages"][-1]["stage"]
    rows = [
        AccuracyMatrixVersion(0, None, None),
        *(AccuracyMatrixVersion(i, i, i - 1) for i in range(1, last + 1)),
    ]
    if readout == "data":  # one test set for all tasks: a column is as good as another
        counts = [
            next(iter(counts for (stage, _), counts in cells.items() if stage == i))
            for i in range(1, last + 1)
        ]
        cells = {(i, j): counts[i - 1] for i in range(1, last + 1) for j in range(1, i + 1)}
    return LineageAccuracyMatrix(rows, cells, last, readout, slices=readout != "data")


def _build_outcome(
    run: ExperimentRun,
    record: dict[str, Any],
    readout: str,
    stages: LineageAccuracyMatrix,
    joint: LineageAccuracyMatrix | None,
) -> RunOutcomeUnderProtocol:
    last = stages.last
    gap: list[float | None]
    moved = [
        math.hypot(s["update_norm"]["backbone"], s["update_norm"]["head"]) for s in record["stages"]
    ]
    source = [
        row["correct"] / row["total"]
        for stage in record["stages"]
        for row in stage["results"]
        if row["test"] == "source"
    ]
    if readout == "data":
        best, final_accuracy = (
            joint.compute_primary_accuracy(joint.last) if joint else None,
            stages.compute_primary_accuracy(last),
        )
        gap = [None if best is None or final_accuracy is None else best - final_accuracy]
        joint = None
    else:
        gap = stages.compute_gap_to_joint(joint.list_accuracies_by_stage()) if joint else []
    lag = (
        stages.compute_intransigence([joint.get_task_accuracy(k, k) for k in range(1, last + 1)])
        if joint
        else []
    )
    figures: dict[str, float | None] = {
        "acc": stages.compute_mean_task_accuracy(last),
        "last": stages.compute_primary_accuracy(last),
        "average_incremental": average_defined_values(stages.list_accuracies_by_stage()),
        "bwt": stages.compute_backward_transfer(),
        "forgetting": stages.compute_mean_forgetting(last),
        "learning_accuracy": stages.compute_learning_accuracy(),
        "update_norm": average_defined_values(moved),
        "gap_to_joint": gap[-1] if gap else None,
        "intransigence": average_defined_values(lag),
        "source": source[-1] if source else None,
        "seconds": average_defined_values(stage["seconds"] for stage in record["stages"]),
        "new_megabytes": average_defined_values(
            stage["new_bytes"] / 1e6 for stage in record["stages"]
        ),
        "kept_images": float(record["stages"][-1]["kept_images"]),
    }
    # It starts from the first weights at each stage: nothing is updated, nothing forgotten.
    if run.joint:
        figures |= dict.fromkeys(("bwt", "forgetting", "update_norm"))
    if len(record["stages"]) < last:  # nothing is known of the stages before
        figures |= dict.fromkeys(("average_incremental", "learning_accuracy"))
    matrix = [
        [stages.get_task_accuracy(i, j) for j in range(1, last + 1)] for i in range(1, last + 1)
    ]
    return RunOutcomeUnderProtocol(
        run,
        readout,
        matrix,
        figures,
        stages.list_accuracies_by_stage(),
        moved,
        source or None,
        record,
    )
