"""Check a whole batch without learning it (`?validate=full`): a job decodes it and reports what a submit would.

The job has no task and no place in the line of its model: nothing waits for it, and it waits for nothing but a worker.
Its archive is kept until it is over, and counts among the bytes of its owner.
"""

from typing import Any

from core.db import job_log
from core.db.kinds import Kind
from core.db.session import Database
from core.db.tables import Event
from core.ids import new_id
from core.kill_points import reached
from core.recipe.stored import stored_override
from core.requests import idempotency, quota, tasks
from core.requests.actor import Actor, find_model
from core.requests.admission import ANY, Admission
from core.requests.archive_keeping import kept
from core.requests.audit import record
from core.requests.job_answer import shown
from core.requests.jobs import beside_the_line
from core.requests.tasks import Batch
from core.store import Store

Json = dict[str, Any]


def begin(
    db: Database,
    store: Store,
    catalogue: Json,
    actor: Actor,
    model: str,
    batch: Batch,
    repeat: idempotency.Request | None,
    *,
    max_bytes: int = 0,
    max_open_jobs: int = 0,
    admission: Admission = ANY,
) -> tuple[Json, bool]:
    """Queue a job that decodes a batch; returns the job, and whether it is a replay. Arguments as of `tasks.submit`.

    Raises: as `tasks.submit`.
    """
    report = tasks.check(db, catalogue, actor, model, batch, admission)
    override = stored_override(catalogue, batch.recipe)
    with db.read() as session:
        owner_id = find_model(session, actor, model).owner_id
    quota.require_room(db, owner_id, max_bytes, batch.bytes)
    key = f"archives/{new_id('job')}"
    with kept(db, store, key, batch.path), db.write() as session:
        now = db.now(session)
        if repeat is not None:
            replay = idempotency.replayed(session, actor, repeat, now)
            if replay is not None:
                store.delete(key)
                return replay.body or {}, True
        row = find_model(session, actor, model, lock=True)
        job = beside_the_line(row, Kind.VALIDATE, override, report["recipe"], now)
        job.archive_key, job.archive_sha256, job.archive_bytes = key, batch.sha256, batch.bytes
        job.report = {**report, "valid": None, "n_held_out": None}
        session.add(job)
        session.flush()
        session.add(Event(job_id=job.id, type="state", data={"state": job.state}, at=now))
        found = batch.directory.classes
        job_log.to_check(session, job, sum(found.values()), len(found), now)
        record(session, actor, "batch.validate", job.id, {"model": row.id, "sha256": batch.sha256}, now=now)
        answer = shown(session, job)
        if repeat is not None:
            headers = {"Location": f"/v1/jobs/{job.id}", "Retry-After": "1"}
            idempotency.remember(session, actor, repeat, 202, headers, answer, now)
        session.flush()
        quota.take(session, row.owner_id, max_bytes, batch.bytes)
        quota.take_turn(session, row.owner_id, max_open_jobs)
    reached("submit-committed")
    return answer, False
