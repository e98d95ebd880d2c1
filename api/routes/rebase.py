"""Routes that move a model to another base: begin, look, and let production move."""

from typing import cast

from fastapi import Response

from api.answers import json_answer
from api.dependencies import (
    Bell,
    BlobStore,
    CatalogueOf,
    Config,
    Db,
    IdempotencyKey,
    PictureWork,
    Read,
    Write,
)
from api.described import make_router
from api.problems import responses
from api.schemas.common import ModelPath
from api.schemas.models import RebaseFinish, RebaseIn
from core.protocol.answers.rebase import RebaseOut
from core.protocol.base import ModelBase
from core.requests import idempotency, pretrained, rebase, rebase_comparison, rebase_finish
from core.requests.admission import Admission

router = make_router("models")


@router.post(
    "/v1/models/{model}/rebase", status_code=201, response_model=RebaseOut, responses=responses(409, 429)
)
def begin(
    model: ModelPath,
    body: RebaseIn,
    actor: Write,
    db: Db,
    blobs: BlobStore,
    catalogue: CatalogueOf,
    settings: Config,
    bell: Bell,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Begin to move a model to another base: a new model beside it learns what images are kept of, and the answer names
    the batches to send again."""
    said = body.model_dump(exclude_unset=True)
    asked = rebase.Asked(cast(ModelBase, said["base"]), said.get("name"))
    repeat = None
    if (key := idempotency.checked(idempotency_key)) is not None:
        mark = idempotency.fingerprint(model, body.model_dump_json())
        repeat = idempotency.Request("POST /v1/models/{model}/rebase", key, mark)
    bounds, terms = Admission.of(settings), pretrained.Terms.of(settings)
    answer, rung, replay = rebase.begin(db, blobs, catalogue(), actor, model, asked, repeat, bounds, terms)
    for job in rung:
        bell.ring(job)
    location = {"Location": f"/v1/models/{answer['new']['id']}/rebase"}
    return json_answer(answer, 201, location, replay=replay)


@router.get("/v1/models/{model}/rebase", response_model=RebaseOut)
async def read(model: ModelPath, actor: Read, db: Db, blobs: BlobStore, work: PictureWork) -> Response:
    """Tell what of a model has arrived in the one that is to replace it, with both on the same held-out images."""
    found = await work.run(actor.owner_id, lambda: rebase_comparison.read(db, blobs, actor, model))
    return json_answer(found)


@router.post("/v1/models/{model}/rebase/finish", response_model=RebaseOut, responses=responses(409))
async def finish(
    model: ModelPath,
    actor: Write,
    db: Db,
    blobs: BlobStore,
    work: PictureWork,
    body: RebaseFinish | None = None,
) -> Response:
    """Let production move: the new model takes the old one's name. Asked of the old model afterwards, that takes it
    back."""
    given = body or RebaseFinish()

    def moved() -> RebaseOut:
        return rebase_finish.finish(db, blobs, actor, model, given.reason, given.missing)

    return json_answer(await work.run(actor.owner_id, moved))
