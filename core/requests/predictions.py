"""What the predict helper needs to know of a version: its manifest and where its weights lie."""

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from typing import Literal

from sqlalchemy import ColumnElement, Select, bindparam, exists, null, select
from sqlalchemy.orm import aliased

from core import damage
from core.db.session import Database
from core.db.tables import Alias, Damage, Model, Part, Version
from core.errors import Invalid, StoreCorrupt, WrongState
from core.ids import is_id
from core.line.sure import sure_of
from core.protocol.answers.sure import SureOut
from core.protocol.manifest import Manifest
from core.protocol.part_types import inference_part_types
from core.requests.actor import Actor, find_model
from core.requests.versions import LATEST, find_version
from core.store.blobs import Blobs

KEPT_VERSIONS = 64
KEPT_MANIFEST_BYTES = 256 << 10
"""A larger manifest is read again for each request."""
NUMBER_DIGITS = 18


@dataclass(frozen=True)
class Predictable:
    """A version that can answer: `id`, `number`, its manifest, also as JSON, and (name, sha256) of its parts; how it
    keeps what its model promises of sure answers."""

    id: str
    number: int
    manifest: Manifest
    manifest_json: bytes
    parts: tuple[tuple[str, str], ...]
    sure: SureOut | None = None

    def paths(self, blobs: Blobs) -> dict[str, str]:
        """Part name to a local, verified file.

        Raises:
            StoreCorrupt, Unavailable: as `Blobs.fetch`.
        """
        return {name: str(blobs.fetch(sha256)) for name, sha256 in self.parts}

    def classes(self, task: int | None) -> int:
        """How many classes it tells apart, or its head of a task does."""
        own = None if task is None else self.manifest.head_of(task)
        return len(own.classes if own is not None else self.manifest.classes or [])


def predictable(db: Database, actor: Actor, model: str, version: str, task: int | None) -> Predictable:
    """The version to predict with, after checking that the question makes sense.

    Args:
        task: task number; needed in the task scenario, refused elsewhere.

    Raises:
        NotFound: no such model or version.
        Invalid: `task` is missing, unknown to the version, or given where no task is named.
        WrongState: the version knows no classes yet.
        StoreCorrupt: a part is known to be damaged.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        row = find_version(session, owner, version)
        parts = session.scalars(select(Part).where(Part.version_id == row.id).order_by(Part.position))
        manifest = row.manifest
        types = inference_part_types(manifest)
        used = tuple((p.name, p.sha256) for p in parts if p.type in types)
        damage.refuse(session, row, {Blobs.key(sha256): name for name, sha256 in used})
        number, scenario, version_id = row.number, owner.scenario, row.id
        sure = sure_of(session, owner, number)
    _check_task(manifest, scenario, number, task)
    manifest_json = json.dumps(manifest.to_json()).encode()
    return Predictable(version_id, number, manifest, manifest_json, used, sure)


class AskedVersions:
    """Versions that were asked lately. Their manifests and parts never change, and are kept in memory.

    Each request still asks the database which version is meant, and whether it is there: in one statement. Whatever
    that does not answer, such as why there is no such version, `predictable` does. Safe for threads.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._kept: OrderedDict[str, Predictable] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, actor: Actor, model: str, version: str, task: int | None) -> Predictable:
        """The version to predict with. Args and raises: as `predictable`."""
        with self._db.read() as session:
            asked = {"own": actor.owner_id, "model": model, "version": _parse_version(version)}
            query = _query(is_id(model, "mdl"), _naming(version))
            row = session.connection().execute(query, asked).first()
        if row is not None:
            with self._lock:
                kept = self._kept.get(row.id)
                if kept is not None:
                    self._kept.move_to_end(kept.id)
            if kept is not None:
                _check_task(kept.manifest, row.scenario, kept.number, task)
                return kept
        return self._keep(predictable(self._db, actor, model, version, task))

    def _keep(self, found: Predictable) -> Predictable:
        if found.sure is None and len(found.manifest_json) <= KEPT_MANIFEST_BYTES:
            with self._lock:
                self._kept[found.id] = found
                if len(self._kept) > KEPT_VERSIONS:
                    self._kept.popitem(last=False)
        return found


def explained(db: Database, found: Predictable, error: StoreCorrupt) -> StoreCorrupt:
    """The error about a stored object in the words of the version that was asked."""
    with db.read() as session:
        return damage.explained(session, session.get_one(Version, found.id).model_id, error)


def _check_task(manifest: Manifest, scenario: str, number: int, task: int | None) -> None:
    """Raises Invalid, WrongState: as `predictable`."""
    if scenario == "task":
        tasks = [head.task for head in manifest.heads or []]
        if not tasks:
            raise _without_classes(number)
        if task is None:
            raise _wrong_task("Each task has a head of its own here: name the task with ?task=", tasks)
        if task not in tasks:
            raise _wrong_task(f"Version {number} has not learned task {task}; it knows", tasks)
    else:
        if task is not None:
            raise Invalid(
                f"In the {scenario} scenario no task is named: leave ?task= away.",
                fields=[{"field": "task", "message": "only in the task scenario"}],
            )
        if not manifest.classes or number == 0:
            raise _without_classes(number)


Naming = Literal["number", "latest", "alias"]


def _parse_version(version: str) -> int | str:
    """Its number, where it is named by one as `find_version` reads it."""
    is_number = version.isascii() and version.isdecimal() and len(version) <= NUMBER_DIGITS
    return int(version) if is_number and str(int(version)) == version else version


def _naming(version: str) -> Naming:
    if isinstance(_parse_version(version), int):
        return "number"
    return "latest" if version == LATEST else "alias"


@cache
def _query(by_id: bool, naming: Naming) -> Select[str, str]:
    """The id of a version of the caller's own, where nothing else is to be looked up: no object is damaged, and the
    model promises nothing of sure answers."""
    number: ColumnElement[bool]
    if naming == "number":
        number = Version.number == bindparam("version")
    elif naming == "latest":
        other = aliased(Version)
        newest = select(other.number).where(other.model_id == Model.id, other.status == "published")
        newest = newest.order_by(other.number.desc()).limit(1).correlate(Model)
        number = Version.number == newest.scalar_subquery()
    else:
        named = select(Alias.version).where(Alias.model_id == Model.id, Alias.name == bindparam("version"))
        number = Version.number == named.correlate(Model).scalar_subquery()
    return (
        select(Version.id, Model.scenario)
        .join(Model, Model.id == Version.model_id)
        .where((Model.id if by_id else Model.name) == bindparam("model"), Model.owner_id == bindparam("own"))
        .where(Model.deleted_at.is_(None), Model.base_job.is_(None), Model.answers.is_(null()), number)
        .where(~exists().select_from(Damage))
    )


def _without_classes(number: int) -> WrongState:
    return WrongState(
        f"Version {number} has learned no classes yet: submit a task first, or name a later version.",
        extra={"state": "untaught"},
    )


def _wrong_task(text: str, tasks: list[int]) -> Invalid:
    known = ", ".join(map(str, tasks[:50]))
    return Invalid(f"{text} ({known}).", fields=[{"field": "task", "message": f"one of {known}"}])
