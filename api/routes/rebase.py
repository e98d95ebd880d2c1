"""Routes that move a model to another base: begin, compare, and move production."""

from typing import cast

from fastapi import Response

from api.dependencies import (
    BlobStore,
    Db,
    IdempotencyKey,
    PictureWork,
    Read,
    Service,
    Write,
)
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.schemas.common import ModelPath
from api.schemas.models import RebaseFinish, RebaseIn
from core.admission.admission import AdmissionLimits
from core.bases import pretrained
from core.contract.base import ModelBase
from core.contract.responses.versions.rebase import RebaseOut
from core.models.new_model import NewModelAdmissionLimits
from core.rebase import rebase, rebase_comparison, rebase_finish
from core.requests import idempotency

router = make_tagged_api_router("models")


@router.post(
    "/v1/models/{model}/rebase",
    summary="Begin",
    status_code=201,
    response_model=RebaseOut,
    responses=build_openapi_problem_responses(409, 429),
)
def begin_rebase(
    model: ModelPath,
    body: RebaseIn,
    actor: Write,
    service: Service,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Begin to move a model to another base.

    A new model learns the batches whose images are retained; the response names the batches to send
    again.
    """
    fields = body.model_dump(exclude_unset=True)
    new_base = rebase.RebaseRequest(cast(ModelBase, fields["base"]), fields.get("name"))
    repeat = None
    if (key := idempotency.check_idempotency_key_form(idempotency_key)) is not None:
        mark = idempotency.digest_request_for_idempotency(model, body.model_dump_json())
        repeat = idempotency.IdempotentRequestIdentity("POST /v1/models/{model}/rebase", key, mark)
    bounds = AdmissionLimits.from_settings(service.settings)
    terms = pretrained.PretrainedWeightsPolicy.from_settings(service.settings)
    rebase_response, queued_jobs, replay = rebase.begin_rebase(
        service.load_use_case_resources(),
        actor,
        model,
        new_base,
        repeat,
        NewModelAdmissionLimits(bounds, terms),
    )
    # A repeated response has none: the first request has notified the workers.
    for job in queued_jobs:
        service.bell.notify_workers(job)
    location = {"Location": f"/v1/models/{rebase_response['new']['id']}/rebase"}
    return build_json_response(rebase_response, 201, location, replay=replay)


@router.get("/v1/models/{model}/rebase", summary="Read", response_model=RebaseOut)
async def read_rebase(
    model: ModelPath, actor: Read, db: Db, blobs: BlobStore, work: PictureWork
) -> Response:
    """Return the progress of a rebase, with both models compared on the same held-out images."""
    rebase_response = await work.run_work_in_turn(
        actor.owner_id, lambda: rebase_comparison.compare_rebase_by_images(db, blobs, actor, model)
    )
    return build_json_response(rebase_response)


@router.post(
    "/v1/models/{model}/rebase/finish",
    summary="Finish",
    response_model=RebaseOut,
    responses=build_openapi_problem_responses(409),
)
async def finish_rebase(
    model: ModelPath,
    actor: Write,
    db: Db,
    blobs: BlobStore,
    work: PictureWork,
    body: RebaseFinish | None = None,
) -> Response:
    """Move production: the new model takes the old one's name.

    Called on the old model afterwards, this moves production back.
    """
    request = body or RebaseFinish()

    def finish_rebase() -> RebaseOut:
        decision = rebase_finish.RebaseDecision(request.reason, request.missing)
        return rebase_finish.finish_rebase(db, blobs, actor, model, decision)

    # In turns with other heavy work: both models' predictions are compared first.
    return build_json_response(await work.run_work_in_turn(actor.owner_id, finish_rebase))
