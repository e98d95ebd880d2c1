"""Models: create, list and change.

A model is born with version 0, its base (`first_version`), or with a job that brings it (`pretrained`). Its
recipe is stored as it was given, a patch over the defaults, and shown resolved; changing it concerns later
tasks only.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core import imagenet_base
from core.db.session import Database
from core.db.tables import Alias, Export, Model, Version
from core.errors import Invalid, NameTaken
from core.ids import new_id
from core.line import line, words
from core.line.checks import ALL_OFF, NEW_GATE
from core.protocol.answers.attention import AttentionOut
from core.protocol.answers.audit import AuditData
from core.protocol.answers.model import ListedModel, ModelOut, ModelPage, Scenario
from core.protocol.answers.model_change import ModelChange, NewModel
from core.protocol.answers.sure import AnswersSetting
from core.protocol.base import PRETRAINED
from core.protocol.catalogue import Catalogue
from core.protocol.gate import GateLimits, GateOut
from core.protocol.patch import RecipePatch
from core.recipe import start
from core.recipe.resolve import completed, resolve
from core.recipe.stored import stored
from core.requests import attention, first_version, idempotency, model_summary, packaged, pretrained
from core.requests.actor import Actor, find_model
from core.requests.admission import ANY, Admission, work_of
from core.requests.applicability import check_next_task
from core.requests.asked_model import AskedModel, asked_model
from core.requests.audit import record
from core.requests.pages import Page, page
from core.requests.size_warning import size_warning
from core.requests.times import rfc3339
from core.store import Blobs


class Line(TypedDict):
    """What the line does when something goes wrong, and how long that can be mended."""

    on_held: str
    on_rejected: str
    on_failed: str
    training_data_days: float
    allow_lost_classes: bool


LINE: Line = {
    "on_held": "stop",
    "on_rejected": "continue",
    "on_failed": "continue",
    "training_data_days": 7.0,
    "allow_lost_classes": False,
}
"""The defaults."""


def create(
    db: Database,
    blobs: Blobs,
    catalogue: Catalogue,
    actor: Actor,
    given: NewModel,
    repeat: idempotency.Request | None = None,
    admission: Admission = ANY,
    terms: pretrained.Terms = pretrained.ANY,
) -> tuple[ModelOut, bool]:
    """Create a model; returns its JSON form, and whether it is a replay of an earlier answer.

    Args:
        given: the fields of the request, already of the right types.
        repeat: the idempotency key and fingerprint of the request.
        terms: of pretrained weights, which a job brings where they are not stored yet.

    Raises:
        Invalid, InvalidRecipe: a field is wrong.
        JobTooLarge: its network, or a job that learns a batch, is beyond what `admission` takes.
        NameTaken: the owner has a model of this name.
        NotFound: the base does not exist.
        StorageFull, TooManyRequests: the owner has no room for pretrained weights, or for their job.
        IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
    """
    asked = asked_model(catalogue, given, admission, terms.photos)
    weights = None
    if asked.base in (PRETRAINED, imagenet_base.NAME):
        weights = pretrained.wanted(catalogue, asked.architecture, asked.base)
        pretrained.require_room(db, actor, weights, terms)
    packaged.store(blobs, asked.base, asked.images.image)
    try:
        with db.write() as session:
            now = db.now(session)
            if repeat is not None:
                replay = idempotency.replayed(session, actor, repeat, now)
                if replay is not None:
                    return cast(ModelOut, replay.body), True
            _name_free(session, actor, asked.name)
            model = _new_row(asked, given, actor, now)
            session.add(model)
            session.flush()
            data: AuditData = {"name": asked.name, "scenario": asked.scenario}
            record(session, actor, "model.create", model.id, data, now=now, model=model.id)
            recipe = asked.resolved.recipe
            if weights is None:
                seed = int(recipe.get("seed", 0))
                first_version.make(session, blobs, actor, model, seed, now, asked.images)
            else:
                pretrained.begin(session, blobs, actor, model, weights, recipe, terms, now)
            answer = to_json(catalogue, model, {"production": 0, "latest": 0}, [])
            if repeat is not None:
                location = {"Location": f"/v1/models/{model.id}"}
                idempotency.remember(session, actor, repeat, 201, location, answer, now)
    except IntegrityError as error:  # another request was faster, with the name or with the idempotency key
        if repeat is not None and "idempotency" in str(error.orig):
            raise idempotency.in_flight() from None
        raise _taken(asked.name) from None
    return answer, False


def _new_row(asked: AskedModel, given: NewModel, actor: Actor, now: float) -> Model:
    odd_size = size_warning(given.get("image") or {}, asked.images, asked.base)
    return Model(
        id=new_id("mdl"),
        owner_id=actor.owner_id,
        name=asked.name,
        scenario=asked.scenario,
        architecture=asked.architecture,
        image=asked.images.image,
        base=asked.base,
        classes=asked.classes,
        recipe=asked.recipe,
        gate=_gate(NEW_GATE, given.get("gate") or {}, given.get("answers")),
        answers=given.get("answers"),
        keep_training_data=bool(given.get("keep_training_data", False)),
        held_out=given.get("held_out") or "keep",
        **_line(given),
        warnings=[*asked.notes, *odd_size, *_kept_data(given), *asked.resolved.warnings],
        description=given.get("description") or None,
        tags=given.get("tags") or None,
        fence=0,
        next_task=1,
        next_place=1,
        next_version=1,
        created_at=now,
        deleted_at=None,
    )


def list_models(
    db: Database,
    catalogue: Catalogue,
    actor: Actor,
    limit: int,
    cursor: str | None,
    *,
    q: str | None = None,
    summary: bool = False,
    newest_first: bool = False,
) -> ModelPage:
    """A page of the models that the caller sees, oldest first.

    Args:
        q: only those with this text in their name, in upper or lower case.
        summary: whether each has its summary, see `core.requests.model_summary`.
    """
    with db.read() as session:
        query = select(Model).where(Model.deleted_at.is_(None), actor.filter(Model.owner_id))
        if q is not None:
            query = query.where(Model.name.contains(q.lower(), autoescape=True))  # names are in lower case
        found: Page[Model] = page(session, query, Model.id, limit, cursor, descending=newest_first)
        named = aliases_of(session, [m.id for m in found.rows])
        waits = attention.of_models(session, found.rows)
        told = model_summary.of_models(session, found.rows) if summary else {}
        items: list[ListedModel] = [
            {
                **to_json(catalogue, m, named.get(m.id, {}), waits.get(m.id, [])),
                "summary": told.get(m.id),
            }
            for m in found.rows
        ]
        return {"items": items, "next_cursor": found.next_cursor}


def read(db: Database, catalogue: Catalogue, actor: Actor, model: str) -> ModelOut:
    """One model, by id or name.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        return _shown(session, catalogue, find_model(session, actor, model))


def change(
    db: Database,
    catalogue: Catalogue,
    actor: Actor,
    model: str,
    patch: ModelChange,
    admission: Admission = ANY,
) -> ModelOut:
    """Change recipe or gate for later tasks (merge patches, RFC 7396, null resets), what the line does from now on, or
    what people read of the model.

    The answer also warns of memory that the next task would lose to a change of method.

    Raises:
        NotFound: the caller sees no such model.
        Invalid, InvalidRecipe: the result cannot be used; nothing was changed.
        JobTooLarge: a job by this recipe is beyond what `admission` takes.
    """
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        warnings: list[str] = []
        if "recipe" in patch:
            warnings = _change_recipe(session, catalogue, row, patch["recipe"], admission)
        if "answers" in patch:
            row.answers = patch["answers"]
            _forget_downloads(session, row)
        if "gate" in patch or "answers" in patch:
            limits = patch["gate"] if "gate" in patch else GateLimits()
            row.gate = _gate(NEW_GATE if limits is None else row.gate, limits or {}, row.answers)
        said = _line(patch)
        for name, default in LINE.items():
            if name in patch:
                setattr(row, name, said.get(name, default))
        if "description" in patch:
            row.description = patch["description"] or None
        if "tags" in patch:
            row.tags = patch["tags"] or None
        if "training_data_days" in patch:  # decided now: what was said of the default at creation is over
            row.warnings = [text for text in row.warnings if text not in _kept_data({})]
        now = db.now(session)
        if "allow_lost_classes" in patch:
            line.judge_again(session, row, now)
        record(session, actor, "model.change", row.id, cast(AuditData, patch), now=now, model=row.id)
        session.flush()
        answer = _shown(session, catalogue, row)
        answer["warnings"] += warnings
        return answer


def _change_recipe(
    session: Session, catalogue: Catalogue, row: Model, given: RecipePatch | None, admission: Admission
) -> list[str]:
    """None: the defaults again. Returns warnings of memory that the next task would lose."""
    recipe = {} if given is None else stored(given, row.recipe)
    if given is None or any(given.get(name, "") is None for name in ("method", "optimizer")):
        recipe = start.recipe_of(catalogue, recipe, row.base)
    resolved = resolve(catalogue, row.scenario, recipe, architecture=row.architecture)
    warnings = check_next_task(session, catalogue, row, resolved.recipe)
    work = work_of(session, row, row.next_task)
    admission.check_job(catalogue, row.architecture, row.image, resolved.recipe, work)
    row.recipe, row.warnings = recipe, resolved.warnings
    return warnings


def aliases_of(session: Session, models: Sequence[str]) -> dict[str, dict[str, int]]:
    """Model id → alias → version; `latest` is the newest published version."""
    named: dict[str, dict[str, int]] = {}
    for alias in session.scalars(select(Alias).where(Alias.model_id.in_(models)).order_by(Alias.name)):
        named.setdefault(alias.model_id, {})[alias.name] = alias.version
    # One look into the index per model; a maximum over the group would read every version of each.
    newest = (
        select(Version.number)
        .where(Version.model_id == Model.id, Version.status == "published")
        .order_by(Version.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    for model_id, number in session.execute(select(Model.id, newest).where(Model.id.in_(models))):
        if number is not None:
            named.setdefault(model_id, {})["latest"] = number
    return named


def _shown(session: Session, catalogue: Catalogue, model: Model) -> ModelOut:
    named = aliases_of(session, [model.id]).get(model.id, {})
    return to_json(catalogue, model, named, attention.of_models(session, [model]).get(model.id, []))


def to_json(catalogue: Catalogue, model: Model, named: dict[str, int], waits: list[AttentionOut]) -> ModelOut:
    """A model in the contract's shape; the recipe is shown resolved.

    waits: what waits for a person, see `core.requests.attention`.
    """
    warnings = list(model.warnings)
    if not model.production_follows:
        warnings.append(words.pinned(model, named[line.PRODUCTION]))
    fetching = model.base_job is not None
    return {
        "id": model.id,
        "name": model.name,
        "state": "fetching" if fetching else "ready",
        "job": model.base_job,
        "scenario": cast(Scenario, model.scenario),
        "architecture": model.architecture,
        "image": model.image,
        "base": model.base,
        "classes": model.classes,
        "recipe": completed(catalogue, model.scenario, model.recipe),
        "gate": _gate(model.gate, {}, model.answers),
        "answers": model.answers,
        "keep_training_data": model.keep_training_data,
        "held_out": model.held_out,
        "on_held": model.on_held,
        "on_rejected": model.on_rejected,
        "on_failed": model.on_failed,
        "training_data_days": model.training_data_days,
        "allow_lost_classes": model.allow_lost_classes,
        "aliases": {line.LATEST: None, line.PRODUCTION: None} if fetching else {**named},
        "line_head": None if fetching else model.head,
        "production_follows": model.production_follows,
        "attention": waits,
        "description": model.description,
        "tags": list(model.tags or []),
        "created_at": rfc3339(model.created_at),
        "warnings": warnings,
    }


def _kept_data(given: Mapping[str, object]) -> list[str]:
    """Said at creation, where the request left it open: images of people may not be kept by accident."""
    if given.get("training_data_days") is not None or given.get("keep_training_data"):
        return []
    return [
        f"The training images of a batch are kept for {LINE['training_data_days']:g} days after its version "
        "is published, so that it can be learned again after a rollback; training_data_days says how long "
        "(0: not at all)."
    ]


def _line(given: ModelChange) -> dict[str, object]:
    """What a request says of the line."""
    settings: Mapping[str, object] = given
    return {name: settings[name] for name in LINE if settings.get(name) is not None}


def _gate(before: GateLimits | GateOut, patch: GateLimits, answers: AnswersSetting | None) -> GateOut:
    """All limits, those of the patch first; null where none is set, as in models from before a limit.

    Raises Invalid: one needs what is not promised.
    """
    switched: GateLimits = {}
    if patch.get("checks") is not None:
        switched = NEW_GATE if patch.get("checks") == "on" else ALL_OFF
    limits: GateLimits = {**before, **switched, **patch}
    if limits.get("min_coverage") is not None and answers is None:
        raise Invalid(
            "min_coverage limits how many answers are sure, and this model does not say when one is. Send "
            '"answers": {"precision": 0.98} as well, or set min_coverage to null.',
            fields=[{"field": "gate.min_coverage", "message": "only with answers.precision"}],
        )
    return {
        "max_forgetting": limits.get("max_forgetting"),
        "min_new_task": limits.get("min_new_task"),
        "min_acc": limits.get("min_acc"),
        "max_predicted_loss_rise": limits.get("max_predicted_loss_rise"),
        "max_negative_flips": limits.get("max_negative_flips"),
        "min_coverage": limits.get("min_coverage"),
        "forgotten": limits.get("forgotten"),
        "confused": limits.get("confused"),
        "class_lost": limits.get("class_lost"),
        "drifted": limits.get("drifted"),
        "learned_nothing": limits.get("learned_nothing"),
    }


def _forget_downloads(session: Session, model: Model) -> None:
    """Downloads say from when on an answer is sure: they are made again when they are asked for."""
    of_model = select(Version.id).where(Version.model_id == model.id)
    session.execute(delete(Export).where(Export.version_id.in_(of_model)))


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
