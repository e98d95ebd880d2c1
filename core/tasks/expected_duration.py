"""Expected seconds of a batch's job, from the model's earlier jobs or else from its base.

Jobs are compared by the passes that their recipes need over the learned and held-out images. The
estimate therefore scales with the size of the batch and with the method. The measured times include
the start of a job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.recipe import RecipeOut
from core.database.kinds import JobKind
from core.database.states import JobState
from core.database.tables import Job, Model, Task
from core.recipe.duration_estimate import (
    PASSES,
    ProcessorSecondsPerImage,
    compute_recipe_processor_seconds,
    estimate_seconds_per_image_on_base,
)

MEASURED_JOBS = 5
"""Maximum number of the model's newest jobs that are considered."""
_UNKNOWN = ProcessorSecondsPerImage(1, 1.0, 3.0)
"""Pass of an unmeasured network: learning an image takes three times as long as predicting it."""


@dataclass(frozen=True)
class PastJob:
    """A finished job from which durations are estimated: its seconds, recipe, and numbers of
    images.
    """

    seconds: float
    recipe: RecipeOut
    learned: int
    answered: int


def estimate_job_seconds(
    session: Session,
    catalogue: RecipeCatalogue,
    model: Model,
    recipe: RecipeOut,
    learned: int,
    held_out: int,
) -> float | None:
    """Estimate the seconds of a batch's job from earlier jobs, or None without any measurement.

    Args:
        recipe: complete recipe of the batch.
        learned: images of the batch.
        held_out: images that the job predicts: held-out images of the batch and of all earlier
            tasks.
    """
    base = model.base
    is_known = isinstance(base, str) and base in PASSES
    base_pass = (
        estimate_seconds_per_image_on_base(base, model.image["size"])
        if isinstance(base, str) and is_known
        else _UNKNOWN
    )
    estimate = compute_recipe_processor_seconds(catalogue, base_pass, recipe, learned, held_out)
    past = _read_past_jobs(session, model)
    rates = [
        job.seconds / passes
        for job in past
        # A later release may have removed the method of an earlier job.
        if job.recipe["method"]["name"] in catalogue["methods"]
        and (
            passes := compute_recipe_processor_seconds(
                catalogue, base_pass, job.recipe, job.learned, job.answered
            )
        )
    ]
    if rates:
        return round(estimate * median(rates), 1)
    return round(estimate, 1) if is_known else None


def _read_past_jobs(session: Session, model: Model) -> Sequence[PastJob]:
    """Return the newest jobs of a model that learned a batch in one attempt, with their durations."""
    held_out = (
        select(func.sum(Task.n_held_out))
        .where(Task.model_id == model.id, Task.number <= Job.task_number)
        # To jobs alone: the outer query reads tasks too, and the sum must range over its own.
        .correlate(Job)
        .scalar_subquery()
    )
    query = (
        select(Job.finished_at - Job.started_at, Job.recipe, Task.n_train, held_out)
        .join(Task, Task.id == Job.task_id)
        .where(
            Job.model_id == model.id,
            Job.kind == str(JobKind.LEARN),
            Job.state == str(JobState.SUCCEEDED),
            # The time of further attempts includes pauses and lost work.
            Job.attempt == 1,
            # Trials learn a task several times.
            Job.choose.is_(None),
            Task.n_train.is_not(None),
        )
        .order_by(Job.id.desc())
        .limit(MEASURED_JOBS)
    )
    return [
        PastJob(
            seconds, recipe, learned, int(held_out_count or 0)
        )  # PostgreSQL gives a sum as a Decimal
        for seconds, recipe, learned, held_out_count in session.execute(query)
        if seconds is not None
    ]
