"""What the predict helper needs to know of a version: its manifest and where its weights lie."""

from dataclasses import dataclass

from sqlalchemy import select

from core import damage
from core.db.session import Database
from core.db.tables import Part, Version
from core.errors import Invalid, StoreCorrupt, WrongState
from core.line.sure import sure_of
from core.protocol.answers.sure import SureOut
from core.protocol.manifest import Manifest
from core.protocol.part_types import inference_part_types
from core.requests.actor import Actor, find_model
from core.requests.versions import find_version
from core.store.blobs import Blobs


@dataclass(frozen=True)
class Predictable:
    """A version that can answer: `id`, `number`, its manifest, and (name, sha256) of its parts; how it keeps
    what its model promises of sure answers."""

    id: str
    number: int
    manifest: Manifest
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
    return Predictable(version_id, number, manifest, used, sure)


def explained(db: Database, found: Predictable, error: StoreCorrupt) -> StoreCorrupt:
    """The error about a stored object in the words of the version that was asked."""
    with db.read() as session:
        return damage.explained(session, session.get_one(Version, found.id).model_id, error)


def _without_classes(number: int) -> WrongState:
    return WrongState(
        f"Version {number} has learned no classes yet: submit a task first, or name a later version.",
        extra={"state": "untaught"},
    )


def _wrong_task(text: str, tasks: list[int]) -> Invalid:
    known = ", ".join(map(str, tasks[:50]))
    return Invalid(f"{text} ({known}).", fields=[{"field": "task", "message": f"one of {known}"}])
