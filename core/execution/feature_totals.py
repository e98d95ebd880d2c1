"""Totals of a model: one blob with the sums and features of all its tasks for the next job.

Each version stores the sums and features of its own task, so that any version can be continued. A
job that continues the newest version reads their totals instead, whatever the number of tasks.
Totals are derived data: if they are missing, or made of other parts, the job reads the parts of all
tasks in order, and leaves totals with the same bits. They contain features of training images, so
they are deleted in the transaction that deletes any of these (`core.retention.feature_totals`).
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.contract.jobs.job_result import LearnJobResult
from core.contract.manifest import PER_TASK
from core.database.tables import Model, VersionPart
from core.execution.result import JobProcessResult
from core.lineage.class_numbers import AncestorClassNumberMaps
from core.storage import Blobs


@dataclass(frozen=True)
class StoredFeatureTotals:
    """Feature sums over all tasks (totals) stored as a blob, with the local file it was made
    from.
    """

    sha256: str
    bytes: int
    path: Path


def is_version_part_in_feature_totals(part: VersionPart) -> bool:
    """Return True if a part's content is included in the stored feature sums over all tasks."""
    return part.type in PER_TASK and part.deleted_at is None


def digest_version_parts_in_feature_totals(
    parts: Iterable[VersionPart], numbers: AncestorClassNumberMaps
) -> str:
    """Compute a digest of the parts that the stored feature sums over all tasks include.

    Args:
        numbers: numbers of classes in the parts of its ancestors.
    """
    # Deleted features change the key, so that totals with them are never used again.
    covered = [part for part in parts if is_version_part_in_feature_totals(part)]
    named = sorted((part.name, part.sha256) for part in covered)
    places = {
        part.name: numbers.by_version[part.version_id]
        for part in covered
        if part.version_id in numbers.by_version
    }
    # Without maps as in earlier releases, whose totals stay in use.
    content = [named, numbers.maps, sorted(places.items())] if places else named
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def store_feature_totals_of_result(
    blobs: Blobs, result: JobProcessResult[LearnJobResult]
) -> StoredFeatureTotals | None:
    """Store a job result's feature sums over all tasks as a blob; None if the method has none."""
    if result.document.totals is None:
        return None
    path = result.folder / result.document.totals
    return StoredFeatureTotals(*blobs.put_file(path, link=True), path)


def record_feature_totals(
    model: Model,
    stored: StoredFeatureTotals,
    parts: Iterable[VersionPart],
    numbers: AncestorClassNumberMaps,
) -> int:
    """Record stored feature sums over all tasks in the model's row, in place of older ones.

    Args:
        parts: parts of the new version and its ancestors.
        numbers: numbers of classes in the ancestors' parts.

    Returns:
        Number of added bytes.
    """
    model.totals_sha256, model.totals_bytes = stored.sha256, stored.bytes
    model.totals_key = digest_version_parts_in_feature_totals(parts, numbers)
    return stored.bytes
