"""The seconds that the job of a batch is expected to take: by the model's earlier jobs, else by its base.

Jobs are compared by the passes that their recipes need over the images learned and held out, so that a larger batch or
another method is expected to take as much longer. The start of a job is part of what was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.db.kinds import Kind
from core.db.states import State
from core.db.tables import Job, Model, Task
from core.protocol.answers.recipe import RecipeOut
from core.protocol.catalogue import Catalogue
from core.recipe.passes import PASSES, Pass, pass_of, relative_s

MEASURED_JOBS = 5
"""Newest jobs of a model that are looked at."""
_UNKNOWN = Pass(1, 1.0, 3.0)
"""Of a network that was not measured: learning an image takes three times as long as answering it."""


@dataclass(frozen=True)
class PastJob:
    """A job that has ended: its seconds, recipe, and the images that it learned and answered."""

    seconds: float
    recipe: RecipeOut
    learned: int
    answered: int


def find_expected_s(
    session: Session, catalogue: Catalogue, model: Model, recipe: RecipeOut, learned: int, held_out: int
) -> float | None:
    """Return the seconds to expect of the job of a batch; None where neither a job nor a pass was measured.

    Args:
        recipe: complete, of the batch.
        learned: images of the batch.
        held_out: images that the job answers: those of the batch, and of all earlier ones.
    """
    base = model.base
    is_known = isinstance(base, str) and base in PASSES
    known = pass_of(base, model.image["size"]) if isinstance(base, str) and is_known else _UNKNOWN
    alone = relative_s(catalogue, known, recipe, learned, held_out)
    past = _read_past(session, model)
    rates = [
        job.seconds / passes
        for job in past
        if job.recipe["method"]["name"] in catalogue["methods"]
        and (passes := relative_s(catalogue, known, job.recipe, job.learned, job.answered))
    ]
    if rates:
        return round(alone * median(rates), 1)
    return round(alone, 1) if is_known else None


def _read_past(session: Session, model: Model) -> Sequence[PastJob]:
    """Return the newest jobs of a model that learned a batch in one attempt."""
    held_out = (
        select(func.sum(Task.n_held_out))
        .where(Task.model_id == model.id, Task.number <= Job.task_number)
        .correlate(Job)
        .scalar_subquery()
    )
    query = (
        select(Job.finished_at - Job.started_at, Job.recipe, Task.n_train, held_out)
        .join(Task, Task.id == Job.task_id)
        .where(
            Job.model_id == model.id,
            Job.kind == str(Kind.LEARN),
            Job.state == str(State.SUCCEEDED),
            Job.attempt == 1,
            Task.n_train.is_not(None),
        )
        .order_by(Job.id.desc())
        .limit(MEASURED_JOBS)
    )
    return [
        PastJob(seconds, recipe, learned, int(answered or 0))  # PostgreSQL gives a sum as a Decimal
        for seconds, recipe, learned, answered in session.execute(query)
        if seconds is not None
    ]
