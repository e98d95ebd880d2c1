"""The accuracy matrix of a model, whole or a window of it, and the summary of one of its versions."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from operator import truediv

from sqlalchemy import BindParameter, bindparam, select
from sqlalchemy.orm import Session

from core import matrix
from core.db.lists import listed, lists
from core.db.session import Database
from core.db.tables import Job, Model, Result, Task, Version
from core.errors import Invalid, NotFound
from core.line.coverage import taught
from core.protocol.answers.metrics import MatrixColumn, MatrixRow, MetricsOut
from core.requests.actor import Actor, find_model
from core.requests.metrics_summary import AT_ONCE, Learned, Published, first_cells, summary
from core.requests.versions import find_version

_LAST = 2**31 - 1
_MODEL: BindParameter[str] = bindparam("model")
# Statements are put together once: that takes longer than to run most of them.
_VERSIONS = (
    select(
        *(Version.number, Version.task_number, Version.parent, Version.status, Version.bytes),
        *(Job.started_at, Job.finished_at),
    )
    .outerjoin(Job, Job.id == Version.job_id)
    .where(Version.model_id == _MODEL)
    .order_by(Version.number)
)
_TASKS = select(Task.number, Task.name, Task.n_held_out).where(Task.model_id == _MODEL)
_CLASSES = select(*listed(Task.number, Task.classes)).where(Task.model_id == _MODEL)
_CELLS = select(*listed(Result.version, Result.task, Result.correct, Result.total)).where(
    *(Result.model_id == _MODEL, Result.version.in_(bindparam("versions", expanding=True))),
    *(Result.task.between(bindparam("first"), bindparam("last")), Result.total > 0),
)


@dataclass(frozen=True)
class Window:
    """The part of the matrix that is shown: versions and tasks by number, the first and the last.

    Raises:
        Invalid: the first is behind the last.
    """

    versions: tuple[int, int] = (0, _LAST)
    tasks: tuple[int, int] = (0, _LAST)

    def __post_init__(self) -> None:
        for name, (first, last) in (("from` and `to", self.versions), ("tasks", self.tasks)):
            if first > last:
                raise Invalid(
                    f"The window `{name}` begins at {first} and ends at {last}: name the lower number first."
                )


WHOLE = Window()


def model_metrics(
    db: Database, actor: Actor, model: str, *, version: str, window: Window = WHOLE
) -> MetricsOut:
    """Rows (versions), columns (learned tasks), accuracy matrix and the summary of `version`.

    Args:
        version: number or alias whose ancestors the summary follows.
        window: rows and columns to show. The summary is of all.

    Raises:
        NotFound: no such model or version.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        asked = find_version(session, owner, version)
        published, first = _versions(session, owner), first_cells(session, owner)
        learned = sorted({one.row.task for one in published.values() if one.row.task is not None})
        tasks = _tasks(session, owner, learned)
        own = tuple(taught(asked.manifest))
        try:
            summarised = summary(session, owner, asked.number, own, published, tasks, first)
        except KeyError as error:
            raise NotFound(f"Version {asked.number} has an ancestor that is not there: {error}.") from error
        rows = [number for number in published if window.versions[0] <= number <= window.versions[1]]
        columns = [number for number in learned if window.tasks[0] <= number <= window.tasks[1]]
        sizes = {task: total for (_, task), (_, total) in first.items()}
        return {
            "version": asked.number,
            "rows": [_row(published[number]) for number in rows],
            "columns": [_column(tasks.get(n), n, sizes.get(n, 0)) for n in columns],
            "accuracy_matrix": _matrix(session, owner, rows, columns),
            "summary": summarised,
            "definitions": matrix.DEFINITIONS,
        }


def _versions(session: Session, model: Model) -> dict[int, Published]:
    """By rising number."""
    return {
        number: Published(matrix.Row(number, task, parent), status, size, _seconds(start, end))
        for number, task, parent, status, size, start, end in session.connection()
        .execute(_VERSIONS, {"model": model.id})
        .all()
    }


def _tasks(session: Session, model: Model, numbers: Collection[int]) -> dict[int, Learned]:
    connection, of_model = session.connection(), {"model": model.id}
    classes = dict(zip(*lists(connection.execute(_CLASSES, of_model).one()), strict=True))
    found = {number: (name, n) for number, name, n in connection.execute(_TASKS, of_model).all()}
    return {n: Learned(found[n][0], classes[n], found[n][1]) for n in numbers if n in found}


def _matrix(
    session: Session, model: Model, versions: Sequence[int], tasks: Sequence[int]
) -> list[list[float | None]]:
    """One list per version, one accuracy in [0, 1] or None per task."""
    cells: dict[tuple[int, int], float] = {}
    window = {"model": model.id, "first": min(tasks, default=0), "last": max(tasks, default=0)}
    for start in range(0, len(versions), AT_ONCE):
        part = {**window, "versions": versions[start : start + AT_ONCE]}
        of, on, correct, total = lists(session.connection().execute(_CELLS, part).one())
        cells |= zip(zip(of, on, strict=True), map(truediv, correct, total), strict=True)
    return [list(map(cells.get, product([version], tasks))) for version in versions]


def _row(version: Published) -> MatrixRow:
    row = version.row
    return {"version": row.version, "task": row.task, "parent": row.parent, "status": version.status}


def _column(task: Learned | None, number: int, measured: int) -> MatrixColumn:
    if task is None:
        return {"task": number, "name": None, "classes": [], "n": measured}
    return {
        "task": number,
        "name": task.name,
        "classes": sorted(task.classes),
        "n": task.n_held_out if task.n_held_out is not None else measured,
    }


def _seconds(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start
