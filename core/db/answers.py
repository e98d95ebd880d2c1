"""What versions answered on held-out images: blobs that cells of the accuracy matrix name, kept as long as
the images. A blob has the answers on many tasks, each encrypted with a key of its task."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.db.tables import Result, Task


def forget(session: Session, model_id: str, task: int | None = None) -> list[str]:
    """Take the answers off all cells of a model, or of one of its tasks, and delete the keys that read them.

    Returns:
        The blobs' digests, for the caller to delete those that no other cell names.
    """
    named = [Result.model_id == model_id, Result.answers.is_not(None)]
    keyed = [Task.model_id == model_id, Task.answers_key.is_not(None)]
    if task is not None:
        named.append(Result.task == task)
        keyed.append(Task.number == task)
    session.execute(update(Task).where(*keyed).values(answers_key=None))
    found = {digest for digest in session.scalars(select(Result.answers).where(*named).distinct()) if digest}
    if found:
        session.execute(update(Result).where(*named).values(answers=None, answers_bytes=None))
    return sorted(found)
