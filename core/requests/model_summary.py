"""What a list of models shows of each beside its row, in a fixed number of queries for a page of any size.

Nothing is counted or averaged here: a model's row knows how many tasks and versions it has, and each version has stored
its ACC and its forgetting (`core.line.row`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, func, literal_column, select
from sqlalchemy.orm import Session, aliased

from core.db.measurements import ALL_TASKS, ROW
from core.db.tables import Alias, Job, Measurement, Model, Version
from core.line.line import PRODUCTION
from core.protocol.answers.model import LastJob, ModelSummary
from core.requests.times import rfc3339

LINE_VERSIONS = 24
"""The newest versions of a model of which the published ones make `acc_line`."""
_FIGURES = and_(
    Measurement.model_id == Version.model_id,
    Measurement.version == Version.number,
    Measurement.name == ROW,
    Measurement.task == literal_column(str(ALL_TASKS)),  # in the words of the index
)


class _Answering(NamedTuple):
    """The version in production: ACC, and the other figures of its row."""

    number: int
    bytes: int
    acc: float | None
    figures: Mapping[str, float | None] | None


def of_models(session: Session, models: Sequence[Model]) -> dict[str, ModelSummary]:
    """Model id → its summary."""
    ids = [model.id for model in models]
    answering, lines, jobs = _production(session, ids), _lines(session, ids), _last_jobs(session, ids)
    return {
        model.id: _summary(model, answering.get(model.id), lines.get(model.id, []), jobs.get(model.id))
        for model in models
    }


def _summary(
    model: Model, answering: _Answering | None, acc_line: list[float], job: LastJob | None
) -> ModelSummary:
    figures = (answering and answering.figures) or {}
    return {
        "production": answering and answering.number,
        "versions": 0 if model.base_job is not None else model.next_version,
        "tasks": model.next_task - 1,
        "acc": answering and answering.acc,
        "forgetting": figures.get("forgetting"),
        "last_job": job,
        "bytes": answering.bytes if answering else 0,
        "acc_line": acc_line,
    }


def _production(session: Session, ids: Sequence[str]) -> dict[str, _Answering]:
    """Model id → the version in production."""
    query = (
        select(
            *(Alias.model_id, Version.number, Version.bytes),
            *(Measurement.value, Measurement.detail),
        )
        .join(Version, and_(Version.model_id == Alias.model_id, Version.number == Alias.version))
        .outerjoin(Measurement, _FIGURES)
        .where(Alias.model_id.in_(ids), Alias.name == PRODUCTION)
    )
    return {model_id: _Answering(*version) for model_id, *version in session.execute(query)}


def _lines(session: Session, ids: Sequence[str]) -> dict[str, list[float]]:
    """Model id → ACC of the published ones among its newest versions, by rising number."""
    published: ColumnElement[bool] = Version.status + "" == "published"  # by no index: nearly all are
    query = (
        select(Version.model_id, Measurement.value)
        .join(Model, Model.id == Version.model_id)
        .join(Measurement, _FIGURES)
        .where(Model.id.in_(ids), Version.number >= Model.next_version - LINE_VERSIONS, published)
        .order_by(Version.model_id, Version.number)
    )
    found: dict[str, list[float]] = {}
    for model_id, acc in session.execute(query):
        if acc is not None:
            found.setdefault(model_id, []).append(acc)
    return found


def _last_jobs(session: Session, ids: Sequence[str]) -> dict[str, LastJob]:
    """Model id → its newest job; `at`: when that ended, else began, else was made."""
    other = aliased(Job)
    newest = select(func.max(other.id)).where(other.model_id == Model.id).scalar_subquery()
    at = func.coalesce(Job.finished_at, Job.started_at, Job.created_at)
    query = select(Model.id, Job.id, Job.state, at).join(Job, Job.id == newest).where(Model.id.in_(ids))
    return {
        model_id: {"id": job_id, "state": state, "at": rfc3339(when)}
        for model_id, job_id, state, when in session.execute(query)
    }
