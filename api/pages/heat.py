"""The accuracy matrix as a heat map: a window of rows and columns, and what each cell shows.

Colours are the 20 steps of cividis (`h0` … `h19` in app.css), from the lowest shown accuracy to 100 %: in one
scale from nothing to all, the differences that matter would be one colour.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from core.protocol.answers.metrics import MatrixColumn, MetricsOut

ROWS, COLUMNS = 30, 40
"""Versions and tasks on a page."""
STEPS = 20
_FALL = 0.05
"""A cell is marked that is so much below what the version knew that learned the task."""


@dataclass(frozen=True)
class Cell:
    """A version on a task. `step`: its colour; `fallen`: what was lost since it was learned, in [0, 1]."""

    task: int
    accuracy: float | None
    step: int
    learned: bool
    fallen: float | None


@dataclass(frozen=True)
class Row:
    """A version. `left`: production was rolled back from it."""

    version: int
    task: int | None
    held: bool
    production: bool
    left: bool
    cells: list[Cell]


@dataclass(frozen=True)
class Heat:
    """The map. `low`: the accuracy of the first colour; `hidden`: tasks that have no column.

    earlier, later: first task of the columns before and after these, where tasks are shown in order.
    """

    columns: list[MatrixColumn]
    rows: list[Row]
    low: float
    hidden: int
    earlier: int | None
    later: int | None


def heat(found: MetricsOut, *, production: int | None, left: set[int], first: int | None) -> Heat:
    """The map of a window of the matrix, newest version first.

    Args:
        production: the version in production.
        left: versions that production was rolled back from.
        first: the first task of the columns; None: of more than 40 tasks those that were forgotten most.
    """
    columns, earlier, later = _columns(found, first)
    place = {column["task"]: index for index, column in enumerate(found["columns"])}
    chosen = [place[column["task"]] for column in columns]
    known = [row[index] for row in found["accuracy_matrix"] for index in chosen]
    low = min((value for value in known if value is not None), default=0.0)
    low = min(int(low * 10) / 10, 0.9)
    learned = _when_learned(found)
    rows = []
    for told, values in zip(found["rows"], found["accuracy_matrix"], strict=True):
        cells = [
            _cell(found["columns"][index]["task"], values[index], told["task"], low, learned)
            for index in chosen
        ]
        if all(cell.accuracy is None for cell in cells):
            continue  # one that cannot answer, such as a base
        number = told["version"]
        rows.append(
            Row(number, told["task"], told["status"] == "held", number == production, number in left, cells)
        )
    return Heat(columns, rows[::-1], low, len(found["columns"]) - len(columns), earlier, later)


def _cell(task: int, value: float | None, own: int | None, low: float, learned: Mapping[int, float]) -> Cell:
    step = 0 if value is None else max(0, min(STEPS - 1, int((value - low) / (1 - low) * STEPS)))
    best = learned.get(task)
    fallen = None if value is None or best is None or best - value < _FALL else best - value
    return Cell(task, value, step, task == own, fallen)


def _columns(found: MetricsOut, first: int | None) -> tuple[list[MatrixColumn], int | None, int | None]:
    """The columns, and the first tasks of those before and after them."""
    columns = found["columns"]
    if len(columns) <= COLUMNS:
        return columns, None, None
    if first is None:
        lost = {one["task"]: one["forgetting"] or 0.0 for one in found["summary"]["per_task"]}
        worst = sorted(columns, key=lambda one: (-lost.get(one["task"], 0.0), -one["task"]))[:COLUMNS]
        kept = {one["task"] for one in worst}
        return [one for one in columns if one["task"] in kept], None, None
    start = sum(one["task"] < first for one in columns)
    end = start + COLUMNS
    earlier = columns[max(0, start - COLUMNS)]["task"] if start else None
    later = columns[end]["task"] if end < len(columns) else None
    return columns[start:end], earlier, later


def _when_learned(found: MetricsOut) -> dict[int, float]:
    """Task → its accuracy when it was learned, along the line of the summarised version."""
    return {
        one["task"]: one["when_learned"]
        for one in found["summary"]["per_task"]
        if one["when_learned"] is not None
    }
