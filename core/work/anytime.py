"""The best validated state of a running job in the store, so that it can be downloaded before the job ends.

Registered under the fence as a snapshot is: `anytime/<job>/<fence>-<number>/` holds the parts and
`manifest.json`; the job's row names them with their digests. A better state replaces it. When the job has
published, or is over in another way, it goes; what a crash leaves behind is removed by the sweep.
"""

import json
from pathlib import Path

from core.db.session import Database
from core.db.tables import Event, Job, Model, Task
from core.errors import LeaseLost
from core.line import line
from core.line.coverage import with_task
from core.protocol.manifest import AnytimeState, StoredPart
from core.protocol.snapshot import StoredAnytime
from core.store import Store
from core.work import snapshots
from core.work.fence import Claim, hold
from core.work.manifest import manifest
from core.work.result import read_anytime

MANIFEST = "manifest.json"


def prefix_of(job_id: str) -> str:
    """Where a job's best states lie in the store."""
    return f"anytime/{job_id}/"


def register(db: Database, store: Store, claim: Claim, path: Path) -> None:
    """Upload the folder of a best state, make it the job's, and delete the one before.

    A state that is not better than the job's (an attempt that goes on from an older snapshot comes by it
    again) is left out.

    Raises:
        LeaseLost: the claim is not the job's any more; nothing was registered or deleted.
        ValueError: the folder is incomplete (a fault of the learning code).
    """
    found = read_anytime(path)
    step, validation = found.document.steps, found.document.validation
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        known, origin = job.anytime, snapshots.origin(job)
        if known is not None and known.origin == origin and known.correct >= validation.correct:
            return
        model, task = session.get_one(Model, job.model_id), session.get_one(Task, job.task_id)
        base, parent = (line.version_of(session, model, n) for n in (0, claim.parent))
        assert base is not None and parent is not None, "a job starts from a version of its model"
        tasks = with_task(parent.manifest, task.number)
    number = snapshots.next_number(known, claim)
    key = f"{prefix_of(claim.job_id)}{claim.fence:08d}-{number:06d}/"
    files = snapshots.upload(store, key, [part.path for part in found.parts])
    described = []
    for part in found.parts:
        sha256, size = files[part.path.name]
        described.append(StoredPart(name=part.name, type=part.type, sha256=sha256, bytes=size))
    content = manifest(model, task, job, base, found.document, described, None, tasks)
    state = AnytimeState(job=claim.job_id, step=step, validation=validation)
    content = content.model_copy(update={"anytime": state})
    (path / MANIFEST).write_text(json.dumps(content.to_json(), ensure_ascii=False))
    files |= snapshots.upload(store, key, [path / MANIFEST])
    try:
        with db.write() as session:
            job = hold(session, claim)
            job.anytime = StoredAnytime(
                key=key,
                files=files,
                fence=claim.fence,
                number=number,
                origin=origin,
                step=step,
                correct=validation.correct,
            )
            metric = {"name": "anytime", "step": step, "value": validation.correct / validation.total}
            session.add(Event(job_id=job.id, type="metric", data=metric, at=db.now(session)))
    except LeaseLost:
        for name in files:  # ours alone, and never registered
            store.delete(key + name)
        raise
    snapshots.drop_older(store, prefix_of(claim.job_id), claim.fence, number)
