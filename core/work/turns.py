"""Whose turn it is: the many jobs of one owner do not keep another's waiting.

First comes the owner with the least running jobs; among equals the one who was served longest ago, since a lone worker
runs nothing when it claims; then the one whose job is oldest. Each owner costs a step or two in an index of jobs,
however long his queue is. The age of jobs is in their ids.
"""

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from core.db.states import LEASED
from core.db.tables import Job, Owner

_LEASED = sorted(str(state) for state in LEASED)


def in_order(session: Session, may_run: ColumnElement[bool]) -> list[tuple[str, str]]:
    """(owner, his oldest job that may run), by their ids, in the order in which the owners are served.

    Args:
        may_run: the condition on `Job`.
    """
    runs = select(Job.owner_id, func.count()).where(Job.state.in_(_LEASED)).group_by(Job.owner_id)
    running = {owner: count for owner, count in session.execute(runs)}
    # With ORDER BY and LIMIT the database asks owner by owner; EXISTS it would turn into a join of whole tables.
    oldest = (
        select(Job.id)
        .where(Job.owner_id == Owner.id, may_run)
        .order_by(Job.id)
        .limit(1)
        .correlate(Owner)
        .scalar_subquery()
    )
    able = [row for row in session.execute(select(Owner.id, Owner.claimed_at, oldest)) if row[2] is not None]
    able.sort(key=lambda row: (running.get(row[0], 0), row[1] or 0.0, row[2]))
    return [(owner, job) for owner, _, job in able]
