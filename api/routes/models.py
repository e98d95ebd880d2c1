"""Routes for models, and for a model's stored training images: their amount, and their deletion."""

from typing import Annotated, Literal, cast

from fastapi import Query, Response

from api.dependencies import (
    BlobStore,
    CatalogueOf,
    Config,
    Db,
    IdempotencyKey,
    ObjectStore,
    Page,
    Read,
    Service,
    Write,
)
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.schemas.common import ModelPath
from api.schemas.models import ModelIn, ModelPatch
from core.admission.admission import AdmissionLimits
from core.bases import pretrained
from core.contract.responses.model import ModelOut, ModelPage
from core.contract.responses.model_change import ModelChange, NewModel
from core.contract.responses.versions.memory import MemoryOut
from core.models import memory, model_deletion, models
from core.models.new_model import NewModelAdmissionLimits
from core.requests import idempotency

router = make_tagged_api_router("models")


@router.post(
    "/v1/models",
    summary="Create",
    status_code=201,
    response_model=ModelOut,
    responses=build_openapi_problem_responses(404, 409, 429),
)
def create_model(
    body: ModelIn, actor: Write, service: Service, idempotency_key: IdempotencyKey = None
) -> Response:
    """Create a model: a named lineage of versions. A `job` may have to fetch pretrained weights
    first.
    """
    # Only the fields that the request contains: `create_model` reports which defaults it chose.
    new_model = cast(NewModel, body.model_dump(exclude_unset=True))
    repeat = None
    if (key := idempotency.check_idempotency_key_form(idempotency_key)) is not None:
        mark = idempotency.digest_request_for_idempotency(body.model_dump_json())
        repeat = idempotency.IdempotentRequestIdentity("POST /v1/models", key, mark)
    bounds = AdmissionLimits.from_settings(service.settings)
    terms = pretrained.PretrainedWeightsPolicy.from_settings(service.settings)
    model_response, replay = models.create_model(
        service.load_use_case_resources(),
        actor,
        new_model,
        repeat,
        NewModelAdmissionLimits(bounds, terms),
    )
    # A repeated response starts no job: the first request has notified the worker.
    if model_response["job"] is not None and not replay:
        service.bell.notify_workers(model_response["job"])
    return build_json_response(
        model_response, 201, {"Location": f"/v1/models/{model_response['id']}"}, replay=replay
    )


@router.get("/v1/models", response_model=ModelPage)
def list_models(
    actor: Read,
    db: Db,
    catalogue: CatalogueOf,
    page: Page,
    q: Annotated[
        str | None, Query(max_length=63, description="Only models with this text in their name")
    ] = None,
    include: Annotated[
        Literal["summary"] | None,
        Query(description="What each item says beside the model's own fields"),
    ] = None,
) -> Response:
    """List your models, oldest first."""
    model_page = models.list_models(
        db,
        catalogue(),
        actor,
        page.limit,
        page.cursor,
        models.ModelListQuery(q, summary=include is not None),
    )
    return build_json_response(model_page)


@router.get("/v1/models/{model}", summary="Read", response_model=ModelOut)
def read_model(model: ModelPath, actor: Read, db: Db, catalogue: CatalogueOf) -> Response:
    """Return one model, by id or name."""
    return build_json_response(models.read_model(db, catalogue(), actor, model))


@router.patch("/v1/models/{model}", summary="Change", response_model=ModelOut)
def change_model(
    model: ModelPath,
    body: ModelPatch,
    actor: Write,
    db: Db,
    catalogue: CatalogueOf,
    settings: Config,
) -> Response:
    """Change the recipe or gate for later tasks, or the texts about the model."""
    patch = cast(ModelChange, body.model_dump(exclude_unset=True))
    return build_json_response(
        models.change_model(
            db, catalogue(), actor, model, patch, AdmissionLimits.from_settings(settings)
        )
    )


@router.delete("/v1/models/{model}", summary="Delete", status_code=204)
def delete_model(
    model: ModelPath, actor: Write, db: Db, store: ObjectStore, blobs: BlobStore
) -> Response:
    """Cancel the model's jobs, hide it, and remove its data."""
    model_deletion.delete_model(db, store, blobs, actor, model)
    return Response(status_code=204)


@router.get("/v1/models/{model}/memory", response_model=MemoryOut)
def read_memory(model: ModelPath, actor: Read, db: Db, blobs: BlobStore) -> Response:
    """Return bytes and counts of the production version's replay buffer and exemplars, never
    images.
    """
    return build_json_response(memory.read_replay_memory(db, blobs, actor, model))


@router.delete("/v1/models/{model}/memory", status_code=204)
def delete_memory(
    model: ModelPath, actor: Write, db: Db, store: ObjectStore, blobs: BlobStore
) -> Response:
    """Delete the stored images of all versions now.

    Versions stay: they can be downloaded and used for predictions as before. A running job restarts
    without these images, and the next version starts with an empty replay buffer.
    """
    memory.delete_replay_memory(db, store, blobs, actor, model)
    return Response(status_code=204)
