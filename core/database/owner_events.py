"""Events of an owner's models, for readers that follow all of them and for webhooks
(`core.database.deliveries`).

Events are changes of jobs, versions and aliases. A reader continues after the last id that it has
seen, so an id must never appear below one that was read. PostgreSQL draws a number when a row is
written, but shows the row when its transaction commits, in any order. The rows are therefore
written last in their transaction, and one transaction of an owner after another.
"""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.contract.responses.event import StateData
from core.contract.responses.owner_event import AliasMoved, OwnerEventData, OwnerEventType
from core.database import deliveries
from core.database.kinds import JobKind
from core.database.states import TERMINAL, JobState
from core.database.tables.job import Job, OwnerEvent
from core.database.tables.model import Model
from core.database.tables.version import Version

_RECORDED = "owner events"
_LOCKS = 0x6F776E65
"""First half of the advisory locks taken here; the second half is derived from the owner's id."""


def collect_owner_and_webhook_events_of_job(
    session: Session, job: Job, data: StateData, now: float
) -> None:
    """Record that a job's state changed, for its owner's events and, at its end, webhooks.

    Args:
        data: data of the job's own event.
    """
    version = data.get("version", job.version)
    _collect_owner_event_until_commit(
        session,
        (job.owner_id, job.model_id, job.id),
        "job",
        {
            "state": str(job.state),
            "kind": job.kind,
            "task": job.task_number,
            "version": version,
            "outcome": data.get("outcome"),
        },
        now,
    )
    if JobState(job.state) not in TERMINAL:
        return
    error = data.get("error")
    deliveries.collect_job_outcome_for_webhooks(
        session, job, error["kind"] if error else None, data.get("outcome"), version, now
    )
    if job.kind == JobKind.EXPORT and job.state == JobState.SUCCEEDED:
        deliveries.collect_finished_export_for_webhooks(session, job, now)


def collect_owner_and_webhook_events_of_version(
    session: Session, model: Model, version: Version, now: float
) -> None:
    """Record that a version was published or held, for its owner's events and webhooks."""
    data: OwnerEventData = {
        "version": version.number,
        "task": version.task_number,
        "status": version.status,
    }
    _collect_owner_event_until_commit(
        session, (model.owner_id, model.id, version.job_id), "version", data, now
    )
    deliveries.collect_version_outcome_for_webhooks(session, model, version, now)


def collect_owner_and_webhook_events_of_alias(
    session: Session, model: Model, moved: AliasMoved, now: float
) -> None:
    """Record that an alias was moved or deleted, for its owner's events and webhooks."""
    _collect_owner_event_until_commit(
        session, (model.owner_id, model.id, None), "alias", moved, now
    )
    deliveries.collect_webhook_event_until_commit(
        session,
        "alias.moved",
        model.owner_id,
        model.id,
        moved,  # type: ignore[arg-type]
        now,
    )


def write_collected_owner_and_webhook_events(session: Session) -> None:
    """Write a transaction's recorded owner events and webhook deliveries to the database.

    Call this last before the commit, when the transaction holds all its other locks.
    """
    recorded: list[OwnerEvent] = session.info.pop(_RECORDED, [])
    if recorded:
        # Flushed first, so that all row locks are held before the advisory lock below is taken;
        # another order could deadlock.
        session.flush()
        if session.get_bind().dialect.name == "postgresql":
            # In one order, so that transactions with several owners cannot deadlock.
            for owner in sorted({event.owner_id for event in recorded}):
                # Owners of equal hashes only wait for each other.
                session.execute(select(func.pg_advisory_xact_lock(_LOCKS, func.hashtext(owner))))
        session.add_all(recorded)
    deliveries.write_collected_webhook_deliveries(session)


def _collect_owner_event_until_commit(
    session: Session,
    event_subject: tuple[str, str, str | None],
    type: OwnerEventType,
    data: OwnerEventData,
    now: float,
) -> None:
    owner, model, job = event_subject
    event = OwnerEvent(owner_id=owner, model_id=model, job_id=job, type=type, data=data, at=now)
    session.info.setdefault(_RECORDED, []).append(event)
