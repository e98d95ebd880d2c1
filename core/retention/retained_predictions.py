"""Stored predictions on held-out images: blobs that cells of the accuracy matrix refer to, retained
as long as the images.

A blob has the predictions on many tasks, each encrypted with its task's key.
"""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from core.database.tables import Task, VersionTaskResult


def clear_prediction_digests_and_keys(
    session: Session, model_id: str, task: int | None = None
) -> list[str]:
    """Remove stored predictions from all cells of a model or task, and delete their encryption
    keys.

    Returns:
        Digests of the blobs; the caller deletes those that no other cell refers to.
    """
    named = [VersionTaskResult.model_id == model_id, VersionTaskResult.answers.is_not(None)]
    keyed = [Task.model_id == model_id, Task.answers_key.is_not(None)]
    if task is not None:
        named.append(VersionTaskResult.task == task)
        keyed.append(Task.number == task)
    # The blob stays, because it holds predictions on other tasks too; without their keys, these are
    # unreadable.
    session.execute(update(Task).where(*keyed).values(answers_key=None))
    digests = {
        digest
        for digest in session.scalars(select(VersionTaskResult.answers).where(*named).distinct())
        if digest
    }
    if digests:
        session.execute(
            update(VersionTaskResult).where(*named).values(answers=None, answers_bytes=None)
        )
    return sorted(digests)
