"""Routes for edits: change labels, images and classes that a model was taught."""

from typing import Annotated, Literal

from fastapi import Path, Query, Response

from api.dependencies import Bell, BlobStore, Db, IdempotencyKey, Page, Read, Service, Write
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.schemas.common import ModelPath
from api.schemas.edits import EditIn, UndoIn
from core.admission.admission import AdmissionLimits, NewJobLimits
from core.contract.edit import ClassAliasPage, EditOut, EditPage, EditPlanOut
from core.edits import acceptance, listing, purge, undo
from core.edits.acceptance import EditRequest
from core.requests import idempotency

router = make_tagged_api_router("edits")

Number = Annotated[int, Path(ge=1, lt=2**31, description="Number of the edit")]


@router.post(
    "/v1/models/{model}/edits",
    status_code=202,
    response_model=EditOut,
    responses={
        200: {"model": EditPlanOut, "description": "`?validate=only`: what the edit would do"},
        **build_openapi_problem_responses(409, 429),
    },
    name="Edit a model",
)
def submit_edit(
    model: ModelPath,
    body: EditIn,
    actor: Write,
    service: Service,
    validate: Annotated[
        Literal["only"] | None, Query(description="Check the operations, change nothing")
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Relabel or remove images, rename, merge or drop classes: a job makes one new version."""
    resources = service.load_use_case_resources()
    if validate == "only":
        return build_json_response(acceptance.plan_edit(resources, actor, model, body.operations))
    repeat = None
    if (key := idempotency.check_idempotency_key_form(idempotency_key)) is not None:
        mark = idempotency.digest_request_for_idempotency(model, body.model_dump_json())
        repeat = idempotency.IdempotentRequestIdentity("POST /v1/models/{model}/edits", key, mark)
    limits = NewJobLimits(
        service.settings.max_open_jobs, AdmissionLimits.from_settings(service.settings)
    )
    request = EditRequest(model, body.operations, body.reason, body.parent, repeat)
    edit, is_replay = acceptance.accept_edit(resources, actor, request, limits)
    if not is_replay:
        service.bell.notify_workers(edit["job"])
    location = {"Location": f"/v1/models/{model}/edits/{edit['number']}"}
    return build_json_response(edit, 202, location, replay=is_replay)


@router.get("/v1/models/{model}/edits", response_model=EditPage, name="List edits")
def list_edits(model: ModelPath, actor: Read, db: Db, page: Page) -> Response:
    """List the model's edits, newest first."""
    return build_json_response(listing.list_edits(db, actor, model, page.limit, page.cursor))


@router.get("/v1/models/{model}/edits/{n}", response_model=EditOut, name="Read an edit")
def read_edit(model: ModelPath, n: Number, actor: Read, db: Db) -> Response:
    """Return one edit: its job, its version, and how many images it changed."""
    return build_json_response(listing.read_edit(db, actor, model, n))


@router.post(
    "/v1/models/{model}/edits/{n}/undo",
    response_model=EditOut,
    responses=build_openapi_problem_responses(409, 410),
    name="Undo an edit",
)
def undo_edit(
    model: ModelPath, n: Number, actor: Write, db: Db, bell: Bell, body: UndoIn | None = None
) -> Response:
    """Go back to the version before an edit, and restore its labels."""
    edit, job = undo.undo_edit(db, actor, model, n, None if body is None else body.reason)
    if job is not None:
        bell.notify_workers(job)  # its turn may have come
    return build_json_response(edit)


@router.post(
    "/v1/models/{model}/edits/{n}/purge",
    response_model=EditOut,
    responses=build_openapi_problem_responses(409),
    name="Purge what an edit removed",
)
def purge_edit(model: ModelPath, n: Number, actor: Write, db: Db, blobs: BlobStore) -> Response:
    """Delete from older versions the features and stored images of the tasks from which an edit
    removed images.
    """
    return build_json_response(purge.purge_data_removed_by_edit(db, blobs, actor, model, n))


@router.get(
    "/v1/models/{model}/class-aliases",
    response_model=ClassAliasPage,
    name="List former class names",
)
def list_class_aliases(model: ModelPath, actor: Read, db: Db) -> Response:
    """List former class names, which batches may still use, with the classes they stand for."""
    return build_json_response({"items": listing.list_class_aliases(db, actor, model)})


@router.delete(
    "/v1/models/{model}/class-aliases", status_code=204, name="Remove a former class name"
)
def remove_class_alias(
    model: ModelPath,
    actor: Write,
    db: Db,
    name: Annotated[str, Query(max_length=100, description="The former name")],
) -> Response:
    """Let a former class name bring a new class again."""
    listing.remove_class_alias(db, actor, model, name)
    return Response(status_code=204)
