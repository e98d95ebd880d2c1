"""A version's row of the accuracy matrix: read, and written with what its ancestors knew."""

from collections.abc import Iterable, Mapping

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from core.db import measurements
from core.db.measurements import ALL_TASKS, ROW, Measured
from core.db.tables import Result, Version
from core.line.coverage import taught
from core.matrix_row import Cell, row_figures

_ROW = select(Result.task, Result.correct, Result.total, Result.best).where(
    Result.model_id == bindparam("model"), Result.version == bindparam("version")
)


def row_of(session: Session, model_id: str, version: int) -> dict[int, Cell]:
    """The cells of a version, by task."""
    found = session.connection().execute(_ROW, {"model": model_id, "version": version}).all()
    return {task: Cell(correct, total, best) for task, correct, total, best in found}


def best_before(session: Session, version: Version, tasks: Iterable[int]) -> dict[int, float | None]:
    """What `Cell.best` is of the next version's cells of `tasks`: best accuracy up to `version` since it was learned.

    One version is read, and its ancestors only for tasks on which it was not measured itself.
    """
    found: dict[int, float | None] = {}
    at: Version | None = version
    wanted = set(tasks)
    while at is not None and (wanted := wanted & set(taught(at.manifest))):
        row = row_of(session, at.model_id, at.number)
        found |= {task: row[task].best_with_own() for task in wanted & row.keys()}
        wanted -= row.keys()
        parent = select(Version).where(Version.model_id == at.model_id, Version.number == at.parent)
        at = session.scalars(parent).one_or_none() if wanted else None
    return found


def keep_figures(session: Session, version: Version, cells: Mapping[int, Cell], scenario: str) -> None:
    """Store the figures of a version's row, for the metrics of the versions that come from it."""
    figures = row_figures(taught(version.manifest), cells, scenario)
    told = {"last": figures.last, "forgetting": figures.forgetting}
    measurements.add(session, version.model_id, version.number, [Measured(ROW, ALL_TASKS, figures.acc, told)])
