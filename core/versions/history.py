"""A window of a model's versions, newest first, and the moves of production.

The number of queries is fixed, and each reads only the window; manifests and parts are not loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, literal_column, select
from sqlalchemy.orm import Session

from core.contract.gate import Verdict
from core.database.measurements import ALL_TASKS, ROW
from core.database.session import Database
from core.database.tables import AliasMove, Model, Task, Version, VersionMeasurement
from core.lineage.lineage import PRODUCTION
from core.requests.actor import Actor, find_model
from core.requests.timestamps import format_rfc3339

MOVES = 100
"""Maximum number of the newest moves of production that are shown."""


@dataclass(frozen=True)
class VersionSummaryRow:
    """Summary of a version in its model's history: status and figures.

    `acc` and `forgetting` of its row of the matrix are in [0, 1], or None if undefined. `images`:
    held-out images that they rest on; None: rows written before 0.1.0 lack it.
    """

    number: int
    parent: int | None
    task: int | None
    task_name: str | None
    status: str
    gate: Verdict
    bytes: int
    bytes_new: int
    note: str | None
    job: str | None
    created_at: str
    acc: float | None
    images: int | None
    forgetting: float | None


@dataclass(frozen=True)
class ProductionMove:
    """A move of the alias production; `cause` is create, publish, set, rollback or follow."""

    version: int
    previous: int | None
    cause: str
    reason: str | None
    at: str


@dataclass(frozen=True)
class VersionHistory:
    """A window of a model's versions and of the moves of production, newest first.

    `newest` is the model's newest version.
    """

    newest: int
    versions: list[VersionSummaryRow]
    moves: list[ProductionMove]


def read_version_history(
    db: Database, actor: Actor, model: str, *, last: int | None, size: int
) -> VersionHistory:
    """Read the history of a model: `size` versions up to number `last` (None: the newest), and
    moves of production.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        newest = row.next_version - 1
        end = newest if last is None else min(last, newest)
        return VersionHistory(
            newest,
            _list_versions_up_to_number(session, row, end, size),
            _list_production_moves(session, row),
        )


def _list_versions_up_to_number(
    session: Session, model: Model, end: int, size: int
) -> list[VersionSummaryRow]:
    """Return a model's versions up to number `end`, newest first, with their figures."""
    figures = and_(
        VersionMeasurement.model_id == Version.model_id,
        VersionMeasurement.version == Version.number,
        VersionMeasurement.name == ROW,
        # a literal, so that the partial index matches
        VersionMeasurement.task == literal_column(str(ALL_TASKS)),
    )
    task = and_(Task.model_id == Version.model_id, Task.number == Version.task_number)
    query = (
        select(
            *(
                Version.number,
                Version.parent,
                Version.task_number,
                Task.name,
                Version.status,
                Version.gate,
            ),
            *(Version.bytes, Version.bytes_new, Version.note, Version.job_id, Version.created_at),
            *(VersionMeasurement.value, VersionMeasurement.detail),
        )
        .select_from(Version)
        .outerjoin(VersionMeasurement, figures)
        .outerjoin(Task, task)
        .where(Version.model_id == model.id, Version.number.between(end - size + 1, end))
        .order_by(Version.number.desc())
    )
    return [
        VersionSummaryRow(
            number=one.number,
            parent=one.parent,
            task=one.task_number,
            task_name=one.name,
            status=one.status,
            gate=one.gate,
            bytes=one.bytes,
            bytes_new=one.bytes_new,
            note=one.note,
            job=one.job_id,
            created_at=format_rfc3339(one.created_at),
            acc=one.value,
            images=(one.detail or {}).get("images"),
            forgetting=_read_forgetting_figure(one.detail),
        )
        for one in session.execute(query)
    ]


def _read_forgetting_figure(detail: Mapping[str, Any] | None) -> float | None:
    return None if detail is None else detail.get("forgetting")


def _list_production_moves(session: Session, model: Model) -> list[ProductionMove]:
    """Return the newest moves of the alias production, newest first."""
    query = (
        select(AliasMove)
        .where(AliasMove.model_id == model.id, AliasMove.alias == PRODUCTION)
        .order_by(AliasMove.id.desc())
        .limit(MOVES)
    )
    return [
        ProductionMove(one.version, one.previous, one.cause, one.reason, format_rfc3339(one.at))
        for one in session.scalars(query)
    ]
