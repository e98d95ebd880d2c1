"""What is used: counts and bytes, per model and owner. For administrators."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Base, Export, Job, Model, Owner, Part, Task, Version
from core.requests.actor import Actor
from core.requests.pages import page


def by_model(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> dict[str, Any]:
    """A page of models with their counts and bytes; deleted ones too until their blobs are swept.

    `bytes.versions` is what the versions' parts take in the store, each blob counted once per model;
    `bytes.archives` what waits to be decoded; `bytes.datasets` the decoded pixels that are kept.
    """
    with db.read() as session:
        found: list[Model] = []

        def keep(entry: Any) -> dict[str, Any]:
            found.append(entry[0])
            return {}

        query = select(Model).where(actor.filter(Model.owner_id))
        answer = page(session, query, Model.id, limit, cursor, keep)
        owners = _names(session, {m.owner_id for m in found})
        counted = _counts(session, [m.id for m in found], [m.image for m in found])
        answer["items"] = [
            {
                "model": m.id,
                "name": m.name,
                "owner": owners[m.owner_id],
                "deleted": m.deleted_at is not None,
                **counted[m.id],
            }
            for m in found
        ]
        return answer


def by_owner(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> dict[str, Any]:
    """A page of owners with the sums over their models, and the bytes of their bases."""
    with db.read() as session:
        found: list[Owner] = []

        def keep(entry: Any) -> dict[str, Any]:
            found.append(entry[0])
            return {}

        query = select(Owner).where(actor.filter(Owner.id))
        answer = page(session, query, Owner.id, limit, cursor, keep)
        answer["items"] = [_owner(session, owner) for owner in found]
        return answer


def _owner(session: Session, owner: Owner) -> dict[str, Any]:
    models = session.execute(
        select(Model.id, Model.image, Model.deleted_at).where(Model.owner_id == owner.id)
    ).all()
    counted = _counts(session, [m.id for m in models], [m.image for m in models])
    jobs: dict[str, int] = {}
    for one in counted.values():
        for state, count in one["jobs"].items():
            jobs[state] = jobs.get(state, 0) + count
    distinct = select(Base.sha256, func.max(Base.bytes).label("bytes")).where(Base.owner_id == owner.id)
    bases = session.execute(select(func.sum(distinct.group_by(Base.sha256).subquery().c.bytes))).scalar_one()
    size = {key: sum(one["bytes"][key] for one in counted.values()) for key in _NO_BYTES}
    return {
        "owner": owner.name,
        "models": sum(m.deleted_at is None for m in models),
        "tasks": sum(one["tasks"] for one in counted.values()),
        "versions": sum(one["versions"] for one in counted.values()),
        "jobs": jobs,
        "bytes": {**size, "bases": int(bases or 0)},
    }


_NO_BYTES = {"versions": 0, "archives": 0, "datasets": 0, "exports": 0}
_CHUNK = 500  # SQLite bounds the number of bound values


def _counts(session: Session, ids: list[str], images: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    answer: dict[str, dict[str, Any]] = {
        i: {"tasks": 0, "versions": 0, "jobs": {}, "bytes": dict(_NO_BYTES)} for i in ids
    }
    pixels = {i: int(im["size"]) ** 2 * int(im["channels"]) for i, im in zip(ids, images, strict=True)}
    for start in range(0, len(ids), _CHUNK):
        some = ids[start : start + _CHUNK]
        tasks = select(
            Task.model_id, Task.bytes, Task.archive_key, Task.n_train, Task.n_held_out,
            Task.train_sha256, Task.train_deleted_at, Task.held_out_sha256, Task.held_out_deleted_at,
        ).where(Task.model_id.in_(some))  # fmt: skip
        for task in session.execute(tasks):
            one = answer[task.model_id]
            one["tasks"] += 1
            if task.archive_key is not None:
                one["bytes"]["archives"] += task.bytes
            kept = task.n_train or 0 if task.train_sha256 and task.train_deleted_at is None else 0
            kept += task.n_held_out or 0 if task.held_out_sha256 and task.held_out_deleted_at is None else 0
            one["bytes"]["datasets"] += kept * pixels[task.model_id]
        versions = select(Version.model_id, func.count()).where(Version.model_id.in_(some))
        for model_id, count in session.execute(versions.group_by(Version.model_id)):
            answer[model_id]["versions"] = count
        jobs = select(Job.model_id, Job.state, func.count()).where(Job.model_id.in_(some))
        for model_id, state, count in session.execute(jobs.group_by(Job.model_id, Job.state)):
            answer[model_id]["jobs"][state] = count
        blobs = (
            select(Version.model_id, Part.sha256, func.max(Part.bytes).label("bytes"))
            .join(Version, Version.id == Part.version_id)
            .where(Version.model_id.in_(some), Part.deleted_at.is_(None))
            .group_by(Version.model_id, Part.sha256)
            .subquery()
        )
        sums = select(blobs.c.model_id, func.sum(blobs.c.bytes)).group_by(blobs.c.model_id)
        for model_id, size in session.execute(sums):
            answer[model_id]["bytes"]["versions"] = int(size)
        exports = (
            select(Version.model_id, func.sum(Export.bytes))
            .join(Version, Version.id == Export.version_id)
            .where(Version.model_id.in_(some))
            .group_by(Version.model_id)
        )
        for model_id, size in session.execute(exports):
            answer[model_id]["bytes"]["exports"] = int(size)
    return answer


def _names(session: Session, ids: set[str]) -> dict[str, str]:
    rows = session.execute(select(Owner.id, Owner.name).where(Owner.id.in_(ids)))
    return {owner_id: name for owner_id, name in rows}
