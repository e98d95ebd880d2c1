"""What a batch that is submitted now will meet: tasks that its version will lack, a line that waits, a pinned
production."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Alias, Model, Task
from core.line import line, words
from core.line.coverage import lacked, taught
from core.line.standing import open_tasks


@dataclass(frozen=True)
class Outlook:
    """missing: a sentence for each task that the version will lack; others: why the batch waits, where
    production is."""

    missing: list[str]
    others: list[str]


def outlook(session: Session, model: Model) -> Outlook:
    """For the next task of a model."""
    waits = model.base_job is not None
    tasks = [] if waits else taught(line.head_of(session, model).manifest)
    missing = [words.missing(model, task, standing) for task, standing in lacked(session, model, tasks)]
    others = [words.waits_for_base()] if waits else []
    stop = stopping(session, model)
    if stop is not None:
        again = stop.number in open_tasks(session, model.id)
        others.append(words.waits(stop, line.held_version(session, stop), again))
    if not model.production_follows:
        production = session.get_one(Alias, (model.id, line.PRODUCTION)).version
        others.append(words.pinned(model, production))
    return Outlook(missing, others)


def stopping(session: Session, model: Model) -> Task | None:
    """The first task that the line waits for."""
    query = select(Task).where(Task.model_id == model.id, Task.stops).order_by(Task.number)
    return session.scalars(query.limit(1)).one_or_none()
