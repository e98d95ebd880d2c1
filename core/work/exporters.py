"""Whether this worker has the packages that make ONNX graphs, telling the API, and whose turn it is to
export."""

import functools
import importlib.util

from sqlalchemy import func, select, update

from core.db import exporters, references
from core.db.kinds import Kind
from core.db.session import Database
from core.db.states import LEASED, State
from core.db.tables import ExportJob, Job
from core.work.fence import Claim, hold
from core.work.put_off import PutOff

WAIT_S = 10.0
"""A job whose turn it is not looks again after so long, or when one of the others ends."""
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@functools.cache
def installed() -> bool:
    """Whether all of them are there; found once, without an import."""
    return all(importlib.util.find_spec(name) is not None for name in PACKAGES)


def tell(db: Database, worker: str) -> None:
    """Say that this worker can export, where it can."""
    if installed():
        with db.write() as session:
            exporters.tell(session, worker, db.now(session))


def take_turn(db: Database, claim: Claim, most: int) -> None:
    """Begin to export, unless enough jobs do.

    Raises:
        PutOff: `most` jobs export now.
        LeaseLost: another worker owns the job by now.
    """
    with db.write() as session:
        hold(session, claim)
        references.own(session)  # one at a time: jobs of the same moment see each other
        leased = Job.state.in_(sorted(str(state) for state in LEASED))
        others = (
            select(func.count())
            .select_from(ExportJob)
            .join(Job, Job.id == ExportJob.job_id)
            .where(leased, Job.fence == ExportJob.fence, Job.id != claim.job_id)
        )
        if (session.scalar(others) or 0) >= most:
            raise PutOff(f"{most} jobs export, the most at once: PERENNIAL_MAX_EXPORTS", WAIT_S)
        mine = ExportJob.job_id == claim.job_id
        session.execute(update(ExportJob).where(mine).values(fence=claim.fence))


def leave(db: Database, claim: Claim) -> None:
    """This job exports no more: those that wait for their turn look again."""
    with db.write() as session:
        session.execute(update(ExportJob).where(ExportJob.job_id == claim.job_id).values(fence=None))
        waiting = (Job.kind == str(Kind.EXPORT), Job.state == str(State.QUEUED), Job.id != claim.job_id)
        session.execute(update(Job).where(*waiting, Job.not_before.is_not(None)).values(not_before=None))
