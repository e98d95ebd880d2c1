"""Conditions under which a worker may claim a job: its resources, and the turn of the job."""

from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, exists, or_
from sqlalchemy.orm import aliased

from core.database.jobs import build_unfinished_job_condition
from core.database.states import LEASED, JobState
from core.database.tables import Job, Model, Task

_LEASED = sorted(str(state) for state in LEASED)


class WorkerResources(NamedTuple):
    """Resources that a worker offers to jobs: `device` cpu, cuda or auto (either), and `gpus`, CUDA
    devices.
    """

    device: str = "auto"
    gpus: int = 1


ANY_DEVICE = WorkerResources()


def build_condition_for_jobs_worker_can_run(offer: WorkerResources) -> ColumnElement[bool]:
    """Return the SQL condition that a worker with these resources can run a job.

    Every worker has a CPU.
    """
    if offer.device == "cpu":
        # A snapshot made on a GPU resumes on a GPU: on a CPU it would lead to another version.
        return and_(Job.device != "cuda", or_(Job.resume_on.is_(None), Job.resume_on == "cpu"))
    return or_(Job.gpus <= offer.gpus, Job.device == "cpu")


@cache  # building it takes longer than SQLite needs to evaluate it, and workers claim often
def build_claimable_job_condition() -> ColumnElement[bool]:
    """Return the SQL condition that a job may be claimed at the time that the statement's parameter
    `now` gives.
    """
    competitor = aliased(Job)
    earlier = or_(
        and_(competitor.again == Job.again, competitor.task_number < Job.task_number),
        and_(competitor.again, ~Job.again),
        # A job under way comes first whatever its place: the next one starts from its version.
        competitor.state.in_(_LEASED),
    )
    its_turn = and_(
        # first, since SQLite evaluates in this order and this costs less
        or_(Job.again, ~build_stopped_lineage_condition(Job.model_id)),
        ~build_model_awaits_base_condition(Job.model_id),
        ~exists().where(
            competitor.model_id == Job.model_id,
            competitor.id != Job.id,
            competitor.place.is_not(None),
            build_unfinished_job_condition(competitor.state),
            earlier,
        ),
    )
    return and_(
        Job.state == str(JobState.QUEUED),
        or_(Job.not_before.is_(None), Job.not_before <= bindparam("now")),
        or_(Job.place.is_(None), its_turn),
    )


def build_stopped_lineage_condition(model_id: Any) -> ColumnElement[bool]:
    """Return the SQL condition that one of a model's tasks waits for a person, so that later tasks
    wait too.

    Args:
        model_id: a column.
    """
    return exists().where(Task.model_id == model_id, Task.stops)


def build_model_awaits_base_condition(model_id: Any) -> ColumnElement[bool]:
    """Return the SQL condition that a model has no version 0 yet, because its weights are being
    downloaded.

    Args:
        model_id: a column.
    """
    waiting_model = aliased(Model)
    return exists().where(waiting_model.id == model_id, waiting_model.base_job.is_not(None))
