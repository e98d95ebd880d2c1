"""The results as pictures: accuracy matrices, accuracy over tasks, forgetting against updates,
ranks.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.experiment import statistics
from bench.experiment.depths import NetworkDepthStudy, format_statistic
from bench.experiment.outcomes import (
    RunOutcomeUnderProtocol,
    group_outcomes_by_table_cell,
    list_defined_outcome_figures,
)

DPI = 150
PANEL, LEGEND = 2.6, 1.8  # inches


def draw_experiment_figures(
    outcomes: Sequence[RunOutcomeUnderProtocol], folder: Path
) -> list[Path]:
    """Draw the figures of all data sets, scenarios and protocols as PNG; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    figure_paths = []
    for section in dict.fromkeys(o.table_cell_key[:3] for o in outcomes):
        section_outcomes = [o for o in outcomes if o.table_cell_key[:3] == section]
        data, scenario, readout = section
        title = f"{data}, {scenario} scenario, {readout}-incremental"
        figures = {
            "matrices": _draw_accuracy_matrices(section_outcomes),
            "tasks": _draw_accuracy_over_tasks(section_outcomes),
        }
        study = NetworkDepthStudy(section_outcomes)
        if study.methods:
            figures["forgetting"] = _draw_forgetting_against_update_norm(
                study, list(dict.fromkeys(o.run.method for o in section_outcomes))
            )
        if study.has_several_depths and len(study.methods) > 1:
            figures["ranks"] = _draw_ranking_agreement(study)
        if any(o.source for o in section_outcomes):
            figures["source"] = _draw_new_against_base_class_accuracy(section_outcomes)
        for name, figure in figures.items():
            figure.suptitle(f"{title}\n{figure.get_suptitle()}", fontsize=9)
            path = folder / f"{data}-{scenario}-{readout}-{name}.png"
            figure.savefig(path, dpi=DPI)
            figure_paths.append(path)
    return figure_paths


def _create_panels(rows: int, columns: int) -> tuple[Figure, npt.NDArray[Any]]:
    figure = Figure(figsize=(PANEL * columns + LEGEND, PANEL * rows + 0.8), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _draw_accuracy_matrices(outcomes: Sequence[RunOutcomeUnderProtocol]) -> Figure:
    """Draw mean accuracy matrices: a row of panels per network depth, a column per method."""
    cells = group_outcomes_by_table_cell(outcomes)
    methods, depths = (list(dict.fromkeys(cell[i] for cell in cells)) for i in (3, 4))
    figure, axes = _create_panels(len(depths), len(methods))
    figure.suptitle("accuracy after task i (row) on task j (column)")
    for axis in axes.flat:
        axis.set_axis_off()
    for cell, cell_outcomes in cells.items():
        axis = axes[depths.index(cell[4]), methods.index(cell[3])]
        mean = np.mean(np.array([o.matrix for o in cell_outcomes], float), axis=0)
        axis.set_axis_on()
        axis.imshow(mean, vmin=0, vmax=1, cmap="viridis")
        axis.set_title(f"{cell[3]}, depth {cell[4]}", fontsize=8)
        axis.set_xticks([])
        axis.set_yticks([])
        if len(mean) <= 10:
            for (i, j), value in np.ndenumerate(mean):
                if np.isfinite(value):
                    _write_cell_text(axis, i, j, f"{100 * value:.0f}", light=value < 0.7)
    return figure


def _draw_accuracy_over_tasks(outcomes: Sequence[RunOutcomeUnderProtocol]) -> Figure:
    """Draw the mean accuracy after each task with its interval: a panel per depth, a line per
    method.
    """
    cells = group_outcomes_by_table_cell(outcomes)
    methods = list(dict.fromkeys(cell[3] for cell in cells))
    depths = sorted({cell[4] for cell in cells})
    figure, axes = _create_panels(1, len(depths))
    figure.suptitle("accuracy on all tasks so far")
    for cell, cell_outcomes in cells.items():
        axis = axes[0, depths.index(cell[4])]
        curves = np.array([o.by_stage for o in cell_outcomes], float)
        stages = np.arange(1, curves.shape[1] + 1)
        colour = f"C{methods.index(cell[3])}"
        axis.plot(stages, curves.mean(0), marker=".", color=colour)
        limits = [statistics.compute_t_interval(column.tolist()) for column in curves.T]
        if all(limits):
            low, high = zip(*(pair for pair in limits if pair), strict=True)
            axis.fill_between(stages, low, high, alpha=0.15, color=colour)
        axis.set_xticks(stages)
        _set_title_and_axis_labels(axis, f"depth {cell[4]}", "task", "accuracy")
        axis.set_ylim(0, 1.02)
    _add_method_legend(figure, methods)
    return figure


def _draw_forgetting_against_update_norm(
    study: NetworkDepthStudy, methods: Sequence[str]
) -> Figure:
    """Draw forgetting against the update norm: a point per run, a panel per depth, with
    correlations.

    `methods` gives the colours, the same as in the other figures.
    """
    figure, axes = _create_panels(1, len(study.depths))
    figure.suptitle("forgetting against mean update norm")
    for i, depth in enumerate(study.depths):
        axis = axes[0, i]
        for m, method in enumerate(study.methods):
            colour = f"C{methods.index(method)}"
            axis.plot(study.moved[:, i, m], study.forgetting[:, i, m], ".", color=colour)
        correlations = {
            "r": study.correlate_forgetting_with_update_norm(
                i, statistics.compute_pearson_correlation
            ),
            "rho": study.correlate_forgetting_with_update_norm(
                i, statistics.compute_spearman_correlation
            ),
        }
        notes = [
            f"depth {depth}, n {study.count_measured_runs(i)}",
            *(f"{name} {format_statistic(figure)}" for name, figure in correlations.items()),
        ]
        _set_title_and_axis_labels(axis, "\n".join(notes), "update norm", "forgetting")
    _add_method_legend(figure, methods, study.methods)
    return figure


def _draw_ranking_agreement(study: NetworkDepthStudy) -> Figure:
    """Draw Kendall's tau-b between the depths' rankings of methods."""
    size = len(study.depths)
    matrix = np.eye(size)
    for (a, b), (tau, _) in study.compute_ranking_agreements().items():
        matrix[a, b] = matrix[b, a] = np.nan if tau is None else tau
    figure, axes = _create_panels(1, 1)
    figure.suptitle("agreement of ranks (tau-b)")
    axis = axes[0, 0]
    axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu")
    for (i, j), value in np.ndenumerate(matrix):
        _write_cell_text(axis, i, j, f"{value:.2f}", light=bool(abs(value) > 0.5))
    for ticks in (axis.set_xticks, axis.set_yticks):
        ticks(range(size), [str(depth) for depth in study.depths])
    _set_title_and_axis_labels(axis, "", "depth", "depth")
    return figure


def _draw_new_against_base_class_accuracy(outcomes: Sequence[RunOutcomeUnderProtocol]) -> Figure:
    """Draw accuracy on new classes against the base's retained accuracy: a point per run."""
    figure, axes = _create_panels(1, 1)
    figure.suptitle("new classes against old")
    cells = {
        cell: cell_outcomes
        for cell, cell_outcomes in group_outcomes_by_table_cell(outcomes).items()
        if list_defined_outcome_figures(cell_outcomes, "source")
    }
    for number, cell_outcomes in enumerate(cells.values()):
        axes[0, 0].plot(
            list_defined_outcome_figures(cell_outcomes, "acc"),
            list_defined_outcome_figures(cell_outcomes, "source"),
            ".",
            color=f"C{number}",
        )
    _set_title_and_axis_labels(
        axes[0, 0], "", "ACC on the stream", "accuracy on the base's classes"
    )
    _add_method_legend(figure, [f"{cell[3]}, depth {cell[4]}" for cell in cells])
    return figure


def _write_cell_text(axis: Axes, row: int, column: int, text: str, *, light: bool) -> None:
    axis.text(column, row, text, ha="center", va="center", fontsize=6, color="w" if light else "k")


def _add_method_legend(
    figure: Figure, names: Sequence[str], shown: Sequence[str] | None = None
) -> None:
    """Add a legend with the methods' names and colours to a figure."""
    handles = [
        Line2D([], [], marker=".", color=f"C{number}", label=name)
        for number, name in enumerate(names)
        if shown is None or name in shown
    ]
    figure.legend(handles=handles, loc="outside right center", fontsize=7)


def _set_title_and_axis_labels(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(title, fontsize=7)
    axis.set_xlabel(x, fontsize=7)
    axis.set_ylabel(y, fontsize=7)
    axis.tick_params(labelsize=6)
