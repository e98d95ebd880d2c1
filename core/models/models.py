"""Models: create, list, read and change them.

A model begins with version 0, its base (`first_version`), or with a job that fetches it
(`pretrained`). Its recipe is stored as given, as a patch over the defaults, and shown resolved. A
change of the recipe affects only later tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.admission.admission import ANY, AdmissionLimits, count_tasks_and_images_of_job
from core.admission.applicability import check_next_task_recipe_and_list_warnings
from core.contract.catalogue import RecipeCatalogue
from core.contract.gate import GateLimits
from core.contract.patch import RecipePatch
from core.contract.problem import CLASSIFICATION
from core.contract.responses.attention import AttentionOut
from core.contract.responses.audit import AuditData
from core.contract.responses.model import ListedModel, ModelOut, ModelPage, Scenario
from core.contract.responses.model_change import ModelChange, NewModel
from core.database.session import Database
from core.database.tables import Alias, ExportedDownload, Model, Version
from core.lineage import lineage, wording
from core.lineage.checks import NEW_GATE
from core.models import adoption, attention, model_summary
from core.models.new_model import (
    LINE,
    NO_LIMITS,
    NewModelAdmissionLimits,
    add_model,
    apply_patch_to_gate_limits,
    build_default_image_retention_notice,
    extract_lineage_settings_of_request,
    find_initial_weights_and_store_base,
    make_model_name_taken_error,
    require_free_model_name,
)
from core.models.requested_model import check_and_complete_model_request
from core.recipe import model_defaults
from core.recipe.resolve import complete_stored_recipe, resolve_recipe
from core.recipe.stored_patch import build_stored_recipe_patch
from core.requests import idempotency
from core.requests.actor import Actor, UseCaseTransaction, find_model
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page
from core.requests.resources import UseCaseResources
from core.requests.timestamps import format_rfc3339


@dataclass(frozen=True)
class ModelListQuery:
    """Query for a list of models: filter, order and page.

    Attributes:
        q: only models with this text in their name, in upper or lower case.
        summary: add a summary to each, see `core.models.model_summary`.
        newest_first: newest models first; otherwise the oldest.
    """

    q: str | None = None
    summary: bool = False
    newest_first: bool = False


PLAIN_LIST = ModelListQuery()


def create_model(
    resources: UseCaseResources,
    actor: Actor,
    request_fields: NewModel,
    repeat: idempotency.IdempotentRequestIdentity | None = None,
    limits: NewModelAdmissionLimits = NO_LIMITS,
) -> tuple[ModelOut, bool]:
    """Create a model for its caller; return its JSON form, and True if an earlier response is
    repeated.

    Args:
        request_fields: fields of the request, already of the right types.
        repeat: idempotency key and fingerprint of the request.

    Raises:
        Invalid, InvalidRecipe: a field is wrong.
        JobTooLarge: the network, or a job that learns a batch, exceeds the limits.
        NameTaken: the owner has a model of this name.
        NotFound: the base does not exist.
        StorageQuotaReached, TooManyRequests: the owner has no room for pretrained weights, or for their
        job.
        IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
    """
    adopted = adoption.find_classifier_named_as_base(
        resources.db, actor, request_fields.get("base")
    )
    requested = check_and_complete_model_request(
        resources.catalogue, request_fields, limits.admission, limits.terms.photos, adopted
    )
    # Before the transaction, since this may write a packaged base into the store.
    begins = find_initial_weights_and_store_base(resources, actor, requested, limits.terms)
    try:
        with (
            adoption.store_parts_and_delete_unused_on_exit(resources, adopted) as stored,
            resources.db.write() as session,
        ):
            now = resources.db.now(session)
            # First: a repeated request must not find its own model's name taken.
            if repeat is not None:
                replay = idempotency.find_earlier_response(session, actor, repeat)
                if replay is not None:
                    return cast(ModelOut, replay.body), True
            # For a clear refusal; of two requests at once, the unique index refuses one later.
            require_free_model_name(session, actor.owner_id, requested.name)
            data: AuditData = {"name": requested.name, "scenario": requested.scenario}
            transaction = UseCaseTransaction(session, actor, now)
            model = add_model(
                transaction,
                resources.blobs,
                replace(requested, adopted=stored),
                begins,
                ("model.create", data),
            )
            first = {"production": model.head, "latest": model.head}
            response = model_to_json(resources.catalogue, model, first, [])
            if repeat is not None:
                location = {"Location": f"/v1/models/{model.id}"}
                stored_response = idempotency.IdempotentResponse(201, location, response)
                idempotency.store_idempotent_response(session, actor, repeat, stored_response, now)
    except IntegrityError:  # a concurrent request was first with the name
        raise make_model_name_taken_error(requested.name) from None
    return response, False


def list_models(
    db: Database,
    catalogue: RecipeCatalogue,
    actor: Actor,
    limit: int,
    cursor: str | None,
    listing: ModelListQuery = PLAIN_LIST,
) -> ModelPage:
    """Return a page of the models that the caller sees."""
    with db.read() as session:
        query = select(Model).where(
            Model.deleted_at.is_(None), actor.build_visible_condition(Model.owner_id)
        )
        if listing.q is not None:
            # names are stored in lower case
            query = query.where(Model.name.contains(listing.q.lower(), autoescape=True))
        rows: ListPage[Model] = read_query_page(
            session, query, Model.id, limit, cursor, descending=listing.newest_first
        )
        named = read_alias_targets(session, [m.id for m in rows.rows])
        waits = attention.list_attention_items(session, rows.rows)
        summaries = (
            model_summary.build_model_summaries(session, rows.rows) if listing.summary else {}
        )
        items: list[ListedModel] = [
            {
                **model_to_json(catalogue, m, named.get(m.id, {}), waits.get(m.id, [])),
                "summary": summaries.get(m.id),
            }
            for m in rows.rows
        ]
        return {"items": items, "next_cursor": rows.next_cursor}


def read_model(db: Database, catalogue: RecipeCatalogue, actor: Actor, model: str) -> ModelOut:
    """Return one model that the caller sees, by id or name.

    Raises:
        NotFound: the caller sees no such model.
    """
    with db.read() as session:
        return _build_model_response(session, catalogue, find_model(session, actor, model))


def change_model(
    db: Database,
    catalogue: RecipeCatalogue,
    actor: Actor,
    model: str,
    patch: ModelChange,
    admission: AdmissionLimits = ANY,
) -> ModelOut:
    """Change a model's recipe, gate or lineage settings for later tasks, or its description and
    tags. Held versions that pass their gate now are published.

    Recipe and gate are merge patches (RFC 7396); null resets them. The response also warns of
    memory that the next task would lose to a change of method.

    Raises:
        NotFound: the caller sees no such model.
        Invalid, InvalidRecipe: the result cannot be used; nothing was changed.
        JobTooLarge: a job with this recipe exceeds the limits of `admission`.
    """
    with db.write() as session:
        row = find_model(session, actor, model, lock=True)
        warnings: list[str] = []
        if "recipe" in patch:
            warnings = _apply_recipe_patch_to_model(
                session, catalogue, row, patch["recipe"], admission
            )
        if "answers" in patch:
            row.answers = patch["answers"]
            _unregister_model_downloads(session, row)
        # A limit on coverage needs a promised precision, so the two are checked together.
        if "gate" in patch or "answers" in patch:
            limits = patch["gate"] if "gate" in patch else GateLimits()
            row.gate = apply_patch_to_gate_limits(
                NEW_GATE if limits is None else row.gate, limits or {}, row.answers
            )
        line_settings = extract_lineage_settings_of_request(patch)
        for name, default in LINE.items():
            if name in patch:
                setattr(row, name, line_settings.get(name, default))
        if "description" in patch:
            row.description = patch["description"] or None
        if "tags" in patch:
            row.tags = patch["tags"] or None
        # The choice is explicit now, so the notice given at creation about the default no longer
        # applies.
        if "training_data_days" in patch:
            row.warnings = [
                text
                for text in row.warnings
                if text not in build_default_image_retention_notice({})
            ]
        now = db.now(session)
        # Versions that were held only by this check may pass now.
        if "allow_lost_classes" in patch:
            lineage.rejudge_and_publish_held_versions(session, row, now)
        record_audit_entry(
            session,
            actor,
            AuditedChange("model.change", row.id, cast(AuditData, patch), model=row.id),
            now,
        )
        session.flush()
        response = _build_model_response(session, catalogue, row)
        response["warnings"] += warnings
        return response


def _apply_recipe_patch_to_model(
    session: Session,
    catalogue: RecipeCatalogue,
    row: Model,
    patch: RecipePatch | None,
    admission: AdmissionLimits,
) -> list[str]:
    """Apply a patch to a model's recipe, or reset the recipe to the defaults (None).

    Returns:
        Warnings about memory that the next task would lose.
    """
    recipe = {} if patch is None else build_stored_recipe_patch(patch, row.recipe)
    # A null in these restores what a model of this base begins with, not the global default.
    if patch is None or any(
        patch.get(name, "") is None for name in ("method", "optimizer", "preset")
    ):
        recipe = model_defaults.complete_recipe_for_base(catalogue, recipe, row.base)
    if model_defaults.BALANCED.keys() <= row.recipe.keys():
        recipe = {
            **model_defaults.BALANCED,
            **recipe,
        }  # a null resets to what the model was created with
    resolved = resolve_recipe(
        catalogue, row.scenario, recipe, architecture=row.architecture, problem=row.problem
    )
    warnings = check_next_task_recipe_and_list_warnings(
        session,
        catalogue,
        row,
        lineage.find_version_next_task_starts_from(session, row),
        resolved.recipe,
    )
    work = count_tasks_and_images_of_job(session, row, row.next_task)
    admission.check_job_memory(catalogue, row.architecture, row.image, resolved.recipe, work)
    row.recipe, row.warnings = recipe, resolved.warnings
    return warnings


def read_alias_targets(session: Session, models: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the version that each alias of the models points to, by model id and alias.

    `latest` is the newest published version.
    """
    named: dict[str, dict[str, int]] = {}
    for alias in session.scalars(
        select(Alias).where(Alias.model_id.in_(models)).order_by(Alias.name)
    ):
        named.setdefault(alias.model_id, {})[alias.name] = alias.version
    # One index look-up per model; a maximum over a group would read every version of each model.
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


def _build_model_response(session: Session, catalogue: RecipeCatalogue, model: Model) -> ModelOut:
    """Return a model in the JSON form of the API, with facts read for it."""
    named = read_alias_targets(session, [model.id]).get(model.id, {})
    return model_to_json(
        catalogue, model, named, attention.list_attention_items(session, [model]).get(model.id, [])
    )


def model_to_json(
    catalogue: RecipeCatalogue, model: Model, named: dict[str, int], waits: list[AttentionOut]
) -> ModelOut:
    """Convert a model to the JSON form of the API, with its complete recipe.

    Args:
        named: versions by alias.
        waits: entries that wait for a person, see `core.models.attention`.
    """
    warnings = list(model.warnings)
    if not model.production_follows:
        warnings.append(wording.explain_pinned_production(model, named[lineage.PRODUCTION]))
    fetching = model.base_job is not None
    return {
        "id": model.id,
        "name": model.name,
        "state": "fetching" if fetching else "ready",
        "job": model.base_job,
        "scenario": cast(Scenario, model.scenario),
        "problem": model.problem or CLASSIFICATION,
        "architecture": model.architecture,
        "image": model.image,
        "base": model.base,
        "classes": model.classes,
        "recipe": complete_stored_recipe(catalogue, model.scenario, model.recipe),
        "gate": apply_patch_to_gate_limits(model.gate, {}, model.answers),
        "answers": model.answers,
        "keep_training_data": model.keep_training_data,
        "held_out": model.held_out,
        "selection": model.selection,
        "on_held": model.on_held,
        "on_rejected": model.on_rejected,
        "on_failed": model.on_failed,
        "training_data_days": model.training_data_days,
        "allow_lost_classes": model.allow_lost_classes,
        "aliases": {lineage.LATEST: None, lineage.PRODUCTION: None} if fetching else {**named},
        "line_head": None if fetching else model.head,
        "production_follows": model.production_follows,
        "attention": waits,
        "description": model.description,
        "tags": list(model.tags or []),
        "rebased_from": model.rebased_from,
        "created_at": format_rfc3339(model.created_at),
        "warnings": warnings,
    }


def _unregister_model_downloads(session: Session, model: Model) -> None:
    """Forget the exported downloads of a model's versions, so that they are built again on request.

    A download states the threshold of confident predictions, which has changed.
    """
    of_model = select(Version.id).where(Version.model_id == model.id)
    session.execute(delete(ExportedDownload).where(ExportedDownload.version_id.in_(of_model)))
