"""Models: create, list, change and delete.

A model is born with version 0, its base: random weights are a pure function of architecture, image and
seed and need no bytes; an uploaded base or another model's version is named by its blobs.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.db import references
from core.db.jobs import move
from core.db.session import Database
from core.db.states import TERMINAL, UNFINISHED, Action
from core.db.tables import Alias, AliasMove, Base, Export, Job, Model, Part, Task, Version
from core.errors import Invalid, NameTaken, NotFound
from core.ids import is_name, new_id
from core.ingest.names import label_of
from core.requests import idempotency
from core.requests.actor import Actor, find_model
from core.requests.audit import record
from core.requests.pages import page
from core.requests.recipe import architecture, completed, merge_recipe, resolve
from core.requests.times import rfc3339
from core.requests.unused import delete_unused
from core.store import Blobs, Store

Json = dict[str, Any]
GATE = ("max_forgetting", "min_new_task", "min_acc", "max_predicted_loss_rise")
IMAGE: Json = {"size": 32, "channels": 3}
MIN_SIZE, MAX_SIZE = 8, 1024
_BACKBONE = ("backbone", "base")
"""Part types that another model can start from; heads, buffers and the like stay behind."""


def create(
    db: Database,
    blobs: Blobs,
    catalogue: Json,
    actor: Actor,
    given: Json,
    repeat: idempotency.Request | None = None,
) -> tuple[Json, bool]:
    """Create a model; returns its JSON form, and whether it is a replay of an earlier answer.

    Args:
        given: the fields of the request, already of the right types.
        repeat: the idempotency key and fingerprint of the request.

    Raises:
        Invalid, InvalidRecipe: a field is wrong.
        NameTaken: the owner has a model of this name.
        NotFound: the base does not exist.
        IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
    """
    name, scenario = given["name"], given["scenario"]
    if not is_name(name):
        raise Invalid(
            f"{name!r} cannot be a name: [a-z0-9][a-z0-9._-]{{0,62}}, and not like an id.",
            fields=[{"field": "name", "message": "not a valid name"}],
        )
    image = {**IMAGE, **{k: v for k, v in (given.get("image") or {}).items() if v is not None}}
    resolved_architecture = architecture(catalogue, scenario, given.get("architecture") or "small-cnn", image)
    recipe = given.get("recipe") or {}
    resolved = resolve(catalogue, scenario, recipe)
    gate = _gate({}, given.get("gate") or {})
    classes = _classes(scenario, given.get("classes"))
    try:
        with db.write() as session:
            now = db.now(session)
            if repeat is not None:
                replay = idempotency.replayed(session, actor, repeat, now)
                if replay is not None:
                    return replay.body or {}, True
            _name_free(session, actor, name)
            model = Model(
                id=new_id("mdl"),
                owner_id=actor.owner_id,
                name=name,
                scenario=scenario,
                architecture=resolved_architecture,
                image=image,
                base=given.get("base") or "random",
                classes=classes,
                recipe=recipe,
                gate=gate,
                keep_training_data=bool(given.get("keep_training_data", False)),
                held_out=given.get("held_out") or "keep",
                warnings=resolved.warnings,
                fence=0,
                next_task=1,
                next_place=1,
                next_version=1,
                created_at=now,
                deleted_at=None,
            )
            session.add(model)
            session.flush()
            _first_version(session, blobs, actor, model, int(resolved.recipe.get("seed", 0)), now)
            record(session, actor, "model.create", model.id, {"name": name, "scenario": scenario}, now=now)
            answer = show(catalogue, model, {"production": 0, "latest": 0})
            if repeat is not None:
                location = {"Location": f"/v1/models/{model.id}"}
                idempotency.remember(session, actor, repeat, 201, location, answer, now)
    except IntegrityError as error:  # another request was faster, with the name or with the idempotency key
        if repeat is not None and "idempotency" in str(error.orig):
            raise idempotency.in_flight() from None
        raise _taken(name) from None
    return answer, False


def list_models(db: Database, catalogue: Json, actor: Actor, limit: int, cursor: str | None) -> Json:
    """A page of the models that the caller sees, oldest first."""
    with db.read() as session:
        query = select(Model).where(Model.deleted_at.is_(None), actor.filter(Model.owner_id))
        models: list[Model] = []

        def keep(row: Any) -> Json:
            models.append(row[0])
            return {}

        result = page(session, query, Model.id, limit, cursor, keep)
        named = aliases_of(session, [m.id for m in models])
        result["items"] = [show(catalogue, m, named.get(m.id, {})) for m in models]
        return result


def read(db: Database, catalogue: Json, actor: Actor, model: str) -> Json:
    """One model, by id or name.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        return show(catalogue, row, aliases_of(session, [row.id]).get(row.id, {}))


def change(db: Database, catalogue: Json, actor: Actor, model: str, patch: Json) -> Json:
    """Change recipe or gate for later tasks; both are merge patches (RFC 7396), null resets.

    Raises:
        NotFound: the caller sees no such model.
        Invalid, InvalidRecipe: the result cannot be used; nothing was changed.
    """
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        if "recipe" in patch:
            recipe = {} if patch["recipe"] is None else merge_recipe(row.recipe, patch["recipe"])
            resolved = resolve(catalogue, row.scenario, recipe)
            row.recipe, row.warnings = recipe, resolved.warnings
        if "gate" in patch:
            row.gate = _gate({} if patch["gate"] is None else row.gate, patch["gate"] or {})
        record(session, actor, "model.change", row.id, patch, now=db.now(session))
        session.flush()
        return show(catalogue, row, aliases_of(session, [row.id]).get(row.id, {}))


def delete(db: Database, store: Store, blobs: Blobs, actor: Actor, model: str) -> None:
    """Cancel the model's jobs, hide it, and remove its images and parts.

    A running job ends within its grace; what it still writes is swept.

    Raises:
        NotFound: the caller sees no such model.
    """
    done = None
    while done is None:
        with db.write() as session:
            done = _hidden(db, session, actor, model)
    archives, digests = done
    for key in archives:
        store.delete(key)
    delete_unused(db, blobs, digests)


def _hidden(db: Database, session: Session, actor: Actor, model: str) -> tuple[list[str], list[str]] | None:
    """Hide a model; returns keys of archives and digests that it needs no more, or None: do it again.

    Locks are taken in the order of a publish (job, model, task), or each could wait for the other.
    """
    found = find_model(session, actor, model)
    unfinished = (Job.model_id == found.id, Job.state.in_(sorted(UNFINISHED)))
    held = list(session.scalars(select(Job).where(*unfinished).order_by(Job.id).with_for_update()))
    row = session.get_one(Model, found.id, with_for_update=True, populate_existing=True)
    if row.deleted_at is not None:
        raise NotFound(f"There is no model {model!r}.")
    if set(session.scalars(select(Job.id).where(*unfinished))) - {job.id for job in held}:
        return None  # submitted since: hold it too
    now = db.now(session)
    row.deleted_at = now
    stopped: set[str] = set()
    for job in held:
        if move(session, job, Action.CANCEL, now, {"reason": "model deleted"}) in TERMINAL:
            stopped.add(job.task_id)
    archives, digests = [], set()
    for task in session.scalars(select(Task).where(Task.model_id == row.id)):
        digests |= {d for d in (task.train_sha256, task.held_out_sha256) if d}
        task.train_deleted_at = task.train_deleted_at or now
        task.held_out_deleted_at = task.held_out_deleted_at or now
        if task.archive_key is not None and task.id in stopped:
            archives.append(task.archive_key)
            task.archive_key = None
    versions = select(Version.id).where(Version.model_id == row.id)
    parts = session.scalars(select(Part).where(Part.version_id.in_(versions)))
    exports = session.scalars(select(Export).where(Export.version_id.in_(versions)))
    for made in (*parts, *exports):
        digests.add(made.sha256)
        session.delete(made)
    record(session, actor, "model.delete", row.id, {"name": row.name}, now=now)
    return archives, sorted(digests)


def aliases_of(session: Session, models: Sequence[str]) -> dict[str, dict[str, int]]:
    """Model id → alias → version; `latest` is the newest published version."""
    named: dict[str, dict[str, int]] = {}
    for alias in session.scalars(select(Alias).where(Alias.model_id.in_(models)).order_by(Alias.name)):
        named.setdefault(alias.model_id, {})[alias.name] = alias.version
    newest = (
        select(Version.model_id, func.max(Version.number))
        .where(Version.model_id.in_(models), Version.status == "published")
        .group_by(Version.model_id)
    )
    for model_id, number in session.execute(newest):
        named.setdefault(model_id, {})["latest"] = number
    return named


def show(catalogue: Json, model: Model, named: dict[str, int]) -> Json:
    """A model in the contract's shape; the recipe is shown resolved."""
    return {
        "id": model.id,
        "name": model.name,
        "scenario": model.scenario,
        "architecture": model.architecture,
        "image": model.image,
        "base": model.base,
        "classes": model.classes,
        "recipe": completed(catalogue, model.recipe),
        "gate": {key: model.gate.get(key) for key in GATE},
        "keep_training_data": model.keep_training_data,
        "held_out": model.held_out,
        "aliases": named,
        "created_at": rfc3339(model.created_at),
        "warnings": list(model.warnings),
    }


def _gate(before: Json, patch: Json) -> Json:
    gate = {**{key: None for key in GATE}, **before, **patch}
    if gate["max_predicted_loss_rise"] is not None:
        raise Invalid(
            "max_predicted_loss_rise cannot be checked yet: leave it null.",
            fields=[{"field": "gate.max_predicted_loss_rise", "message": "not available yet"}],
        )
    return gate


def _classes(scenario: str, classes: list[str] | None) -> list[str] | None:
    if classes is None:
        return None
    if scenario != "data":
        raise Invalid(
            f"classes can be fixed in the data scenario only; in the {scenario} scenario they come with tasks.",
            fields=[{"field": "classes", "message": "only in the data scenario"}],
        )
    clean = [label_of(text, "classes") for text in classes]
    if len(set(clean)) != len(clean):
        raise Invalid(
            "classes names a class twice.", fields=[{"field": "classes", "message": "duplicate class"}]
        )
    return sorted(clean)


def _name_free(session: Session, actor: Actor, name: str) -> None:
    query = select(Model.id).where(
        Model.owner_id == actor.owner_id, Model.name == name, Model.deleted_at.is_(None)
    )
    if session.scalar(query) is not None:
        raise _taken(name)


def _taken(name: str) -> NameTaken:
    return NameTaken(
        f"You have a model named {name!r} already.", fields=[{"field": "name", "message": "taken"}]
    )


def _first_version(session: Session, blobs: Blobs, actor: Actor, model: Model, seed: int, now: float) -> None:
    """Version 0: the base, and what `latest` and `production` name at first."""
    parts, origin, normalise = _base_parts(session, blobs, actor, model, seed)
    manifest = {
        "format": 1,
        "model": model.id,
        "version": 0,
        "parent": None,
        "task": None,
        "scenario": model.scenario,
        "architecture": model.architecture,
        "image": model.image,
        "normalise": normalise,
        "classes": model.classes or [],
        "heads": [],
        "seed": seed,
        "parts": [{k: part[k] for k in ("name", "type", "sha256", "bytes")} for part in parts],
        **origin,
    }
    size = sum(part["bytes"] for part in parts)
    version = Version(
        id=new_id("ver"),
        model_id=model.id,
        number=0,
        parent=None,
        task_number=None,
        job_id=None,
        status="published",
        gate={"passed": True, "checks": []},
        manifest=manifest,
        bytes=size,
        bytes_new=0,
        created_at=now,
    )
    session.add(version)
    session.flush()
    for position, part in enumerate(parts):
        session.add(Part(version_id=version.id, position=position, **part))
    for alias in ("latest", "production"):
        session.add(Alias(model_id=model.id, name=alias, version=0, updated_at=now))
        session.add(
            AliasMove(
                model_id=model.id,
                alias=alias,
                version=0,
                previous=None,
                cause="create",
                actor=actor.key_id,
                reason=None,
                at=now,
            )
        )


def _base_parts(
    session: Session, blobs: Blobs, actor: Actor, model: Model, seed: int
) -> tuple[list[Json], Json, Json | None]:
    """Parts of version 0, how the manifest names its origin, and the base's pixel statistics."""
    if model.base == "random":
        return [], {"init": {"kind": "random", "seed": seed}}, None
    references.share(session)
    normalise: Json | None = None
    if isinstance(model.base, str):
        row = session.scalar(select(Base).where(Base.id == model.base, actor.filter(Base.owner_id)))
        if row is None:
            raise _bad_base(f"There is no base {model.base!r}.")
        if row.architecture != {**model.architecture, "image": model.image}:
            raise _bad_base(
                f"The base was uploaded for {row.architecture}, the model has {model.architecture} with images "
                f"of {model.image}. Upload it for these (?architecture=&image_size=&channels=)."
            )
        parts: list[Json] = [{"name": "base", "type": "base", "sha256": row.sha256, "bytes": row.bytes}]
        origin: Json = {"base": {"id": row.id, "sha256": row.sha256}}
    else:
        source = find_model(session, actor, model.base["model"])
        number = model.base["version"]
        found = session.scalar(select(Version).where(Version.model_id == source.id, Version.number == number))
        if found is None:
            raise _bad_base(f"The model {model.base['model']!r} has no version {number}.")
        if source.architecture != model.architecture or source.image != model.image:
            raise _bad_base("The base must have the model's architecture and image.")
        rows = session.scalars(select(Part).where(Part.version_id == found.id).order_by(Part.position))
        parts = [
            {"name": p.name, "type": p.type, "sha256": p.sha256, "bytes": p.bytes}
            for p in rows
            if p.type in _BACKBONE
        ]
        origin = {"base": {"model": source.id, "version": number}}
        if not parts:  # a version 0 of random weights: the same function gives them again
            origin["init"] = found.manifest.get("init")
        normalise = found.manifest.get("normalise")
        model.base = {"model": source.id, "version": number}
    for part in parts:
        if not blobs.has(part["sha256"]):
            raise _bad_base("The base's bytes are gone from the store; upload it again.")
    return parts, origin, normalise


def _bad_base(message: str) -> Invalid:
    return Invalid(message, fields=[{"field": "base", "message": message}])
