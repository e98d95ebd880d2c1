"""Fair scheduling: one owner's long queue does not delay the others.

The owner with the fewest running jobs comes first. Among equals it is the one served longest ago,
since a lone worker runs nothing when it claims, and then the one with the oldest job. Each owner
costs a step or two in an index of jobs for each kind, however long the queue is. Ids of jobs are
ordered by age.

Of one owner's jobs, the kind with the highest priority comes first and may overtake older jobs, but
not twice in a row: after a job that overtook, the owner's oldest one is next. Every second turn of
an owner therefore goes to the oldest job, whatever is submitted meanwhile.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from core.database.states import LEASED
from core.database.tables import Job, Owner

_LEASED = sorted(str(state) for state in LEASED)


class OwnerSchedulingTurn(NamedTuple):
    """An owner whose turn it is to have a job claimed, and the id of the owner's next job.

    `overtakes` is True if an older job could also run.
    """

    owner: str
    job: str
    overtakes: bool


def list_owner_scheduling_turns(
    session: Session, may_run: ColumnElement[bool], priorities: Mapping[str, int], now: float
) -> list[OwnerSchedulingTurn]:
    """List the owners with a job that may run, in the order in which they are served.

    Args:
        may_run: condition on `Job` with the SQL parameter `now`, which gets the value of `now`.
        priorities: priorities of the kinds to look for; the lowest number comes first.
    """
    runs = select(Job.owner_id, func.count()).where(Job.state.in_(_LEASED)).group_by(Job.owner_id)
    running = {owner: count for owner, count in session.execute(runs)}
    # With ORDER BY and LIMIT the database asks owner by owner; it would turn EXISTS into a join of
    # whole tables.
    oldest = [
        select(Job.id)
        .where(Job.owner_id == Owner.id, Job.kind == kind, may_run)
        .order_by(Job.id)
        .limit(1)
        .correlate(Owner)
        .scalar_subquery()
        for kind in priorities
    ]
    able = []
    for owner, claimed_at, overtook, *oldest_jobs in session.execute(
        select(Owner.id, Owner.claimed_at, Owner.overtook, *oldest), {"now": now}
    ):
        jobs = [
            (priorities[kind], job)
            for kind, job in zip(priorities, oldest_jobs, strict=True)
            if job
        ]
        if jobs:
            oldest_job = min(job for _, job in jobs)
            next_ = oldest_job if overtook else min(jobs)[1]
            able.append(
                # An owner who was never served comes first.
                (
                    running.get(owner, 0),
                    claimed_at or 0.0,
                    OwnerSchedulingTurn(owner, next_, next_ != oldest_job),
                )
            )
    able.sort(key=lambda row: (row[0], row[1], row[2].job))
    return [next_turn for _, _, next_turn in able]
