"""Share of a whole job that is done, and the seconds left, from its phases weighted by their cost.

A job stores the seconds of its phases with its progress. The next job of the same kind and model
expects the same, scaled by its number of images; a model's first job expects the usual cost of each
phase. Nothing in this module reads a clock.
"""

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.jobs.progress import JobProgress
from core.database.kinds import JobKind
from core.database.states import JobState
from core.database.tables import Job, Task

USUAL_S: Mapping[str, Mapping[str, float]] = {
    JobKind.LEARN: {
        "validate": 6.0,
        "prepare": 4.0,
        "measure": 8.0,
        "inspect": 6.0,
        "train": 60.0,
        "consolidate": 6.0,
        "evaluate": 8.0,
        "publish": 2.0,
    },
    JobKind.EXPORT: {"load": 4.0, "export": 10.0, "check": 10.0},
    JobKind.FETCH: {"prepare": 4.0, "fetch": 20.0},
    JobKind.VALIDATE: {"validate": 10.0},
    JobKind.MEASURE: {"validate": 6.0, "prepare": 2.0, "measure": 8.0, "publish": 1.0},
}
"""Phases of each kind of job in their order, with the seconds of a small job."""
CLOSED_FORM_S: Mapping[str, float] = {
    "validate": 4.0,
    "prepare": 6.0,
    "measure": 40.0,
    "inspect": 3.0,
    "train": 1.0,
    "consolidate": 35.0,
    "evaluate": 6.0,
    "publish": 2.0,
}
"""The same for a job that learns in closed form: its images pass the network while it measures."""
BY_IMAGES = frozenset({"validate", "measure", "inspect", "train", "consolidate"})
"""Phases that take longer for a batch of more images."""
MOST_DONE = 0.99
"""Largest share of a job that has not ended."""
LEAST_SHARE = 0.005
"""Smallest share of a phase that cost nothing the last time: it may take long this time."""
SHORTEST_S = 0.001
"""Shortest cost of a phase, in seconds: shares are quotients of costs."""
LEAST_S = 2.0
"""Seconds after which the pace of a job is meaningful."""
PACE_SHARE = 0.1
"""Share of the expected seconds after which it is: a slow first phase says little of the others."""
MOST_RATIO = 10.0
"""Largest ratio of images between two batches for which the earlier job is informative."""
LOOKED_AT = 5
"""Newest jobs among which one of the same method is searched."""


def estimate_job_phase_seconds(
    session: Session, job: Job, phase: str
) -> tuple[dict[str, float], bool]:
    """Estimate the seconds of each phase of a job in order, and return True if they were measured.

    Args:
        phase: phase that the job begins with; earlier ones are left out.
    """
    usual = CLOSED_FORM_S if _learns_in_closed_form(job.recipe) else USUAL_S.get(job.kind, {})
    if phase not in usual:
        # Nothing is known about what comes before or after it, so it counts as the whole job.
        return {phase: 1.0}, False
    phases = list(usual)[list(usual).index(phase) :]
    last = _read_newest_comparable_job(session, job)
    if last is None:
        return {name: usual[name] for name in phases}, False
    costs, recipe, images = last
    by_images = _compute_limited_work_ratio(_count_task_images(session, job.task_id), images)
    ratios = dict.fromkeys(BY_IMAGES, by_images)
    ratios["train"] = _compute_limited_work_ratio(
        by_images * float(job.recipe.get("epochs", 1)), float(recipe.get("epochs", 1))
    )
    expected = {name: costs.get(name, 0.0) * ratios.get(name, 1.0) for name in phases}
    smallest = LEAST_SHARE * (sum(expected.values()) or 1.0)
    return {
        name: round(max(smallest, seconds, SHORTEST_S), 3) for name, seconds in expected.items()
    }, True


def _learns_in_closed_form(recipe: Mapping[str, Any]) -> bool:
    """Return True if a recipe learns in closed form, without optimizer steps."""
    method = recipe.get("method", {})
    return method.get("name") == "analytic" and not method.get("adapt")


def _compute_limited_work_ratio(now: float, earlier_count: float) -> float:
    """Return the ratio of two counts, limited to [1 / MOST_RATIO, MOST_RATIO]; 1 if either is 0."""
    return (
        min(MOST_RATIO, max(1 / MOST_RATIO, now / earlier_count)) if now and earlier_count else 1.0
    )


def _read_newest_comparable_job(
    session: Session, job: Job
) -> tuple[Mapping[str, float], Mapping[str, Any], int] | None:
    """Read phase costs, recipe and image count of the newest comparable job that succeeded.

    Comparable jobs have the same kind, model and method.
    """
    query = select(Job.progress, Job.recipe, Job.task_id).where(
        Job.model_id == job.model_id,
        Job.kind == job.kind,
        Job.state == str(JobState.SUCCEEDED),
        Job.id != job.id,
        # Trials learn a task several times.
        Job.choose.is_(None),
    )
    method = dict(job.recipe).get("method")
    for progress, recipe, task_id in session.execute(
        query.order_by(Job.id.desc()).limit(LOOKED_AT)
    ):
        costs = JobProgress.from_json(progress or {}).costs
        # Phases of another method may take far more or less time.
        if costs and recipe.get("method") == method:
            return costs, recipe, _count_task_images(session, task_id)
    return None


def _count_task_images(session: Session, task_id: str | None) -> int:
    classes = (
        None if task_id is None else session.scalar(select(Task.classes).where(Task.id == task_id))
    )
    return sum((classes or {}).values())


def add_elapsed_time_to_current_phase_cost(
    before: JobProgress, newest: JobProgress, fence: int, now: float
) -> JobProgress:
    """Add the seconds since the last event to the recorded cost of a job's current phase.

    Time without a worker belongs to no phase.
    """
    costs = dict(before.costs or {})
    if before.phase is not None and before.heard_at is not None and before.fence == fence:
        # The database's clock may have been set back since.
        costs[before.phase] = round(
            costs.get(before.phase, 0.0) + max(0.0, now - before.heard_at), 3
        )
    return newest.model_copy(update={"costs": costs, "heard_at": now, "fence": fence})


def add_share_done_and_time_left(before: JobProgress, newest: JobProgress) -> JobProgress:
    """Add the finished share of the whole job and the estimated time left to its progress.

    Args:
        newest: progress with phase, costs and expected costs.
    """
    expected, costs, phase = newest.expected or {}, newest.costs or {}, newest.phase
    if phase not in expected:
        return newest
    names = list(expected)
    past, later = names[: names.index(phase)], names[names.index(phase) + 1 :]
    spent, cost = costs.get(phase, 0.0), expected[phase]
    counted = newest.step is not None and bool(newest.total_steps)
    # A phase without counted steps comes near its end without reaching it, however long it takes.
    of_phase = _compute_phase_share_by_steps(newest) if counted else 1 - math.exp(-spent / cost)
    share = (sum(expected[name] for name in past) + cost * of_phase) / sum(expected.values())
    # Progress never goes back, even if a phase takes longer than expected.
    done = max(before.done or 0.0, min(MOST_DONE, share))
    pace = _compute_job_slowdown(newest, past, phase if counted else None, of_phase)
    left_s = None
    if pace is not None:
        if not counted:
            phase_left = max(0.0, cost * pace - spent)
        elif of_phase and spent >= LEAST_S:
            phase_left = spent * (1 - of_phase) / of_phase
        else:
            phase_left = (
                cost * pace * (1 - of_phase) if newest.eta_s is None else float(newest.eta_s)
            )
        left_s = round(phase_left + pace * sum(expected[name] for name in later), 1)
    return newest.model_copy(update={"done": round(done, 4), "left_s": left_s})


def _compute_phase_share_by_steps(progress: JobProgress) -> float:
    assert progress.step is not None and progress.total_steps
    return min(1.0, max(0.0, progress.step / progress.total_steps))


def _compute_job_slowdown(
    newest: JobProgress, past: list[str], phase: str | None, of_phase: float
) -> float | None:
    """Compute how many times slower than estimated a job runs; None if unknown.

    Args:
        phase: the phase under way, if its steps are counted.
        of_phase: share of that phase that is done.
    """
    expected, costs = newest.expected or {}, newest.costs or {}
    planned, spent = (
        sum(expected[name] for name in past),
        sum(costs.get(name, 0.0) for name in past),
    )
    if phase is not None:
        planned, spent = planned + expected[phase] * of_phase, spent + costs.get(phase, 0.0)
    if planned > PACE_SHARE * sum(expected.values()) and spent >= LEAST_S:
        return spent / planned
    # Usual costs are guesses: they give no time left before this job has shown its pace.
    return 1.0 if newest.is_measured else None
