"""Summaries of models for a list, in a fixed number of queries for a page of any size.

Nothing is counted or averaged here: a model's row holds its numbers of tasks and versions, and each
version has stored its ACC and its forgetting (`core.lineage.accuracy_row`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, literal_column, select
from sqlalchemy.orm import Session, aliased

from core.contract.responses.model import LastJob, ModelSummary
from core.database.measurements import ALL_TASKS, ROW
from core.database.tables import Alias, Job, Model, Version, VersionMeasurement
from core.lineage.lineage import PRODUCTION
from core.requests.timestamps import format_rfc3339

LINE_VERSIONS = 24
"""Number of a model's newest versions; the published ones among them make `acc_line`."""
_FIGURES = and_(
    VersionMeasurement.model_id == Version.model_id,
    VersionMeasurement.version == Version.number,
    VersionMeasurement.name == ROW,
    # a literal, so that the partial index matches
    VersionMeasurement.task == literal_column(str(ALL_TASKS)),
)


class _ProductionVersionFigures(NamedTuple):
    """A model's version in production, with its mean accuracy (ACC) and the other figures of its
    row.

    Rows of versions that were published before 0.1.0 have no `images`.
    """

    number: int
    bytes: int
    acc: float | None
    figures: Mapping[str, Any] | None


def build_model_summaries(session: Session, models: Sequence[Model]) -> dict[str, ModelSummary]:
    """Return by model id a summary of the model for lists."""
    ids = [model.id for model in models]
    answering, acc_lines, jobs = (
        _find_production_versions(session, ids),
        _list_mean_accuracies_of_recent_versions(session, ids),
        _find_newest_job_of_each_model(session, ids),
    )
    return {
        model.id: _build_model_summary(
            model, answering.get(model.id), acc_lines.get(model.id, []), jobs.get(model.id)
        )
        for model in models
    }


def _build_model_summary(
    model: Model,
    answering: _ProductionVersionFigures | None,
    acc_line: list[float],
    job: LastJob | None,
) -> ModelSummary:
    figures = (answering and answering.figures) or {}
    return {
        "production": answering and answering.number,
        # Numbers begin at 0, so the next one is the count; without its base a model has none.
        "versions": 0 if model.base_job is not None else model.next_version,
        "tasks": model.next_task - 1,
        "acc": answering and answering.acc,
        "images": figures.get("images"),
        "forgetting": figures.get("forgetting"),
        "last_job": job,
        "bytes": answering.bytes if answering else 0,
        "acc_line": acc_line,
    }


def _find_production_versions(
    session: Session, ids: Sequence[str]
) -> dict[str, _ProductionVersionFigures]:
    """Return each model's version in production, by model id."""
    query = (
        select(
            *(Alias.model_id, Version.number, Version.bytes),
            *(VersionMeasurement.value, VersionMeasurement.detail),
        )
        .join(Version, and_(Version.model_id == Alias.model_id, Version.number == Alias.version))
        .outerjoin(VersionMeasurement, _FIGURES)
        .where(Alias.model_id.in_(ids), Alias.name == PRODUCTION)
    )
    return {
        model_id: _ProductionVersionFigures(*version)
        for model_id, *version in session.execute(query)
    }


def _list_mean_accuracies_of_recent_versions(
    session: Session, ids: Sequence[str]
) -> dict[str, list[float]]:
    """Return by model id the mean accuracies (ACC) of its newest published versions, oldest first."""
    # The concatenation avoids an index on the status, since nearly all versions are published.
    published: ColumnElement[bool] = Version.status + "" == "published"
    query = (
        select(Version.model_id, VersionMeasurement.value)
        .join(Model, Model.id == Version.model_id)
        .join(VersionMeasurement, _FIGURES)
        .where(Model.id.in_(ids), Version.number >= Model.next_version - LINE_VERSIONS, published)
        .order_by(Version.model_id, Version.number)
    )
    acc_lines: dict[str, list[float]] = {}
    for model_id, acc in session.execute(query):
        if acc is not None:
            acc_lines.setdefault(model_id, []).append(acc)
    return acc_lines


def _find_newest_job_of_each_model(session: Session, ids: Sequence[str]) -> dict[str, LastJob]:
    """Return each model's newest job, by model id.

    `at` is when it ended, else started, else was created.
    """
    job_of_model = aliased(Job)
    # Ids rise with the time of creation, so the highest belongs to the newest job.
    newest = (
        select(func.max(job_of_model.id)).where(job_of_model.model_id == Model.id).scalar_subquery()
    )
    at = func.coalesce(Job.finished_at, Job.started_at, Job.created_at)
    query = (
        select(Model.id, Job.id, Job.state, at).join(Job, Job.id == newest).where(Model.id.in_(ids))
    )
    return {
        model_id: {"id": job_id, "state": state, "at": format_rfc3339(when)}
        for model_id, job_id, state, when in session.execute(query)
    }
