"""Versions for the predict helper: manifest, and paths of the weights."""

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass

from sqlalchemy import select

from core.contract.manifest import Manifest
from core.contract.part_types import list_inference_part_types
from core.contract.responses.versions.sure import SureOut
from core.database.polling import PollingDatabaseReads
from core.database.session import Database
from core.database.tables import Version, VersionPart
from core.errors import Invalid, StoredObjectDamaged, Unavailable, WrongState
from core.lineage.confident_predictions import choose_threshold_for_promised_precision
from core.requests.actor import Actor, find_model
from core.requests.classification_only import require_classification_model
from core.retention import damage
from core.storage.blobs import Blobs
from core.versions.versions import LATEST, find_version

KEPT_VERSIONS = 64
KEPT_MANIFEST_BYTES = 256 << 10
"""Manifests larger than this many bytes are not cached, and are read again for each request."""
MOST_PARTS_AT_ONCE = 16
"""Maximum number of parts whose files are looked at on the event loop."""
# As many digits always fit into the 64 bits of the column.
NUMBER_DIGITS = 18


@dataclass(frozen=True)
class PredictableVersion:
    """A published version as needed for predictions: its number, manifest and parts.

    Attributes:
        id: id of the version.
        number: number of the version.
        manifest: its manifest.
        manifest_json: the manifest as JSON.
        parts: pairs of name and SHA-256 of its parts.
        sure: threshold of confident predictions, if the model promises any.
    """

    id: str
    number: int
    manifest: Manifest
    manifest_json: bytes
    parts: tuple[tuple[str, str], ...]
    sure: SureOut | None = None

    def fetch_part_paths(self, blobs: Blobs) -> dict[str, str]:
        """Fetch the version's parts: return the local, verified file of each by name.

        Raises:
            StoredObjectDamaged, Unavailable: see `Blobs.fetch_verified_file`.
        """
        return {name: str(blobs.fetch_verified_file(sha256)) for name, sha256 in self.parts}

    def find_recently_verified_part_paths(self, blobs: Blobs) -> dict[str, str] | None:
        """Return the local file of each part by name, without reading any.

        Return None if one must be fetched or verified first, or if there are so many parts that
        looking at their files would take long. Raises Unavailable if the disk does not work.
        """
        if len(self.parts) > MOST_PARTS_AT_ONCE:
            return None
        paths: dict[str, str] = {}
        for name, sha256 in self.parts:
            path = blobs.find_recently_verified_file(sha256)
            if path is None:
                return None
            paths[name] = str(path)
        return paths

    def count_classes(self, task: int | None) -> int:
        """Return the number of classes that the version, or its head of a task, tells apart."""
        head = None if task is None else self.manifest.find_head_entry(task)
        return len(head.classes if head is not None else self.manifest.classes or [])


def find_version_to_predict(
    db: Database, actor: Actor, model: str, version: str, task: int | None
) -> PredictableVersion:
    """Find the version for a prediction request, and check that it can answer it.

    Args:
        task: task number; required in the task scenario, refused elsewhere.

    Raises:
        NotFound: there is no such model or version.
        Invalid: `task` is missing, unknown to the version, or given in another scenario; or the
            model does not predict classes.
        WrongState: the version knows no classes yet.
        StoredObjectDamaged: a part is known to be damaged.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        require_classification_model(owner, "Predictions by this service")
        row = find_version(session, owner, version)
        parts = session.scalars(
            select(VersionPart)
            .where(VersionPart.version_id == row.id)
            .order_by(VersionPart.position)
        )
        manifest = row.manifest
        types = list_inference_part_types(manifest)
        inference_parts = tuple((p.name, p.sha256) for p in parts if p.type in types)
        damage.require_undamaged_version_parts(
            session, row, {Blobs.make_blob_key(sha256): name for name, sha256 in inference_parts}
        )
        number, scenario, version_id = row.number, owner.scenario, row.id
        sure = choose_threshold_for_promised_precision(session, owner, number)
    _check_task_of_prediction_request(manifest, scenario, number, task)
    manifest_json = json.dumps(manifest.to_json()).encode()
    return PredictableVersion(version_id, number, manifest, manifest_json, inference_parts, sure)


class VersionCache:
    """Cache of recently used versions' manifests and parts for predictions; these never change.

    Each request still asks the database, in one statement, for the version's id. Where that finds
    no version that is cached, `find_version_to_predict` does the whole look-up, and raises the
    error if there is one.
    """

    def __init__(self, db: Database, reads: PollingDatabaseReads) -> None:
        self._db = db
        self._reads = reads
        self._kept: OrderedDict[str, PredictableVersion] = OrderedDict()
        self._lock = threading.Lock()

    async def find_cached_version(
        self, actor: Actor, model: str, version: str, task: int | None
    ) -> PredictableVersion | None:
        """Return the version for a prediction request if it is cached and needs no further look-up.

        Raises:
            Invalid, WrongState: see `find_version_to_predict`.
            DatabaseCorrupt: the database is damaged.
        """
        try:
            row = await self._reads.find_version_to_predict(
                actor.owner_id, model, None if version == LATEST else _parse_version_number(version)
            )
        # The whole look-up waits longer for a busy database.
        except Unavailable:
            return None
        if row is None:
            return None
        with self._lock:
            cached = self._kept.get(row.id)
            if cached is not None:
                self._kept.move_to_end(cached.id)
        if cached is not None:
            _check_task_of_prediction_request(cached.manifest, row.scenario, cached.number, task)
        return cached

    def look_up_and_cache_version(
        self, actor: Actor, model: str, version: str, task: int | None
    ) -> PredictableVersion:
        """Find the version for a prediction request in the database, and cache it. Safe for
        threads.

        It is not cached if its manifest is large or its model promises confident predictions.

        Raises:
            PerennialError: see `find_version_to_predict`.
        """
        found = find_version_to_predict(self._db, actor, model, version, task)
        # The threshold depends on the model's setting, which may change; a version never does.
        if found.sure is None and len(found.manifest_json) <= KEPT_MANIFEST_BYTES:
            with self._lock:
                self._kept[found.id] = found
                if len(self._kept) > KEPT_VERSIONS:
                    self._kept.popitem(last=False)
        return found


def reword_damaged_object_error_of_version(
    db: Database, version: PredictableVersion, error: StoredObjectDamaged
) -> StoredObjectDamaged:
    """Explain a missing or damaged stored object as an error about the requested version."""
    with db.read() as session:
        return damage.reword_damaged_object_error(
            session, session.get_one(Version, version.id).model_id, error
        )


def _check_task_of_prediction_request(
    manifest: Manifest, scenario: str, number: int, task: int | None
) -> None:
    """Check that a prediction request names a task exactly if the model needs one.

    Raises:
        Invalid, WrongState: see `find_version_to_predict`.
    """
    if scenario == "task":
        tasks = [head.task for head in manifest.heads or []]
        if not tasks:
            raise _build_untaught_version_error(number)
        if task is None:
            raise _build_unanswerable_task_error(
                "Each task has a head of its own here: name the task with ?task=", tasks
            )
        if task not in tasks:
            raise _build_unanswerable_task_error(
                f"Version {number} has not learned task {task}; it knows", tasks
            )
    else:
        if task is not None:
            raise Invalid(
                f"In the {scenario} scenario no task is named: leave ?task= away.",
                fields=[{"field": "task", "message": "only in the task scenario"}],
            )
        if not manifest.classes or number == 0:
            raise _build_untaught_version_error(number)


def _parse_version_number(version: str) -> int | str:
    """Parse the number of a version; anything else is an alias, and returned as it is."""
    is_number = version.isascii() and version.isdecimal() and len(version) <= NUMBER_DIGITS
    # `find_version` reads a number with a leading zero as an alias, too.
    return int(version) if is_number and str(int(version)) == version else version


def _build_untaught_version_error(number: int) -> WrongState:
    return WrongState(
        f"Version {number} has learned no classes yet: submit a task first, or name a later "
        f"version.",
        extra={"state": "untaught"},
    )


def _build_unanswerable_task_error(text: str, tasks: list[int]) -> Invalid:
    task_list = ", ".join(map(str, tasks[:50]))
    return Invalid(
        f"{text} ({task_list}).", fields=[{"field": "task", "message": f"one of {task_list}"}]
    )
