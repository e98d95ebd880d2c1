"""A model's memory of training images (replay buffer, exemplars, features), and its deletion.

Versions are immutable, but a person may demand that stored images are deleted at once. Parts with
images therefore lose their bytes in every version of the model, and their rows record the time.
Weights remain: versions can still be downloaded and predict as before. The next version starts with
an empty memory.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from core.contract.manifest import FEATURES, REST, Manifest
from core.contract.part_types import IMAGE_TYPES, PRIVATE_TYPES
from core.contract.responses.audit import AuditData
from core.contract.responses.versions.memory import MemoryOut, PartMemory, TaskMemory
from core.database.jobs import change_job_state
from core.database.session import Database
from core.database.states import LEASED, JobAction, JobState
from core.database.tables import Job, Version, VersionPart
from core.errors import StoredObjectDamaged
from core.files.safetensors_header import TensorHeader, parse_safetensors_header
from core.lineage.class_numbers import AncestorClassNumberMaps, read_ancestor_class_number_maps
from core.lineage.coverage import list_taught_tasks
from core.requests.actor import Actor, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.timestamps import format_rfc3339
from core.retention.feature_totals import clear_feature_totals_in_model_row
from core.retention.unreferenced_blobs import release_rows_and_delete_files
from core.storage import Blobs, ObjectStorage
from core.trials.rows import lock_unfinished_trial_jobs, reset_trials_of_unfinished_jobs
from core.versions.versions import find_version

PRODUCTION = "production"
TYPES = (*sorted(PRIVATE_TYPES), "own")
"""Types of parts that are shown: images, and other memory of the method.

Only images are deleted.
"""
_STOPPED = frozenset({JobState.RUNNING, JobState.PAUSING})
"""States in which a job holds its parent's memory and may still store it."""


def read_replay_memory(db: Database, blobs: Blobs, actor: Actor, model: str) -> MemoryOut:
    """Read the replay memory of the production version, by type of part.

    Raises:
        NotFound: the caller sees no such model.
        StoredObjectDamaged: a part is missing or damaged.
    """
    try:
        return _read_replay_memory_once(db, blobs, actor, model)
    # perhaps deleted after its row was read; a second look then finds the row marked
    except StoredObjectDamaged:
        return _read_replay_memory_once(db, blobs, actor, model)


def _read_replay_memory_once(db: Database, blobs: Blobs, actor: Actor, model: str) -> MemoryOut:
    with db.read() as session:
        owner = find_model(session, actor, model)
        version = find_version(session, owner, PRODUCTION)
        query = select(VersionPart).where(
            VersionPart.version_id == version.id, VersionPart.type.in_(set(TYPES) - {FEATURES})
        )
        by_type: dict[str, list[VersionPart]] = {}
        for part in session.scalars(query.order_by(VersionPart.position, VersionPart.name)):
            by_type.setdefault(part.type, []).append(part)
        by_type[FEATURES] = _find_feature_parts_of_lineage(session, version)
        class_numbers = read_ancestor_class_number_maps(session, version)
        number, manifest, scenario = version.number, version.manifest, owner.scenario
    memory_parts = [
        _replay_memory_to_json(
            blobs, parts, class_numbers, _make_finder_of_class_label(manifest, scenario, kind)
        )
        for kind, parts in by_type.items()
        if parts
    ]
    return {
        "version": number,
        "bytes": sum(part["bytes"] for part in memory_parts),
        "items": sum(part["items"] or 0 for part in memory_parts if part["type"] in IMAGE_TYPES),
        "parts": memory_parts,
    }


def _find_feature_parts_of_lineage(session: Session, version: Version) -> list[VersionPart]:
    """Return the parts with stored features of a version and of its ancestors.

    Each holds those of its own task.
    """
    # All versions in one query instead of one query for each ancestor.
    query = (
        select(Version.number, Version.parent, VersionPart)
        .outerjoin(
            VersionPart, and_(VersionPart.version_id == Version.id, VersionPart.type == FEATURES)
        )
        .where(Version.model_id == version.model_id, Version.number <= version.number)
        .order_by(VersionPart.position)
    )
    parents: dict[int, int | None] = {}
    parts_by_version: dict[int, list[VersionPart]] = {}
    for number, parent, part in session.execute(query):
        parents[number] = parent
        parts_by_version.setdefault(number, []).extend([] if part is None else [part])
    parts: list[VersionPart] = []
    counted_names: set[str] = set()
    taught_names = {
        name
        for task in list_taught_tasks(version.manifest)
        for name in (f"{FEATURES}.{task}", f"{FEATURES}.{task}.{REST}")
    }
    version_number: int | None = version.number
    while version_number is not None:
        # An edit stores the features of its tasks again; those before it are not read any more.
        new_parts = [
            part
            for part in parts_by_version.get(version_number, [])
            if part.name in taught_names - counted_names
        ]
        counted_names |= {part.name for part in new_parts}
        # In front, since this walk goes back in time and tasks are shown in their order.
        parts[:0] = new_parts
        version_number = parents.get(version_number)
    return parts


def delete_replay_memory(
    db: Database, store: ObjectStorage, blobs: Blobs, actor: Actor, model: str
) -> None:
    """Delete the replay images that the versions of a model store.

    Repeating the call changes nothing, but completes a deletion that an outage of the store
    interrupted. A job that continues from such a version is released and starts again without the
    images. Snapshots of such jobs are deleted, since they hold the same images. Images of a batch
    that is being learned are not affected.

    Raises:
        NotFound: the caller sees no such model.
    """
    release_rows_and_delete_files(
        db, store, blobs, lambda session: _mark_replay_parts_deleted(db, session, actor, model)
    )


def _mark_replay_parts_deleted(
    db: Database, session: Session, actor: Actor, model: str
) -> tuple[list[str], list[str]] | None:
    """Mark the parts with replay images as deleted; return the store keys and digests to delete.

    Locks are taken in the order of a publish (job, model); another order could deadlock.

    Returns:
        Store keys and digests, or None if a job was claimed meanwhile and the caller must try
        again.
    """
    unlocked_model = find_model(session, actor, model)
    holding = or_(Job.state.in_(sorted(LEASED)), Job.snapshot.is_not(None))
    query = (
        select(Job)
        .where(Job.model_id == unlocked_model.id, Job.place.is_not(None), holding)
        .order_by(Job.id)
    )
    locked_jobs = list(
        session.scalars(
            query.with_for_update(key_share=True).execution_options(populate_existing=True)
        )
    )
    lock_unfinished_trial_jobs(session, unlocked_model.id)
    row = find_model(session, actor, unlocked_model.id, lock=True)
    if set(session.scalars(query.with_only_columns(Job.id).order_by(None))) - {
        job.id for job in locked_jobs
    }:
        return None  # claimed since: lock it too
    found_parts = session.execute(
        select(VersionPart, Version.number)
        .join(Version, Version.id == VersionPart.version_id)
        .where(Version.model_id == row.id, VersionPart.type.in_(sorted(PRIVATE_TYPES)))
    ).all()
    # Also of parts that were marked earlier, so that a repeated call completes the deletion.
    digests = sorted(
        clear_feature_totals_in_model_row(row).union(part.sha256 for part, _ in found_parts)
    )
    stored = [(part, number) for part, number in found_parts if part.deleted_at is None]
    if not stored:
        return [], digests
    now = db.now(session)
    # By digest, since versions share parts and a shared blob frees its bytes once.
    freed = {part.sha256: part.bytes for part, _ in stored}
    for part, _ in stored:
        part.deleted_at = now
    versions = {number for _, number in stored}
    # A job also reads the memory of versions before its parent. A retried job has no parent yet,
    # but it may have a snapshot.
    affected = [
        job
        for job in locked_jobs
        if job.parent_version is None or job.parent_version >= min(versions)
    ]
    keys = [key for job in affected for key in _drop_snapshot_and_release_job(session, job, now)]
    digests += sorted(reset_trials_of_unfinished_jobs(session, row.id, now))
    data: AuditData = {"versions": sorted(versions), "bytes": sum(freed.values())}
    record_audit_entry(
        session, actor, AuditedChange("memory.delete", row.id, data, model=row.id), now
    )
    return keys, digests


def _drop_snapshot_and_release_job(session: Session, job: Job, now: float) -> list[str]:
    """Remove a job's snapshot, release the job if a worker runs it, and return the snapshot's store
    keys.
    """
    snapshot, job.snapshot, job.resume_on = job.snapshot, None, None
    if JobState(job.state) in _STOPPED:
        change_job_state(
            session, job, JobAction.RELEASE, now, {"reason": "the memory of the model was deleted"}
        )
    return [] if snapshot is None else snapshot.store_keys


def _make_finder_of_class_label(
    manifest: Manifest, scenario: str, kind: str
) -> Callable[[int, int], str]:
    """Return a function that finds the class label of a (task, number) in a part's `labels`.

    A buffer numbers the rows of the task's head; exemplars and features number the classes of all
    heads in order.
    """
    heads = {head.task: head.classes for head in manifest.heads or []}
    together = [label for head in heads.values() for label in head]
    single = manifest.classes or []

    def find_label_of_number(task: int, number: int) -> str:
        rows = (
            single
            if scenario != "task"
            else together
            if kind in ("exemplars", FEATURES)
            else heads[task]
        )
        return str(rows[number])

    return find_label_of_number


def _replay_memory_to_json(
    blobs: Blobs,
    parts: Sequence[VersionPart],
    class_numbers: AncestorClassNumberMaps,
    label_of: Callable[[int, int], str],
) -> PartMemory:
    """Return the replay memory in parts of one type, as responses show it.

    The first part of a buffer or of exemplars lists its content; the other parts are packs of its
    images. Each part with features is complete in itself, and one that was deleted with its task's
    data does not count.
    """
    stored = [part for part in parts if part.deleted_at is None]
    counted_parts = stored if parts[0].type == FEATURES else parts
    memory: PartMemory = {
        "type": parts[0].type,
        "bytes": sum(part.bytes for part in counted_parts),
        "items": None,
        "per_task": [],
        "per_class": {},
        "deleted_at": format_rfc3339(parts[0].deleted_at)
        if counted_parts is parts or not stored
        else None,
    }
    if memory["deleted_at"] is not None:
        return {**memory, "bytes": 0, "items": 0}
    counts = (
        _count_images_with_stored_features(blobs, counted_parts, class_numbers)
        if counted_parts is stored
        else _count_images_in_replay_part(blobs, parts[0])
    )
    if counts is None:
        return memory
    per_class: Counter[str] = Counter()
    per_task: dict[int, Counter[str]] = {}
    for (task, row), n in sorted(counts.items()):
        label = label_of(task, row)
        per_class[label] += n
        per_task.setdefault(task, Counter())[label] += n
    tasks: list[TaskMemory] = [
        {"task": task, "items": c.total(), "per_class": dict(c)} for task, c in per_task.items()
    ]
    return {**memory, "items": per_class.total(), "per_task": tasks, "per_class": dict(per_class)}


def _count_images_with_stored_features(
    blobs: Blobs, parts: Sequence[VersionPart], class_numbers: AncestorClassNumberMaps
) -> Counter[tuple[int, int]]:
    """Count the images with retained features by (task, row of the head).

    It reads little of the blobs.
    """
    counts: Counter[tuple[int, int]] = Counter()
    for part in parts:
        task = int(part.name.removeprefix(f"{FEATURES}.").removesuffix(f".{REST}"))
        for tensor in parse_safetensors_header(
            part.bytes, read := _make_part_byte_range_reader(blobs, part)
        ):
            if tensor.name.rpartition(".")[2] == "classes":
                rows = _read_int64_tensor(read, tensor)
                present = class_numbers.find_class_number_map(part.version_id)
                rows = rows if present is None else np.array(present, np.int64)[rows]
                counts.update((task, row) for row in rows.tolist())
    return counts


def _count_images_in_replay_part(
    blobs: Blobs, part: VersionPart
) -> Counter[tuple[int, int]] | None:
    """Count the images in a replay part by (task, row of the head); None for a part without images.

    Only a little of the blob is read.
    """
    read = _make_part_byte_range_reader(blobs, part)
    tensors = {tensor.name: tensor for tensor in parse_safetensors_header(part.bytes, read)}
    if not {"labels", "tasks"} <= tensors.keys() or tensors.keys().isdisjoint({"images", "rows"}):
        return None
    tasks, rows = (_read_int64_tensor(read, tensors[name]) for name in ("tasks", "labels"))
    return Counter(zip(tasks.tolist(), rows.tolist(), strict=True))


def _make_part_byte_range_reader(blobs: Blobs, part: VersionPart) -> Callable[[int, int], bytes]:
    """Return a function that reads a range of bytes of a part's blob."""

    def read_range(offset: int, length: int) -> bytes:
        return b"".join(blobs.read(part.sha256, offset, length))

    return read_range


def _read_int64_tensor(
    read: Callable[[int, int], bytes], tensor: TensorHeader
) -> NDArray[np.int64]:
    """Read a column of int64 values from a tensor in a part's blob."""
    return np.frombuffer(read(tensor.begin, tensor.end - tensor.begin), dtype="<i8")
