"""What versions answered on held-out images: blobs that cells of the accuracy matrix name, kept as long as
the images."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.db.tables import Result


def forget(session: Session, model_id: str, task: int | None = None) -> list[str]:
    """Take the answers off all cells of a model, or of one of its tasks; their digests, for the caller to delete."""
    named = [Result.model_id == model_id, Result.answers.is_not(None)]
    if task is not None:
        named.append(Result.task == task)
    found = {digest for digest in session.scalars(select(Result.answers).where(*named)) if digest}
    if found:
        session.execute(update(Result).where(*named).values(answers=None, answers_bytes=None))
    return sorted(found)
