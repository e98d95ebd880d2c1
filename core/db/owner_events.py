"""What happened to an owner's models, told to whoever follows all of them, and to his webhooks (`core.db.deliveries`):
changes of jobs, versions and aliases.

A reader goes on after the last id that it has seen, so an id must never appear below one that was read.
PostgreSQL draws a number when a row is written and shows the row when its transaction commits, in whatever
order. Therefore the rows are written last in their transaction, one transaction of an owner after the other.
"""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.db import deliveries
from core.db.kinds import Kind
from core.db.states import TERMINAL, State
from core.db.tables.job import Job, OwnerEvent
from core.db.tables.model import Model
from core.db.tables.version import Version
from core.protocol.answers.event import StateData
from core.protocol.answers.owner_event import AliasMoved, OwnerEventData, OwnerEventType

_TOLD = "owner events"
_LOCKS = 0x6F776E65
"""First half of the advisory locks that are taken here; the second is made of the owner's id."""


def of_job(session: Session, job: Job, data: StateData, now: float) -> None:
    """A job came into the state that it has now; `data`: of its own event."""
    made = data.get("version", job.version)
    _tell(
        session,
        (job.owner_id, job.model_id, job.id),
        "job",
        {
            "state": str(job.state),
            "kind": job.kind,
            "task": job.task_number,
            "version": made,
            "outcome": data.get("outcome"),
        },
        now,
    )
    if State(job.state) not in TERMINAL:
        return
    error = data.get("error")
    deliveries.of_job(session, job, error["kind"] if error else None, data.get("outcome"), made, now)
    if job.kind == Kind.EXPORT and job.state == State.SUCCEEDED:
        deliveries.of_export(session, job, now)


def of_version(session: Session, model: Model, version: Version, now: float) -> None:
    """A version was published or held."""
    data: OwnerEventData = {
        "version": version.number,
        "task": version.task_number,
        "status": version.status,
    }
    _tell(session, (model.owner_id, model.id, version.job_id), "version", data, now)
    deliveries.of_version(session, model, version, now)


def of_alias(session: Session, model: Model, moved: AliasMoved, now: float) -> None:
    """An alias was moved or deleted."""
    _tell(session, (model.owner_id, model.id, None), "alias", moved, now)
    deliveries.tell(session, "alias.moved", model.owner_id, model.id, moved, now)  # type: ignore[arg-type]


def write(session: Session) -> None:
    """Write what was told in this transaction: the last thing before its commit, when it holds all its other locks."""
    told: list[OwnerEvent] = session.info.pop(_TOLD, [])
    if told:
        session.flush()
        if session.get_bind().dialect.name == "postgresql":
            for owner in sorted({event.owner_id for event in told}):
                session.execute(select(func.pg_advisory_xact_lock(_LOCKS, func.hashtext(owner))))
        session.add_all(told)
    deliveries.write(session)


def _tell(
    session: Session,
    of: tuple[str, str, str | None],
    type: OwnerEventType,
    data: OwnerEventData,
    now: float,
) -> None:
    owner, model, job = of
    event = OwnerEvent(owner_id=owner, model_id=model, job_id=job, type=type, data=data, at=now)
    session.info.setdefault(_TOLD, []).append(event)
