"""The best validated state of a running job in the store, for download before the job ends.

It is registered under the fence like a snapshot: `anytime/<job>/<fence>-<number>/` holds the parts
and `manifest.json`, and the job's row names them with their digests. A better state replaces it. It
is deleted when the job has published or ended in another way; the sweep removes what a crash leaves
behind.
"""

import json
from pathlib import Path

from core.contract.jobs.snapshot import StoredBestState
from core.contract.manifest import StoredVersionPart, UnfinishedJobBestState
from core.database.session import Database
from core.database.tables import Job, Model, StoredJobEvent, Task
from core.execution import snapshots
from core.execution.result import read_best_state_folder
from core.jobs.fence import JobClaim, lock_claimed_job
from core.lineage import lineage
from core.lineage.coverage import list_taught_tasks_with_new_task
from core.publishing.manifest import LearningJobRows, build_version_manifest
from core.storage import ObjectStorage

MANIFEST = "manifest.json"


def build_best_state_key_prefix(job_id: str) -> str:
    """Return the store key prefix of a job's best states."""
    return f"anytime/{job_id}/"


def upload_and_register_best_state(
    db: Database, store: ObjectStorage, claim: JobClaim, path: Path
) -> None:
    """Upload the folder of a job's best state, register it, and delete the previous one.

    A state that is not better than the registered one is ignored; an attempt that resumes from an
    older snapshot meets such states again.

    Raises:
        LeaseLost: the job belongs to another claim; nothing was registered or deleted.
        ValueError: the folder is incomplete, which is a fault of the learning code.
    """
    result = read_best_state_folder(path)
    step, validation = result.document.steps, result.document.validation
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        registered, origin = job.anytime, snapshots.digest_snapshot_inputs(job)
        if (
            registered is not None
            # A state of another recipe or parent is replaced, however good it was.
            and registered.origin == origin
            and registered.correct >= validation.correct
        ):
            return
        model, task = session.get_one(Model, job.model_id), session.get_one(Task, job.task_id)
        base, parent = (
            lineage.find_version_by_number(session, model, n) for n in (0, claim.parent)
        )
        assert base is not None and parent is not None, "a job starts from a version of its model"
        tasks = list_taught_tasks_with_new_task(parent.manifest, task.number)
    number = snapshots.find_next_stored_training_state_number(registered, claim)
    key = f"{build_best_state_key_prefix(claim.job_id)}{claim.fence:08d}-{number:06d}/"
    files = snapshots.store_files_under_key_prefix(store, key, [part.path for part in result.parts])
    described = []
    for part in result.parts:
        sha256, size = files[part.path.name]
        described.append(
            StoredVersionPart(name=part.name, type=part.type, sha256=sha256, bytes=size)
        )
    content = build_version_manifest(
        LearningJobRows(model, task, job, base), result.document, described, None, tasks
    )
    state = UnfinishedJobBestState(job=claim.job_id, step=step, validation=validation)
    content = content.model_copy(update={"anytime": state})
    # Last, since it lists the digests of the parts.
    (path / MANIFEST).write_text(json.dumps(content.to_json(), ensure_ascii=False))
    files |= snapshots.store_files_under_key_prefix(store, key, [path / MANIFEST])
    with snapshots.delete_uploads_if_job_taken_over(store, key, files), db.write() as session:
        job = lock_claimed_job(session, claim)
        job.anytime = StoredBestState(
            key=key,
            files=files,
            fence=claim.fence,
            number=number,
            origin=origin,
            step=step,
            correct=validation.correct,
        )
        metric = {
            "name": "anytime",
            "step": step,
            "value": validation.correct / validation.total,
        }
        session.add(StoredJobEvent(job_id=job.id, type="metric", data=metric, at=db.now(session)))
    # After the commit, because until then the row names the older files.
    snapshots.delete_older_training_states_of_job(
        store, build_best_state_key_prefix(claim.job_id), claim.fence, number
    )
