"""The accuracy matrix on a model's page: as a heat map, and as curves over the versions.

The heat map is a window of rows and columns, and the content of each cell. Colours are the 20 steps
of cividis (`h0` … `h19` in app.css), from the lowest shown accuracy to 100 %. On a fixed scale from
0 to 100 %, the relevant differences would share one colour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.contract.responses.versions.metrics import CellMark, MatrixColumn, MetricsOut
from core.versions.history import VersionHistory

ROWS, COLUMNS = 30, 40
"""Maximum number of versions and tasks on a page."""
CURVES = 10
"""Maximum number of tasks with a curve: those with the most forgetting."""
STEPS = 20
_FALL = 0.05
"""Accuracy lost since a task was learned, in [0, 1], above which a cell is marked."""


@dataclass(frozen=True)
class HeatMapCell:
    """A cell of the accuracy heat map: one version's accuracy on one task, with its colour.

    Attributes:
        accuracy: in [0, 1]; None: not measured.
        step: colour step, from 0 to `STEPS` − 1.
        learned: True if this version learned the task.
        fallen: accuracy lost since the task was learned, in [0, 1]; None: less than 0.05.
        mark: how an edit of labels concerns it, for a person; "": not at all.
    """

    task: int
    accuracy: float | None
    step: int
    learned: bool
    fallen: float | None
    mark: str = ""


@dataclass(frozen=True)
class HeatMapRow:
    """A row of the accuracy heat map: one version. `left`: production was rolled back from it."""

    version: int
    task: int | None
    is_held: bool
    production: bool
    left: bool
    cells: list[HeatMapCell]


@dataclass(frozen=True)
class HeatMap:
    """The accuracy matrix (versions by tasks) as a heat map for a page.

    Attributes:
        low: accuracy of the first colour, in [0, 1].
        hidden: number of tasks without a column.
        earlier, later: first task of the previous and next columns, if tasks are shown in order.
    """

    columns: list[MatrixColumn]
    rows: list[HeatMapRow]
    low: float
    hidden: int
    earlier: int | None
    later: int | None

    @property
    def has_edited_labels(self) -> bool:
        """True if a shown cell was measured before labels of its task were edited."""
        return any(cell.mark for row in self.rows for cell in row.cells)


def build_heat_map(
    matrix: MetricsOut, *, production: int | None, left: set[int], first: int | None
) -> HeatMap:
    """Build the heat map of a window of the accuracy matrix, newest version first.

    Args:
        production: the version in production.
        left: versions that production was rolled back from.
        first: the first task of the columns; None: of more than 40 tasks, those with the most
            forgetting.
    """
    columns, earlier, later = _select_heat_map_columns(matrix, first)
    column_index = {column["task"]: index for index, column in enumerate(matrix["columns"])}
    chosen = [column_index[column["task"]] for column in columns]
    values_shown = [row[index] for row in matrix["accuracy_matrix"] for index in chosen]
    low = min((value for value in values_shown if value is not None), default=0.0)
    # Round down to a tenth; 0.9 at most, so that the colour scale has a width.
    low = min(int(low * 10) / 10, 0.9)
    learned = _read_accuracies_when_learned(matrix)
    marks = {
        (one["version"], one["task"]): explain_edited_label_mark(one) for one in matrix["marks"]
    }
    rows = []
    for version_row, values in zip(matrix["rows"], matrix["accuracy_matrix"], strict=True):
        cells = [
            _build_heat_map_cell(
                matrix["columns"][index]["task"], values[index], version_row["task"], low, learned
            )
            for index in chosen
        ]
        if all(cell.accuracy is None for cell in cells):
            continue  # a version that does not predict, such as a base
        number = version_row["version"]
        cells = [replace(cell, mark=marks.get((number, cell.task), "")) for cell in cells]
        rows.append(
            HeatMapRow(
                number,
                version_row["task"],
                version_row["status"] == "held",
                number == production,
                number in left,
                cells,
            )
        )
    return HeatMap(columns, rows[::-1], low, len(matrix["columns"]) - len(columns), earlier, later)


def explain_edited_label_mark(mark: CellMark) -> str:
    """Describe how edited labels affect an accuracy of the heat map."""
    if mark["counted_again"]:
        return "labels edited since, and counted again by them"
    return "labels edited since: this is what was measured by the former ones"


def _build_heat_map_cell(
    task: int,
    value: float | None,
    learned_task: int | None,
    low: float,
    learned: Mapping[int, float],
) -> HeatMapCell:
    step = 0 if value is None else max(0, min(STEPS - 1, int((value - low) / (1 - low) * STEPS)))
    best = learned.get(task)
    fallen = None if value is None or best is None or best - value < _FALL else best - value
    return HeatMapCell(task, value, step, task == learned_task, fallen)


def _select_heat_map_columns(
    matrix: MetricsOut, first: int | None
) -> tuple[list[MatrixColumn], int | None, int | None]:
    """Return the heat map's columns to show, and the first tasks of the previous and next columns."""
    columns = matrix["columns"]
    if len(columns) <= COLUMNS:
        return columns, None, None
    if first is None:
        forgetting = {
            one["task"]: one["forgetting"] or 0.0 for one in matrix["summary"]["per_task"]
        }
        # Among equally forgotten tasks the newest come first.
        worst = sorted(columns, key=lambda one: (-forgetting.get(one["task"], 0.0), -one["task"]))[
            :COLUMNS
        ]
        worst_tasks = {one["task"] for one in worst}
        return [one for one in columns if one["task"] in worst_tasks], None, None
    start = sum(one["task"] < first for one in columns)
    end = start + COLUMNS
    earlier = columns[max(0, start - COLUMNS)]["task"] if start else None
    later = columns[end]["task"] if end < len(columns) else None
    return columns[start:end], earlier, later


def _read_accuracies_when_learned(matrix: MetricsOut) -> dict[int, float]:
    """Return task → accuracy when learned, in the lineage of the summarised version."""
    return {
        one["task"]: one["when_learned"]
        for one in matrix["summary"]["per_task"]
        if one["when_learned"] is not None
    }


@dataclass(frozen=True)
class AccuracyCurve:
    """A curve of a chart, with one value in percent per version; None: not measured."""

    name: str
    values: list[float | None]


@dataclass(frozen=True)
class AccuracyCurves:
    """Published versions in ascending order, and the accuracy curves over them."""

    versions: list[int]
    curves: list[AccuracyCurve]


def build_accuracy_curves(matrix: MetricsOut, history: VersionHistory) -> AccuracyCurves:
    """Build the accuracy curves over a window of published versions."""
    # A held version serves nobody, so its accuracy is no part of a curve.
    published = {one.number: one for one in history.versions if one.status != "held"}
    rows = {
        row["version"]: values
        for row, values in zip(matrix["rows"], matrix["accuracy_matrix"], strict=True)
    }
    numbers = sorted(
        number for number in published if number in rows and published[number].acc is not None
    )
    forgetting = {one["task"]: one["forgetting"] or 0.0 for one in matrix["summary"]["per_task"]}
    order = sorted(
        range(len(matrix["columns"])),
        key=lambda index: -forgetting.get(matrix["columns"][index]["task"], 0.0),
    )
    drawn = [
        AccuracyCurve(
            "All tasks", [_convert_to_percent(published[number].acc) for number in numbers]
        )
    ]
    for index in sorted(order[:CURVES]):
        column = matrix["columns"][index]
        name = f"Task {column['task']}" + (f" {column['name']}" if column["name"] else "")
        drawn.append(
            AccuracyCurve(name, [_convert_to_percent(rows[number][index]) for number in numbers])
        )
    return AccuracyCurves(numbers, drawn)


def _convert_to_percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)
