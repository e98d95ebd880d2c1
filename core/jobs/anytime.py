"""Download of the best validated state of a running job, in the format of a version's download.

The worker stores the parts and the manifest of the state. The zip is made from them on the first
request and stored beside them, so that it is deleted together with them.
"""

import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from core.contract.catalogue import RecipeCatalogue
from core.contract.jobs.snapshot import StoredBestState
from core.contract.manifest import Manifest
from core.contract.part_types import list_inference_part_types
from core.database.session import Database
from core.database.states import JobState
from core.database.tables import Job, Model
from core.errors import AnytimeStateUnavailable, StoredObjectDamaged, Unavailable
from core.export.format import VersionPartFileToExport, VersionToExport
from core.export.formats.safetensors_zip import SafetensorsZipFormat
from core.ids import is_id
from core.jobs.jobs import make_missing_job_error
from core.requests.actor import Actor
from core.storage import ObjectStorage
from core.storage.blobs import DamagedBlob, iterate_verified_blob_chunks, require_object_digest

SOON_S = 5
"""Seconds after which to ask again for the first state of a job."""
_MANIFEST = "manifest.json"
PAST = {
    JobState.SUCCEEDED: "succeeded",
    JobState.REJECTED: "been rejected",
    JobState.CANCELLED: "been cancelled",
}
"""Finished states of a job, in words; no best state is retained for these."""
_building = threading.Lock()  # one build at a time per process, as with the downloads of versions


@dataclass(frozen=True)
class BestStateDownload:
    """Finished download of a job's best state: store, key, SHA-256 digest, size in bytes, and name
    to save it under.
    """

    store: ObjectStorage
    key: str
    sha256: str
    size: int
    filename: str

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Read chunks of the best state's download from the store, as `Blobs.read` does.

        A damaged file is deleted, so that the next request builds it again.

        Raises:
            StoredObjectDamaged: the file is damaged.
            Unavailable: the file has just been replaced by a better state.
        """
        try:
            require_object_digest(self.store, self.key, sha256)
        # Before the next clause, since `DamagedBlob` is a `StoredObjectDamaged` as well.
        except DamagedBlob:
            self.store.delete(self.key)
            raise
        except StoredObjectDamaged:
            raise _make_best_state_replaced_error() from None
        return _read_best_state_file_from_store(self.store, self.key, offset, length)


def get_or_build_best_state_download(
    db: Database,
    store: ObjectStorage,
    catalogue: RecipeCatalogue,
    actor: Actor,
    job_id: str,
    spool: Path,
) -> BestStateDownload:
    """Return the download of a job's best validated state, and build it if it is not stored yet.

    Args:
        job_id: id of the job.
        spool: folder for unfinished files.

    Raises:
        NotFound: the caller sees no such job, or its model was deleted.
        AnytimeStateUnavailable: there is no state: it was not asked for, there is none yet, or the job
            is over.
        StoredObjectDamaged: a part is damaged.
        Unavailable: a better state has just replaced this one.
    """
    model, state = _find_best_state_or_raise(db, actor, job_id)
    filename = f"{model}-{job_id}-step-{state.step}.zip"
    file = _find_stored_best_state_zip(store, state.key, filename)
    if file is None:
        with _building:
            # Look again: another thread may have built it while this one waited for the lock.
            file = _find_stored_best_state_zip(
                store, state.key, filename
            ) or _build_and_store_best_state_download(store, catalogue, state, filename, spool)
    return file


def _find_best_state_or_raise(
    db: Database, actor: Actor, job_id: str
) -> tuple[str, StoredBestState]:
    """Find a job's registered best state; return it with the name of the job's model."""
    with db.read() as session:
        job = session.get(Job, job_id) if is_id(job_id, "job") else None
        # The job of another owner is reported as missing, so that ids cannot be probed.
        if job is None or not actor.can_see(job.owner_id):
            raise make_missing_job_error(job_id)
        model = session.get_one(Model, job.model_id)
        if model.deleted_at is not None:
            raise make_missing_job_error(job_id)
        state = JobState(job.state)
        if state in PAST:
            explanation = (
                "nothing of it was kept"
                if job.version is None
                else f"download version {job.version} instead"
            )
            raise _make_best_state_unavailable_error(
                f"The job has {PAST[state]}: {explanation}.", state
            )
        if job.task_id is None:
            raise _make_best_state_unavailable_error(
                f"This job is of the kind {job.kind}: it learns nothing.", state
            )
        if not job.recipe.get("anytime"):
            raise _make_best_state_unavailable_error(
                "The recipe of this job has no anytime states: submit with `anytime` true and "
                "`validation` above 0, or with the preset fast.",
                state,
            )
        if job.anytime is None:
            if state is JobState.FAILED:
                raise _make_best_state_unavailable_error(
                    "The job failed and no state of it is kept: retry it.", state
                )
            raise _make_best_state_unavailable_error(
                "The job has no validated state yet; ask again soon.", state, retry_after_s=SOON_S
            )
        return model.name, job.anytime


def _make_best_state_unavailable_error(
    detail: str, state: JobState, *, retry_after_s: int | None = None
) -> AnytimeStateUnavailable:
    return AnytimeStateUnavailable(detail, extra={"state": str(state)}, retry_after_s=retry_after_s)


def _find_stored_best_state_zip(
    store: ObjectStorage, key: str, filename: str
) -> BestStateDownload | None:
    """Return the stored zip of a job's best state, whose file name is its digest."""
    for info in store.list(key):
        name = PurePosixPath(info.key)
        if name.suffix == ".zip":
            return BestStateDownload(store, info.key, name.stem, info.size, filename)
    return None


def _build_and_store_best_state_download(
    store: ObjectStorage,
    catalogue: RecipeCatalogue,
    state: StoredBestState,
    filename: str,
    spool: Path,
) -> BestStateDownload:
    """Build the zip of a job's best state from its stored parts, and store it beside them."""
    # A random name, since other processes build in the same folder.
    stem = f"anytime-{secrets.token_hex(8)}"
    target, copy = spool / f"{stem}.zip", spool / f"{stem}.json"
    parts: list[VersionPartFileToExport] = []
    try:
        _copy_best_state_file_from_store(store, state, _MANIFEST, copy)
        manifest = Manifest.from_json(json.loads(copy.read_text()))
        for part in manifest.parts:
            # Parts with training data are left out, as in the download of a version.
            if part.type in list_inference_part_types(manifest):
                name = f"{part.name}.safetensors"
                parts.append(
                    VersionPartFileToExport(
                        part.name, spool / f"{stem}-{part.name}", state.files[name][0]
                    )
                )
                _copy_best_state_file_from_store(store, state, name, parts[-1].path)
        SafetensorsZipFormat().write_download(target, VersionToExport(manifest, parts, catalogue))
        with target.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        # Named by its digest, so that later requests know it without reading the file; the size is
        # read now, since the file is moved next.
        key, size = f"{state.key}{sha256}.zip", target.stat().st_size
        store.put_file(key, target, move=True)
    finally:
        for path in (target, copy, *(part.path for part in parts)):
            path.unlink(missing_ok=True)
    return BestStateDownload(store, key, sha256, size, filename)


def _copy_best_state_file_from_store(
    store: ObjectStorage, state: StoredBestState, name: str, target: Path
) -> None:
    """Copy a stored file of a job's best state to `target`.

    Raises:
        StoredObjectDamaged: the file is damaged.
        Unavailable: the file is gone, since a better state replaced it.
    """
    key, (sha256, _) = state.key + name, state.files[name]
    with target.open("wb") as file:
        for chunk in iterate_verified_blob_chunks(
            _read_best_state_file_from_store(store, key), key, sha256
        ):
            file.write(chunk)


def _read_best_state_file_from_store(
    store: ObjectStorage, key: str, offset: int = 0, length: int | None = None
) -> Iterator[bytes]:
    try:
        return store.read(key, offset, length)
    except StoredObjectDamaged:  # the file is gone
        raise _make_best_state_replaced_error() from None


def _make_best_state_replaced_error() -> Unavailable:
    return Unavailable(
        "A better state has just taken the place of this one; ask again.", retry_after_s=1
    )
