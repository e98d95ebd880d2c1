"""Begin a rebase: create a model on another base beside the old one, and learn the retained images.

The new model differs from the old one only in its base. Tasks whose images are stored in the form
that the new base reads are learned from the same blobs; archives of all other tasks must be sent
again.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.admission.admission import AdmissionLimits, count_tasks_and_images_of_job
from core.bases.base_advice import get_base_architecture
from core.contract.base import ADOPTED, PRETRAINED, ModelBase
from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.architecture import ImageOut
from core.contract.responses.audit import AuditData
from core.contract.responses.model_change import NewModel
from core.contract.responses.recipe import RecipeOut
from core.contract.responses.versions.rebase import RebaseOut
from core.database import job_log
from core.database import jobs as job_rows
from core.database.tables import Model, Task, UploadedBase
from core.errors import Invalid, InvalidRecipe, JobTooLarge, WrongState
from core.ids import new_id
from core.jobs import jobs
from core.lineage.coverage import list_taught_tasks
from core.models.new_model import (
    NO_LIMITS,
    InitialWeightsAndDownloadLimits,
    NewModelAdmissionLimits,
    add_model,
    apply_patch_to_gate_limits,
    find_initial_weights_and_store_base,
    is_model_name_free,
    make_model_name_taken_error,
    require_free_model_name,
)
from core.models.requested_model import CheckedModelRequest, check_and_complete_model_request
from core.packaged import imagenet_base, packaged_base
from core.rebase.rebase_comparison import RebaseComparison, rebase_comparison_to_json
from core.rebase.rebase_plan import (
    compute_rebase_progress,
    find_new_model_of_open_rebase,
    find_production_version,
)
from core.recipe import model_defaults
from core.recipe.resolve import complete_stored_recipe
from core.requests import idempotency
from core.requests.actor import Actor, UseCaseTransaction, find_model
from core.requests.classification_only import require_classification_model
from core.requests.resources import UseCaseResources
from core.retention import references
from core.storage import Blobs
from core.usage import quota

MAX_NAME = 63


@dataclass(frozen=True)
class RebaseRequest:
    """A request to rebase a model: the new base, and the new model's name (None: the old with
    `-rebased`).
    """

    base: ModelBase
    name: str | None = None


def begin_rebase(
    resources: UseCaseResources,
    actor: Actor,
    model: str,
    rebase_request: RebaseRequest,
    repeat: idempotency.IdempotentRequestIdentity | None = None,
    limits: NewModelAdmissionLimits = NO_LIMITS,
) -> tuple[RebaseOut, list[str], bool]:
    """Begin a rebase: create a model on another base, and queue its learning of all retained tasks.

    Returns:
        The rebase, ids of jobs that workers must be notified of, and True if this replays an
        earlier response.

    Raises:
        NotFound: the caller sees no such model, or no model that the base names.
        Invalid: the base is unknown or is the one that the model has, or the name is not allowed.
        WrongState: nothing is learned yet, or a rebase of the model is open.
        NameTaken: the owner has a model of this name.
        JobTooLarge, StorageQuotaReached, TooManyRequests: there is no room for the new model, or for its
        jobs.
        IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
    """
    db = resources.db
    with db.read() as session:
        old = find_model(session, actor, model)
        require_classification_model(old, "Rebases")
        fields = _build_rebased_model_request(session, actor, old, rebase_request)
        size = _sum_task_file_bytes(old, _list_retained_tasks(session, old))
    checked = _check_new_model_with_recipe_fallback(
        resources.catalogue, fields, old, limits.admission
    )
    requested = _keep_image_decoding_of_old_model(checked, old)
    # With other images, the new model takes over no data, and batches are sent again.
    if size and requested.images.image == old.image:
        quota.require_storage_room(db, old.owner_id, limits.terms.max_owner_bytes, size)
    # The weights count among the bytes of the models' owner, also if an administrator asks.
    owner = replace(actor, owner_id=old.owner_id)
    begins = find_initial_weights_and_store_base(resources, owner, requested, limits.terms)
    try:
        with db.write() as session:
            # Blobs of the old model's tasks must not be deleted before the new rows refer to them.
            references.lock_blob_references_against_deletion(session)
            now = db.now(session)
            replay = idempotency.find_earlier_response(session, actor, repeat)
            if replay is not None:
                return cast(RebaseOut, replay.body), [], True
            order = _RebaseTransactionContext(
                UseCaseTransaction(session, actor, now), resources, limits
            )
            locked_old = find_model(session, actor, old.id, lock=True)
            response, job_ids = _add_model_and_jobs(
                order, locked_old, requested, begins, rebase_request
            )
            location = {"Location": f"/v1/models/{response['new']['id']}/rebase"}
            stored_response = idempotency.IdempotentResponse(201, location, response)
            idempotency.store_idempotent_response(session, actor, repeat, stored_response, now)
    except IntegrityError:  # a concurrent request was first with the name
        raise make_model_name_taken_error(requested.name) from None
    return response, job_ids, False


def find_free_model_name(session: Session, owner_id: str, stem: str, ending: str) -> str:
    """Find an unused model name `<stem>-<ending>`, with a number if that is taken."""
    number = 1
    while True:
        tail = f"-{ending}" if number == 1 else f"-{ending}-{number}"
        name = stem[: MAX_NAME - len(tail)] + tail
        if is_model_name_free(session, owner_id, name):
            return name
        number += 1


@dataclass(frozen=True)
class _RebaseTransactionContext:
    """Database transaction, resources and limits that creating a rebased model needs."""

    transaction: UseCaseTransaction
    resources: UseCaseResources
    limits: NewModelAdmissionLimits


def _require_rebasable(session: Session, old: Model) -> None:
    """Check that a model can be rebased: it has learned, its images are retained, no rebase is
    open.
    """
    # Before the check of production, whose advice would not help for such a model.
    if old.base == ADOPTED:
        raise WrongState(
            f"{old.name!r} came with classes of which no training image is here, so no other base "
            "could learn them. Create a new model, and send it images of all classes.",
            extra={"state": "adopted"},
        )
    production = find_production_version(session, old)
    if production is None or not list_taught_tasks(production.manifest):
        raise WrongState(
            f"Production of {old.name!r} has learned no batch yet, so there is nothing to move: "
            "create a new model on the other base.",
            extra={"state": "fetching" if production is None else "ready"},
        )
    new_model = find_new_model_of_open_rebase(session, old)
    if new_model is not None:
        raise WrongState(
            f"{old.name!r} is on its way to another base already: {new_model.name!r} is to replace it. "
            f"GET /v1/models/{new_model.name}/rebase says how far it is; delete that model to begin "
            f"from the start.",
            extra={"state": "open", "new": new_model.id},
        )


def _build_rebased_model_request(
    session: Session, actor: Actor, old: Model, rebase_request: RebaseRequest
) -> NewModel:
    """Build the request that creates the new model of a rebase."""
    fields = cast(
        NewModel,
        {
            "name": rebase_request.name
            or find_free_model_name(session, old.owner_id, old.name, "rebased"),
            "scenario": old.scenario,
            "problem": old.problem,
            "recipe": dict(old.recipe),
            "gate": apply_patch_to_gate_limits(old.gate, {}, old.answers),
            "answers": old.answers,
            "keep_training_data": old.keep_training_data,
            "held_out": old.held_out,
            "selection": old.selection,
            "on_held": old.on_held,
            "on_rejected": old.on_rejected,
            "on_failed": old.on_failed,
            "training_data_days": old.training_data_days,
            "allow_lost_classes": old.allow_lost_classes,
            "description": old.description,
            "tags": old.tags,
            # Otherwise the new model gets its classes with the batches, as the old one did.
            "classes": old.classes if old.scenario == "data" else None,
        },
    )
    return cast(
        NewModel,
        {**fields, **_build_base_and_architecture_fields(session, actor, old, rebase_request.base)},
    )


def _build_base_and_architecture_fields(
    session: Session, actor: Actor, old: Model, base: ModelBase
) -> dict[str, object]:
    """Build base, architecture and image settings of the new model, as fields of its request.

    Raises:
        Invalid: the base does not exist, is the one that the model has, or determines no
            architecture.
        NotFound: the caller sees no model that it names.
    """
    fields: dict[str, object]
    if not isinstance(base, str):
        source = find_model(session, actor, base["model"])
        base = {"model": source.id, "version": base["version"]}
        fields = {"architecture": source.architecture, "image": dict(source.image)}
    elif base in (model_defaults.RANDOM, PRETRAINED):
        raise _make_base_field_error(
            f"{base!r} is no base to move to: it does not say which network. Name one of the "
            f"package ({imagenet_base.NAME}, {packaged_base.PACKAGED}), an uploaded one by its id "
            f"(POST /v1/bases), or a "
            'version: {"model": "…", "version": 1}.'
        )
    elif base.startswith(packaged_base.PREFIX):
        fields = _get_packaged_base_architecture_and_image(old, base)
    else:
        # The base of another owner is reported as missing, so that ids cannot be probed.
        row = session.scalar(
            select(UploadedBase).where(
                UploadedBase.id == base, actor.build_visible_condition(UploadedBase.owner_id)
            )
        )
        if row is None:
            raise _make_base_field_error(
                f"There is no base {base!r}; those by name are {packaged_base.PACKAGED} and "
                f"{imagenet_base.NAME}, and "
                "GET /v1/bases has the uploaded ones."
            )
        fields = {
            "architecture": get_base_architecture(row.architecture),
            "image": dict(row.architecture["image"]),
        }
    if base == old.base:
        raise _make_base_field_error(
            f"{old.name!r} starts from this base already: name another one."
        )
    return {"base": base, **fields}


def _get_packaged_base_architecture_and_image(old: Model, base: str) -> dict[str, object]:
    """Read architecture and image settings of a base that the package contains."""
    if base == imagenet_base.NAME:
        return {"architecture": imagenet_base.ARCHITECTURE, "image": {}}
    if base == packaged_base.PACKAGED:
        packaged = packaged_base.load_packaged_base_description()
        return {
            "architecture": packaged.architecture,
            "image": {"size": packaged.size, "channels": old.image["channels"]},
        }
    raise _make_base_field_error(
        f"There is no base {base!r}; those by name are {packaged_base.PACKAGED} and "
        f"{imagenet_base.NAME}."
    )


def _check_new_model_with_recipe_fallback(
    catalogue: RecipeCatalogue, model_request: NewModel, old: Model, admission: AdmissionLimits
) -> CheckedModelRequest:
    """Check the new model of a rebase; use the default recipe if the old one does not fit the
    base.
    """
    try:
        return check_and_complete_model_request(catalogue, model_request, admission)
    except (InvalidRecipe, JobTooLarge) as error:
        seed = complete_stored_recipe(catalogue, old.scenario, old.recipe).get("seed", 0)
        checked = check_and_complete_model_request(
            catalogue, {**model_request, "recipe": {"seed": seed}}, admission
        )
        method = checked.resolved_recipe.recipe["method"]["name"]
        note = (
            f"The recipe of {old.name} does not work on this base ({error.detail.rstrip('.')}): "
            f"the new model learns by the default, {method}."
        )
        return replace(checked, request=model_request, notes=[*checked.notes, note])


def _keep_image_decoding_of_old_model(
    checked_request: CheckedModelRequest, old: Model
) -> CheckedModelRequest:
    """Keep the old model's image decoding in the new one, so that stored images have the same
    pixels.
    """
    image: ImageOut = {**checked_request.images.image}
    image.pop("decoding", None)
    if "decoding" in old.image:
        image["decoding"] = old.image["decoding"]
    return replace(checked_request, images=replace(checked_request.images, image=image))


def _add_model_and_jobs(
    order: _RebaseTransactionContext,
    old: Model,
    requested: CheckedModelRequest,
    begins: InitialWeightsAndDownloadLimits,
    rebase_request: RebaseRequest,
) -> tuple[RebaseOut, list[str]]:
    """Add the new model of a rebase and its jobs; the caller holds the lock on the old model's row.

    Returns:
        The response, and ids of jobs that workers must be notified of.
    """
    transaction, session = order.transaction, order.transaction.session
    _require_rebasable(session, old)
    if rebase_request.name is None:
        # Chosen again under the lock, since the name of the first check may be taken by now.
        requested = replace(
            requested, name=find_free_model_name(session, old.owner_id, old.name, "rebased")
        )
    require_free_model_name(session, old.owner_id, requested.name)
    data: AuditData = {"name": requested.name, "model": old.id}
    audit = ("model.rebase", data)
    new = add_model(
        transaction, order.resources.blobs, requested, begins, audit, owner_id=old.owner_id
    )
    new.rebased_from = old.id
    session.flush()
    job_ids = [] if new.base_job is None else [new.base_job]
    job_ids += _queue_retained_tasks(order, old, new, requested.resolved_recipe.recipe)
    session.flush()
    response = rebase_comparison_to_json(
        RebaseComparison(compute_rebase_progress(session, old, new), {})
    )
    response["warnings"] += new.warnings
    return response, job_ids


def _queue_retained_tasks(
    order: _RebaseTransactionContext, old: Model, new: Model, recipe: RecipeOut
) -> list[str]:
    """Queue the old model's retained tasks for the new model, if both read images of the same form.

    Returns:
        Ids of the jobs that learn them.
    """
    if old.image != new.image:
        return []
    session, now = order.transaction.session, order.transaction.now
    blobs, limits = order.resources.blobs, order.limits
    stored_tasks = [
        task for task in _list_retained_tasks(session, old) if _are_task_files_stored(blobs, task)
    ]
    job_ids = []
    for task in stored_tasks:
        twin = _copy_task_to_model(new, task, now)
        session.add(twin)
        session.flush()
        job = jobs.build_queued_task_job(new, twin, {}, recipe, now)
        session.add(job)
        session.flush()
        job_rows.record_job_creation(session, job, now)
        text = (
            f"Task {twin.number} is learned from the images that {old.name} keeps of its task "
            f"{task.number}."
        )
        job_log.add_job_log_line(session, job.id, ("info", text), now)
        job_ids.append(job.id)
    if job_ids:
        # The last of these jobs needs most memory, so that one check covers all.
        work = count_tasks_and_images_of_job(session, new, len(job_ids))
        limits.admission.check_job_memory(
            order.resources.catalogue, new.architecture, new.image, recipe, work
        )
        # Both come last, since they lock the owner's row.
        quota.add_upload_bytes_or_raise_if_full(
            session,
            new.owner_id,
            limits.terms.max_owner_bytes,
            _sum_task_file_bytes(old, stored_tasks),
        )
        quota.require_added_job_within_limit(session, new.owner_id, limits.terms.max_open_jobs)
    return job_ids


def _list_retained_tasks(session: Session, old: Model) -> list[Task]:
    """List production's tasks whose training and held-out images are both retained."""
    production = find_production_version(session, old)
    numbers = [] if production is None else list_taught_tasks(production.manifest)
    query = select(Task).where(
        Task.model_id == old.id,
        Task.number.in_(numbers),
        Task.train_sha256.is_not(None) & Task.held_out_sha256.is_not(None),
        Task.data_deleted_at.is_(None)
        & Task.train_deleted_at.is_(None)
        & Task.held_out_deleted_at.is_(None),
    )
    return list(session.scalars(query.order_by(Task.number)))


def _are_task_files_stored(blobs: Blobs, task: Task) -> bool:
    """Return True if all data files of a task are stored; the caller holds the lock on
    references.
    """
    parts = (task.train_sha256, task.held_out_sha256, task.traces_sha256, task.selection_sha256)
    return all(blobs.has(part) for part in parts if part is not None)


def _sum_task_file_bytes(model: Model, tasks: Sequence[Task]) -> int:
    """Sum the bytes of tasks' data files, as usage counts them."""
    pixels = int(model.image["size"]) ** 2 * int(model.image["channels"])
    images = sum(
        (task.n_train or 0) + (task.n_held_out or 0) + (task.n_selection or 0) for task in tasks
    )
    return images * pixels + sum(task.traces_bytes or 0 for task in tasks)


def _copy_task_to_model(new: Model, task: Task, now: float) -> Task:
    """Copy a task's row as the next task of the new model, with the same data files."""
    number = new.next_task
    new.next_task += 1
    return Task(
        id=new_id("tsk"),
        model_id=new.id,
        number=number,
        name=task.name,
        sha256=task.sha256,
        content_sha256=task.content_sha256,
        content_turn=task.content_turn,
        bytes=task.bytes,
        # The images are decoded already, so that no archive is needed.
        archive_key=None,
        media_type=task.media_type,
        classes=dict(task.classes),
        n_train=task.n_train,
        n_held_out=task.n_held_out,
        # A copy, since an edit changes the reports of one model's tasks alone.
        report=copy.deepcopy(task.report),
        train_sha256=task.train_sha256,
        held_out_sha256=task.held_out_sha256,
        traces_sha256=task.traces_sha256,
        traces_bytes=task.traces_bytes,
        selection_sha256=task.selection_sha256,
        n_selection=task.n_selection,
        train_deleted_at=None,
        held_out_deleted_at=None,
        data_deleted_at=None,
        warnings=[],
        created_at=now,
    )


def _make_base_field_error(message: str) -> Invalid:
    return Invalid(message, fields=[{"field": "base", "message": message}])
