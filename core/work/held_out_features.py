"""Features of held-out images by a backbone that does not move, kept beside these images for the next update.

They are of one task of one model, go with the task's held-out part in the same transaction, and are nobody else's.
Where they are missing, damaged or of another backbone the job passes the images again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Model, Task
from core.protocol.job_result import JobResult
from core.store import Blobs
from core.work.result import ResultFolder

_FORMAT = 1
"""Another one makes all that is stored unusable: raise it with a change of what a network or its inputs compute."""
BACKBONE = "backbone"


@dataclass(frozen=True)
class StoredFeatures:
    """A blob of features of one task, and the file that it was made of."""

    sha256: str
    bytes: int
    path: Path


def make_key(held_out: str, parts: Iterable[tuple[str, str]]) -> str:
    """Return what features depend on, as a digest.

    Args:
        held_out: digest of the dataset with the decoded images.
        parts: name and digest of each part of the backbone.
    """
    text = json.dumps([_FORMAT, held_out, sorted(parts)])
    return hashlib.sha256(text.encode()).hexdigest()


def store_features(blobs: Blobs, found: ResultFolder[JobResult]) -> dict[int, StoredFeatures]:
    """Store the features of a result, by task."""
    stored: dict[int, StoredFeatures] = {}
    for file in found.document.held_out_features:
        path = found.folder / file.file
        stored[file.task] = StoredFeatures(*blobs.put_file(path, link=True), path)
    return stored


def write_features(
    session: Session, model: Model, parts: Iterable[tuple[str, str]], stored: Mapping[int, StoredFeatures]
) -> int:
    """Name stored features in the rows of tasks whose held-out images are still there.

    Args:
        parts: name and digest of each part of the new version's backbone.

    Returns:
        Bytes that are new.
    """
    there = Task.held_out_deleted_at.is_(None) & Task.data_deleted_at.is_(None)
    query = select(Task).where(Task.model_id == model.id, Task.number.in_(stored), there)
    listed, size = sorted(parts), 0
    for task in session.scalars(query):
        if task.held_out_sha256 is None:
            continue
        features = stored[task.number]
        size += 0 if task.features_sha256 == features.sha256 else features.bytes
        task.features_sha256, task.features_bytes = features.sha256, features.bytes
        task.features_key = make_key(task.held_out_sha256, listed)
    return size
