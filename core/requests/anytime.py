"""The download of a job that is still running: its best validated state, as a version is downloaded.

The worker stores the state's parts and manifest; the zip is made of them on first request and kept beside
them, so it goes when they go.
"""

import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from core.db.session import Database
from core.db.states import State
from core.db.tables import Job, Model
from core.errors import AnytimeUnavailable, StoreCorrupt, Unavailable
from core.export.format import PartFile, Version
from core.export.formats.safetensors_zip import SafetensorsZip
from core.ids import is_id
from core.protocol.catalogue import Catalogue
from core.protocol.manifest import Manifest
from core.protocol.part_types import inference_part_types
from core.protocol.snapshot import StoredAnytime
from core.requests.actor import Actor
from core.requests.jobs import missing
from core.store import Store
from core.store.blobs import Damaged, require_digest, verified

SOON_S = 5
"""When to ask again for the first state of a job."""
_MANIFEST = "manifest.json"
PAST = {
    State.SUCCEEDED: "succeeded",
    State.REJECTED: "been rejected",
    State.CANCELLED: "been cancelled",
}
"""States of a job of which no best state is kept, in words."""
_building = threading.Lock()  # one at a time per process, as with the downloads of versions


@dataclass(frozen=True)
class AnytimeFile:
    """A finished download: where it lies, its digest, its size in bytes, and a name to save it under."""

    store: Store
    key: str
    sha256: str
    size: int
    filename: str

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Chunks of the file, as `Blobs.read` gives them; a damaged one goes, so that the next request makes another.

        Raises:
            StoreCorrupt: it is damaged.
            Unavailable: it has just been replaced.
        """
        try:
            require_digest(self.store, self.key, sha256)
        except Damaged:
            self.store.delete(self.key)
            raise
        except StoreCorrupt:
            raise _replaced() from None
        return _read(self.store, self.key, offset, length)


def anytime_file(
    db: Database, store: Store, catalogue: Catalogue, actor: Actor, job_id: str, spool: Path
) -> AnytimeFile:
    """The download of a job's best validated state, made when it is not stored.

    Args:
        spool: folder for unfinished files.

    Raises:
        NotFound: the caller sees no such job, or its model was deleted.
        AnytimeUnavailable: there is none: not asked for, not yet, or the job is over.
        StoreCorrupt: a part is damaged.
        Unavailable: a better state has taken its place a moment ago.
    """
    model, state = _state(db, actor, job_id)
    filename = f"{model}-{job_id}-step-{state.step}.zip"
    found = _stored(store, state.key, filename)
    if found is None:
        with _building:
            found = _stored(store, state.key, filename) or _build(store, catalogue, state, filename, spool)
    return found


def _state(db: Database, actor: Actor, job_id: str) -> tuple[str, StoredAnytime]:
    """The model's name and the registered state."""
    with db.read() as session:
        job = session.get(Job, job_id) if is_id(job_id, "job") else None
        if job is None or not actor.sees(job.owner_id):
            raise missing(job_id)
        model = session.get_one(Model, job.model_id)
        if model.deleted_at is not None:
            raise missing(job_id)
        state = State(job.state)
        if state in PAST:
            what = (
                "nothing of it was kept" if job.version is None else f"download version {job.version} instead"
            )
            raise _none(f"The job has {PAST[state]}: {what}.", state)
        if job.task_id is None:
            raise _none(f"This job is of the kind {job.kind}: it learns nothing.", state)
        if not job.recipe.get("anytime"):
            raise _none(
                "The recipe of this job has no anytime states: submit with `anytime` true and `validation` "
                "above 0, or with the preset fast.",
                state,
            )
        if job.anytime is None:
            if state is State.FAILED:
                raise _none("The job failed and no state of it is kept: retry it.", state)
            raise _none("The job has no validated state yet; ask again soon.", state, retry_after_s=SOON_S)
        return model.name, job.anytime


def _none(detail: str, state: State, *, retry_after_s: int | None = None) -> AnytimeUnavailable:
    return AnytimeUnavailable(detail, extra={"state": str(state)}, retry_after_s=retry_after_s)


def _stored(store: Store, key: str, filename: str) -> AnytimeFile | None:
    """The zip beside the parts; its name is its digest."""
    for info in store.list(key):
        name = PurePosixPath(info.key)
        if name.suffix == ".zip":
            return AnytimeFile(store, info.key, name.stem, info.size, filename)
    return None


def _build(
    store: Store, catalogue: Catalogue, state: StoredAnytime, filename: str, spool: Path
) -> AnytimeFile:
    stem = f"anytime-{secrets.token_hex(8)}"
    target, copy = spool / f"{stem}.zip", spool / f"{stem}.json"
    parts: list[PartFile] = []
    try:
        _fetch(store, state, _MANIFEST, copy)
        manifest = Manifest.from_json(json.loads(copy.read_text()))
        for part in manifest.parts:
            if part.type in inference_part_types(manifest):
                name = f"{part.name}.safetensors"
                parts.append(PartFile(part.name, spool / f"{stem}-{part.name}", state.files[name][0]))
                _fetch(store, state, name, parts[-1].path)
        SafetensorsZip().write(target, Version(manifest, parts, catalogue))
        with target.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        key, size = f"{state.key}{sha256}.zip", target.stat().st_size
        store.put_file(key, target, move=True)
    finally:
        for path in (target, copy, *(part.path for part in parts)):
            path.unlink(missing_ok=True)
    return AnytimeFile(store, key, sha256, size, filename)


def _fetch(store: Store, state: StoredAnytime, name: str, target: Path) -> None:
    """Copy a file of the state. Raises StoreCorrupt when it is damaged."""
    key, (sha256, _) = state.key + name, state.files[name]
    with target.open("wb") as file:
        for chunk in verified(_read(store, key), key, sha256):
            file.write(chunk)


def _read(store: Store, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
    try:
        return store.read(key, offset, length)
    except StoreCorrupt:  # it is not there
        raise _replaced() from None


def _replaced() -> Unavailable:
    return Unavailable("A better state has just taken the place of this one; ask again.", retry_after_s=1)
