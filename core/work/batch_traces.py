"""A decoded batch beside the earlier tasks of its model: which of its images nearly repeat theirs."""

from collections.abc import Iterator
from dataclasses import replace

from sqlalchemy import or_, select
from sqlalchemy.orm import load_only

from core.db.session import Database
from core.db.tables import Task
from core.errors import StoreCorrupt
from core.ingest.batch_data import Earlier, beside_earlier
from core.ingest.ingest import Ingested
from core.ingest.traces import Traces, read_traces
from core.store import Blobs

MOST_TASKS = 1_000
"""Earlier tasks that are looked at, the newest first."""


def compared(db: Database, blobs: Blobs, model_id: str, before: int | None, made: Ingested) -> Ingested:
    """The batch, with a report that also tells near duplicates in earlier tasks.

    Args:
        before: number of the batch's own task; None: it has none, and all tasks are earlier.
    """
    data = made.report["data"]
    earlier = _earlier(db, blobs, model_id, before)
    near = beside_earlier(data["near_duplicates"], read_traces(made.traces), earlier)
    return replace(made, report={**made.report, "data": {**data, "near_duplicates": near}})


def _earlier(db: Database, blobs: Blobs, model_id: str, before: int | None) -> Iterator[Earlier]:
    """Tasks that still have images or hashes, one at a time: hashes of a large task are many."""
    there = or_(Task.traces_sha256.is_not(None), Task.held_out_sha256.is_not(None))
    query = select(Task).where(Task.model_id == model_id, there, Task.held_out_deleted_at.is_(None))
    if before is not None:
        query = query.where(Task.number < before)
    query = query.order_by(Task.number.desc()).limit(MOST_TASKS)
    with db.read() as session:
        rows = session.scalars(query.options(load_only(Task.number, Task.traces_sha256)))
        found = [(task.number, task.traces_sha256) for task in rows]
    for number, sha256 in found:
        yield Earlier(number, None if sha256 is None else _read(blobs, sha256))


def _read(blobs: Blobs, sha256: str) -> Traces | None:
    """None where they went meanwhile, or are damaged: the batch is learned all the same."""
    try:
        return read_traces(blobs.fetch(sha256))
    except (StoreCorrupt, ValueError):
        return None
