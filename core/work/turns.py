"""Whose turn it is: the many jobs of one owner do not keep another's waiting.

First comes the owner with the least running jobs; among equals the one who was served longest ago, since a lone worker
runs nothing when it claims; then the one whose job is oldest. Each owner costs a step or two in an index of jobs for
each kind, however long his queue is. The age of jobs is in their ids.

Of one owner's jobs the kind of the highest priority comes first, and may overtake older ones; but not twice in a row:
after a job that overtook comes his oldest one. So every second turn of an owner goes to his oldest job, whatever else
he asks for meanwhile.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from core.db.states import LEASED
from core.db.tables import Job, Owner

_LEASED = sorted(str(state) for state in LEASED)


class Turn(NamedTuple):
    """An owner and his job that comes next, by their ids; overtakes: he has an older one that may run."""

    owner: str
    job: str
    overtakes: bool


def in_order(session: Session, may_run: ColumnElement[bool], priorities: Mapping[str, int]) -> list[Turn]:
    """The turns of the owners who have a job that may run, in the order in which they are served.

    Args:
        may_run: the condition on `Job`.
        priorities: of the kinds to look for; the lowest number comes first.
    """
    runs = select(Job.owner_id, func.count()).where(Job.state.in_(_LEASED)).group_by(Job.owner_id)
    running = {owner: count for owner, count in session.execute(runs)}
    # With ORDER BY and LIMIT the database asks owner by owner; EXISTS it would turn into a join of whole tables.
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
    for owner, claimed_at, overtook, *found in session.execute(
        select(Owner.id, Owner.claimed_at, Owner.overtook, *oldest)
    ):
        jobs = [(priorities[kind], job) for kind, job in zip(priorities, found, strict=True) if job]
        if jobs:
            eldest = min(job for _, job in jobs)
            next_ = eldest if overtook else min(jobs)[1]
            able.append((running.get(owner, 0), claimed_at or 0.0, Turn(owner, next_, next_ != eldest)))
    able.sort(key=lambda row: (row[0], row[1], row[2].job))
    return [turn for _, _, turn in able]
