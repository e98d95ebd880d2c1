"""The accuracy matrix of a model, whole or a window of it, with the summary of one version."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from operator import truediv

from pydantic_core import to_json
from sqlalchemy import BindParameter, Row, bindparam, select
from sqlalchemy.orm import Session

from core.contract.responses.versions.metrics import (
    CellMark,
    MatrixColumn,
    MatrixRow,
    MetricsOut,
)
from core.database.bulk import (
    build_concatenated_column_aggregates,
    parse_concatenated_column_aggregates,
)
from core.database.session import Database
from core.database.tables import Edit, Job, Model, Task, Version, VersionTaskResult
from core.errors import Invalid, NotFound
from core.lineage.coverage import list_taught_tasks
from core.requests.actor import Actor, find_model
from core.requests.response_cache import CachedResponse, ResponseCache
from core.statistics import matrix
from core.versions.metrics_summary import (
    AT_ONCE,
    LearnedTask,
    ModelVersionsAndTasks,
    VersionSizeAndDuration,
    build_version_summary,
    read_first_measurements_of_tasks,
)
from core.versions.versions import find_version

KEPT_BYTES = 16 << 20
"""Maximum size of the responses cached by one process, in bytes.

The whole matrix of 1,000 versions and tasks takes 10 MB.
"""
# The largest value of PostgreSQL's type integer, which these numbers have.
_LAST = 2**31 - 1
_MODEL: BindParameter[str] = bindparam("model")
# Statements are built once at import: building them takes longer than running most of them.
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
_CLASSES = select(*build_concatenated_column_aggregates(Task.number, Task.classes)).where(
    Task.model_id == _MODEL
)
_CELLS = (
    select(
        VersionTaskResult.version,
        *build_concatenated_column_aggregates(
            VersionTaskResult.task, VersionTaskResult.correct, VersionTaskResult.total
        ),
    )
    .where(
        *(
            VersionTaskResult.model_id == _MODEL,
            VersionTaskResult.version.in_(bindparam("versions", expanding=True)),
        ),
        # Accuracies are quotients, and a task may have no held-out images.
        *(
            VersionTaskResult.task.between(bindparam("first"), bindparam("last")),
            VersionTaskResult.total > 0,
        ),
    )
    .group_by(VersionTaskResult.version)
)


@dataclass(frozen=True)
class MatrixWindow:
    """Window of the accuracy matrix: first and last version (row) and task (column), by number.

    Raises:
        Invalid: the first number is higher than the last.
    """

    versions: tuple[int, int] = (0, _LAST)
    tasks: tuple[int, int] = (0, _LAST)

    def __post_init__(self) -> None:
        for name, (first, last) in (("from` and `to", self.versions), ("tasks", self.tasks)):
            if first > last:
                raise Invalid(
                    f"The window `{name}` begins at {first} and ends at {last}: name the lower "
                    f"number first."
                )


WHOLE = MatrixWindow()


@dataclass(frozen=True)
class LabelEdit:
    """An edit that changed the labels or the set of held-out images, and the cells that it affects.

    Attributes:
        version: the version that it made; earlier ones were measured by the former labels.
        tasks: the tasks.
        counted_again: cells (version, task) that were counted by the new labels.
    """

    version: int
    tasks: tuple[int, ...]
    counted_again: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class _MetricsSourceData:
    """Changeable data that a response with the accuracy matrix is made from.

    Cells and figures are left out: they are written in the transaction of their version and never
    change, so `next_version` stands for them.

    Attributes:
        model: the model.
        number: number of the requested version.
        taught: tasks of that version, in order.
        versions, tasks, classes: rows of `_VERSIONS` and `_TASKS`, and the row of `_CLASSES`.
        edits: those that changed held-out labels. An undo restores the cells that it counted again.
    """

    model: Model
    number: int
    taught: tuple[int, ...]
    versions: Sequence[Row[int, int | None, int | None, str, int, float | None, float | None]]
    tasks: Sequence[Row[int, str | None, int | None]]
    classes: Row[*tuple[str, ...]]
    edits: Sequence[LabelEdit]

    @cached_property
    def published(self) -> dict[int, VersionSizeAndDuration]:
        """All versions of the model by number, in ascending order."""
        return {
            number: VersionSizeAndDuration(
                matrix.AccuracyMatrixVersion(number, task, parent),
                status,
                size,
                _subtract_times_or_none(start, end),
            )
            for number, task, parent, status, size, start, end in self.versions
        }

    @cached_property
    def learned(self) -> dict[int, LearnedTask | None]:
        """Tasks of the model that some version learned, by number in ascending order.

        A task that no longer exists is None.
        """
        numbers = {one.row.task for one in self.published.values() if one.row.task is not None}
        classes = dict(zip(*parse_concatenated_column_aggregates(self.classes), strict=True))
        tasks_by_number = {
            number: LearnedTask(name, classes[number], n) for number, name, n in self.tasks
        }
        return {number: tasks_by_number.get(number) for number in sorted(numbers)}

    def compute_response_cache_key(self, window: MatrixWindow) -> bytes:
        """Return a digest of 32 bytes that differs whenever the metrics response does."""
        scalars = (self.model.id, self.model.next_version, self.number, self.taught, window)
        rows = [list(map(tuple, rows)) for rows in (self.versions, self.tasks)]
        edits = [(each.version, each.tasks) for each in self.edits]
        return sha256(to_json([*scalars, *rows, *self.classes, edits])).digest()


def read_model_accuracy_metrics(
    db: Database, actor: Actor, model: str, *, version: str, window: MatrixWindow = WHOLE
) -> MetricsOut:
    """Return the accuracy matrix of a model (versions × learned tasks), and summary figures of
    `version`.

    Args:
        version: number or alias of the version whose ancestors the summary follows.
        window: rows and columns to show; the summary always covers all.

    Raises:
        NotFound: there is no such model or version.
    """
    with db.read() as session:
        return _build_metrics_response(
            session, _read_metrics_response_data(session, actor, model, version), window
        )


def get_or_build_metrics_json(
    db: Database,
    actor: Actor,
    model: str,
    response_cache: ResponseCache,
    *,
    version: str,
    window: MatrixWindow,
) -> CachedResponse:
    """Return the response of `read_model_accuracy_metrics` as JSON, from the cache where possible."""
    with db.read() as session:
        basis = _read_metrics_response_data(session, actor, model, version)
        return response_cache.get_or_build_response(
            basis.compute_response_cache_key(window),
            # JSON has no NaN or infinity.
            lambda: to_json(_build_metrics_response(session, basis, window), inf_nan_mode="null"),
        )


def _read_metrics_response_data(
    session: Session, actor: Actor, model: str, version: str
) -> _MetricsSourceData:
    """Read the changeable data that a metrics response is made from."""
    owner = find_model(session, actor, model)
    requested = find_version(session, owner, version)
    connection, of_model = session.connection(), {"model": owner.id}
    return _MetricsSourceData(
        model=owner,
        number=requested.number,
        taught=tuple(list_taught_tasks(requested.manifest)),
        versions=connection.execute(_VERSIONS, of_model).all(),
        tasks=connection.execute(_TASKS, of_model).all(),
        classes=connection.execute(_CLASSES, of_model).one(),
        edits=_read_label_edits(session, owner.id),
    )


def _build_metrics_response(
    session: Session, basis: _MetricsSourceData, window: MatrixWindow
) -> MetricsOut:
    published, learned = basis.published, basis.learned
    first = read_first_measurements_of_tasks(session, basis.model)
    existing_tasks = {number: task for number, task in learned.items() if task is not None}
    try:
        summarised = build_version_summary(
            session,
            basis.model,
            basis.number,
            basis.taught,
            ModelVersionsAndTasks(published, existing_tasks, first),
        )
    except KeyError as error:
        raise NotFound(
            f"Version {basis.number} has an ancestor that is not there: {error}."
        ) from error
    rows = [number for number in published if window.versions[0] <= number <= window.versions[1]]
    columns = [number for number in learned if window.tasks[0] <= number <= window.tasks[1]]
    sizes = {task: total for (_, task), (_, total) in first.items()}
    cells = _build_accuracy_rows(session, basis.model, rows, columns)
    measured = [
        (version, task)
        for version, values in zip(rows, cells, strict=True)
        for task, value in zip(columns, values, strict=True)
        if value is not None
    ]
    return {
        "version": basis.number,
        "rows": [_build_matrix_row(published[number]) for number in rows],
        "columns": [_build_matrix_column(learned[n], n, sizes.get(n, 0)) for n in columns],
        "accuracy_matrix": cells,
        "marks": _list_marks_of_edited_cells(basis.edits, measured) if basis.edits else [],
        "summary": summarised,
        "definitions": matrix.get_metric_definitions(basis.model.problem),
    }


def _build_accuracy_rows(
    session: Session, model: Model, versions: Sequence[int], tasks: Sequence[int]
) -> list[list[float | None]]:
    """Return the accuracy matrix: per version a list with one accuracy in [0, 1] or None per task."""
    accuracies: dict[int, dict[int, float]] = {}
    window = {"model": model.id, "first": min(tasks, default=0), "last": max(tasks, default=0)}
    for start in range(0, len(versions), AT_ONCE):
        part = {**window, "versions": versions[start : start + AT_ONCE]}
        for version, *texts in session.connection().execute(_CELLS, part):
            task_numbers, correct, total = parse_concatenated_column_aggregates(texts)
            accuracies[version] = dict(zip(task_numbers, map(truediv, correct, total), strict=True))
    return [list(map(accuracies.get(version, {}).get, tasks)) for version in versions]


def _build_matrix_row(version: VersionSizeAndDuration) -> MatrixRow:
    row = version.row
    return {
        "version": row.version,
        "task": row.task,
        "parent": row.parent,
        "status": version.status,
    }


def _build_matrix_column(task: LearnedTask | None, number: int, measured: int) -> MatrixColumn:
    if task is None:
        return {"task": number, "name": None, "classes": [], "n": measured}
    return {
        "task": number,
        "name": task.name,
        "classes": sorted(task.classes),
        "n": task.n_held_out if task.n_held_out is not None else measured,
    }


def _subtract_times_or_none(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _read_label_edits(session: Session, model_id: str) -> list[LabelEdit]:
    """Return a model's edits that changed held-out labels and were not undone, oldest first."""
    query = (
        select(Edit.version, Edit.journal)
        .where(Edit.model_id == model_id, Edit.version.is_not(None), Edit.undone_at.is_(None))
        .order_by(Edit.number)
    )
    return [
        LabelEdit(
            version or 0,
            tuple(journal.measured_otherwise),
            frozenset((cell.version, cell.task) for cell in journal.cells),
        )
        for version, journal in session.execute(query)
        if journal is not None and journal.measured_otherwise
    ]


def _list_marks_of_edited_cells(
    edits: Collection[LabelEdit], cells: Collection[tuple[int, int]]
) -> list[CellMark]:
    """Return a mark for each accuracy-matrix cell (version, task) whose labels were edited."""
    marks: list[CellMark] = []
    for version, task in cells:
        later = [each for each in edits if version < each.version and task in each.tasks]
        if later:
            # Counted by present labels only if every edit since could count it again.
            is_counted_again = all((version, task) in each.counted_again for each in later)
            marks.append(
                {
                    "version": version,
                    "task": task,
                    "mark": "labels edited",
                    "counted_again": is_counted_again,
                }
            )
    return marks
