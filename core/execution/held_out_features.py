"""Features of held-out images by a frozen backbone, stored beside these images for the next update.

They belong to one task of one model, and are deleted together with the task's held-out images in
the same transaction. If they are missing, damaged or made by another backbone, the job computes
them again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.jobs.job_result import LearnJobResult
from core.database.tables import Model, Task
from core.execution.result import JobProcessResult
from core.storage import Blobs

_FORMAT = 1
"""Version of the stored form.

Increase it when a network or its inputs compute something else, to invalidate stored features.
"""
BACKBONE = "backbone"


@dataclass(frozen=True)
class StoredHeldOutFeatures:
    """Features of a task's held-out images stored as a blob, with the local file it was made
    from.
    """

    sha256: str
    bytes: int
    path: Path


def digest_held_out_feature_inputs(held_out: str, parts: Iterable[tuple[str, str]]) -> str:
    """Compute a digest of everything that stored features of held-out images depend on.

    Args:
        held_out: digest of the dataset with the decoded images.
        parts: name and digest of each part of the backbone.
    """
    # Sorted, since the order of parts changes nothing in what they compute.
    text = json.dumps([_FORMAT, held_out, sorted(parts)])
    return hashlib.sha256(text.encode()).hexdigest()


def store_held_out_features_of_result(
    blobs: Blobs, result: JobProcessResult[LearnJobResult]
) -> dict[int, StoredHeldOutFeatures]:
    """Store the held-out features that a job result contains, by task."""
    stored: dict[int, StoredHeldOutFeatures] = {}
    for file in result.document.held_out_features:
        path = result.folder / file.file
        stored[file.task] = StoredHeldOutFeatures(*blobs.put_file(path, link=True), path)
    return stored


def record_held_out_feature_blobs(
    session: Session,
    model: Model,
    parts: Iterable[tuple[str, str]],
    stored: Mapping[int, StoredHeldOutFeatures],
) -> int:
    """Record stored held-out features in the rows of tasks whose held-out images still exist.

    Args:
        parts: name and digest of each part of the new version's backbone.

    Returns:
        Number of added bytes.
    """
    has_images = Task.held_out_deleted_at.is_(None) & Task.data_deleted_at.is_(None)
    query = select(Task).where(Task.model_id == model.id, Task.number.in_(stored), has_images)
    listed, size = sorted(parts), 0
    for task in session.scalars(query):
        if task.held_out_sha256 is None:
            continue
        features = stored[task.number]
        # Equal bytes are one blob, which counts once.
        size += 0 if task.features_sha256 == features.sha256 else features.bytes
        task.features_sha256, task.features_bytes = features.sha256, features.bytes
        task.features_key = digest_held_out_feature_inputs(task.held_out_sha256, listed)
    return size
