"""What models and owners have, in rows and bytes, summed up by the database.

Each blob counts once per model. Of an owner the sums take as long as he has rows, so they are kept in his row,
`Owner.usage`, with their time, and measured anew by the workers, owner after owner.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from core.db.session import Database
from core.db.tables import Base, Export, Job, Model, Owner, Part, Result, Task, Upload, Version
from core.protocol.usage import ModelBytes, ModelCounts, OwnerMeasured, OwnerSums

FRESH_S = 60.0
"""Figures of an owner that are older are measured anew."""
BUDGET_S = 2.0
"""A round of measuring begins no other owner after so long."""
_IN_BYTES = ("traces", "features")
"""Files of tasks whose size is stored; of others it is that of their images."""
_NO_BYTES: ModelBytes = {"versions": 0, "archives": 0, "datasets": 0, "exports": 0}
_Rows = Callable[..., Iterator[Any]]
"""What a query finds in groups, each a model's id and figures of it."""


def per_model(session: Session, which: ColumnElement[bool]) -> dict[str, ModelCounts]:
    """`tasks`, `versions`, `jobs` (by state) and `bytes` of the models for which `which` holds, by model id.

    Of the bytes, `versions` are what the versions' parts and the totals take, `archives` what waits to be
    decoded or checked, `datasets` the decoded pixels that are kept, their features and what versions answered on
    them, and `exports` the downloads that were made.
    """
    some = select(Model.id).where(which)
    answer: dict[str, ModelCounts] = {}
    pixels: dict[str, int] = {}
    for model_id, image, totals in session.execute(
        select(Model.id, Model.image, Model.totals_bytes).where(which)
    ):
        size: ModelBytes = {**_NO_BYTES, "versions": totals or 0}
        answer[model_id] = {"tasks": 0, "versions": 0, "jobs": {}, "bytes": size}
        pixels[model_id] = int(image["size"]) ** 2 * int(image["channels"])

    def rows(query: Select[*tuple[Any, ...]], *groups: Any) -> Iterator[Any]:
        for row in session.execute(query.group_by(*groups)):
            if row[0] in answer:  # not made since
                yield row

    _count(answer, some, rows)
    _sum_batches(answer, some, rows, pixels)
    _sum_versions(answer, some, rows)
    return answer


def _count(answer: dict[str, ModelCounts], some: Select[str], rows: _Rows) -> None:
    tasks = select(Task.model_id, func.count()).where(Task.model_id.in_(some))
    for model_id, count in rows(tasks, Task.model_id):
        answer[model_id]["tasks"] = count
    versions = select(Version.model_id, func.count()).where(Version.model_id.in_(some))
    for model_id, count in rows(versions, Version.model_id):
        answer[model_id]["versions"] = count
    jobs = select(Job.model_id, Job.state, func.count()).where(Job.model_id.in_(some))
    for model_id, state, count in rows(jobs, Job.model_id, Job.state):
        answer[model_id]["jobs"][state] = count


def _sum_batches(
    answer: dict[str, ModelCounts], some: Select[str], rows: _Rows, pixels: Mapping[str, int]
) -> None:
    """Bytes of archives and datasets. pixels: bytes of an image of each model."""
    own = select(Job.model_id, func.sum(Job.archive_bytes)).where(
        Job.model_id.in_(some), Job.archive_key.is_not(None)
    )
    for model_id, total in rows(own, Job.model_id):
        answer[model_id]["bytes"]["archives"] = int(total or 0)

    # Each sum of bytes is over an index of its own.
    files: dict[str, tuple[InstrumentedAttribute[Any], ColumnElement[bool]]] = {
        "archives": (Task.bytes, Task.archive_key.is_not(None)),
        "train": (Task.n_train, Task.train_sha256.is_not(None) & Task.train_deleted_at.is_(None)),
        "held_out": (Task.n_held_out, Task.held_out_sha256.is_not(None) & Task.held_out_deleted_at.is_(None)),
        "traces": (Task.traces_bytes, Task.traces_sha256.is_not(None) & Task.held_out_deleted_at.is_(None)),
        "features": (
            Task.features_bytes,
            Task.features_sha256.is_not(None) & Task.held_out_deleted_at.is_(None),
        ),
    }
    for kind, (column, kept) in files.items():
        of_tasks = select(Task.model_id, func.sum(column)).where(Task.model_id.in_(some), kept)
        for model_id, total in rows(of_tasks, Task.model_id):
            size = answer[model_id]["bytes"]
            if kind == "archives":
                size["archives"] += int(total)
            else:
                size["datasets"] += int(total or 0) * (1 if kind in _IN_BYTES else pixels[model_id])


def _sum_versions(answer: dict[str, ModelCounts], some: Select[str], rows: _Rows) -> None:
    """Bytes of parts, of downloads, and of answers on held-out images."""
    blobs = (
        select(Version.model_id, Part.sha256, func.max(Part.bytes).label("bytes"))
        .join(Version, Version.id == Part.version_id)
        .where(Version.model_id.in_(some), Part.deleted_at.is_(None))
        .group_by(Version.model_id, Part.sha256)
        .subquery()
    )
    exports = (
        select(Version.model_id, Export.bytes)
        .join(Version, Version.id == Export.version_id)
        .where(Version.model_id.in_(some))
        .subquery()
    )
    answers = (
        select(Result.model_id, func.max(Result.answers_bytes).label("bytes"))
        .where(Result.model_id.in_(some), Result.answers.is_not(None))
        .group_by(Result.model_id, Result.answers)
        .subquery()
    )
    for model_id, total in rows(select(answers.c.model_id, func.sum(answers.c.bytes)), answers.c.model_id):
        answer[model_id]["bytes"]["datasets"] += int(total)
    for model_id, total in rows(select(blobs.c.model_id, func.sum(blobs.c.bytes)), blobs.c.model_id):
        answer[model_id]["bytes"]["versions"] += int(total)
    for model_id, total in rows(select(exports.c.model_id, func.sum(exports.c.bytes)), exports.c.model_id):
        answer[model_id]["bytes"]["exports"] = int(total)


def of_owner(session: Session, owner_id: str) -> OwnerSums:
    """The sums over an owner's models, deleted ones too until their files are swept, his bases and uploads."""
    mine = Model.owner_id == owner_id
    models = list(per_model(session, mine).values())
    jobs: dict[str, int] = {}
    for one in models:
        for state, count in one["jobs"].items():
            jobs[state] = jobs.get(state, 0) + count
    bases = (
        select(Base.sha256, func.max(Base.bytes).label("bytes"))
        .where(Base.owner_id == owner_id)
        .group_by(Base.sha256)
        .subquery()
    )
    begun = select(func.sum(Upload.offset)).where(Upload.owner_id == owner_id)
    there = select(func.count()).where(mine, Model.deleted_at.is_(None))
    return {
        "models": session.scalar(there) or 0,
        "tasks": sum(one["tasks"] for one in models),
        "versions": sum(one["versions"] for one in models),
        "jobs": jobs,
        "bytes": {
            "versions": sum(one["bytes"]["versions"] for one in models),
            "archives": sum(one["bytes"]["archives"] for one in models),
            "datasets": sum(one["bytes"]["datasets"] for one in models),
            "exports": sum(one["bytes"]["exports"] for one in models),
            "bases": int(session.scalar(select(func.sum(bases.c.bytes))) or 0),
            "uploads": int(session.scalar(begun) or 0),
        },
    }


def measured(db: Database, owner_id: str, begun: float | None = None) -> OwnerMeasured:
    """Sum up what an owner has and keep it in his row; with `at`, when that was begun (database's clock).

    Args:
        begun: kept only while `Owner.usage_at` is this; None: only while there are no sums.
    """
    with db.read() as session:
        found: OwnerMeasured = {"at": db.now(session), **of_owner(session, owner_id)}
    with db.write() as session:
        mine = Owner.usage.is_(None) if begun is None else Owner.usage_at == begun
        session.execute(update(Owner).where(Owner.id == owner_id, mine).values(usage=found))
    return found


def measure_old(db: Database) -> None:
    """Measure owners that nobody has begun to measure for `FRESH_S`, the oldest first, for about `BUDGET_S`."""
    begun = time.monotonic()
    with db.read() as session:
        old = or_(Owner.usage_at.is_(None), Owner.usage_at < db.now(session) - FRESH_S)
        query = select(Owner.id, Owner.usage_at).where(old)
        due = session.execute(query.order_by(Owner.usage_at.is_not(None), Owner.usage_at)).all()
    for owner_id, at in due:
        if time.monotonic() - begun > BUDGET_S:
            return
        mine = _begin(db, owner_id, at)
        if mine is not None:
            measured(db, owner_id, mine)


def _begin(db: Database, owner_id: str, at: float | None) -> float | None:
    """The time that others then see in the owner's row; None when one of them was faster."""
    with db.write() as session:
        now = db.now(session)
        same = Owner.usage_at.is_(None) if at is None else Owner.usage_at == at
        result: Any = session.execute(update(Owner).where(Owner.id == owner_id, same).values(usage_at=now))
        return now if result.rowcount else None
