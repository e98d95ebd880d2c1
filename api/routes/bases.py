"""Routes of bases: weights that models may start from."""

from pathlib import Path as File
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Path, Query, Request, Response

from api.answers import json_answer
from api.dependencies import BlobStore, CatalogueOf, Config, Db, Read, ShapeWork, Write
from api.in_flight import InFlight, replayed, same_body
from api.problems import answers
from api.routes.models import IdempotencyKey
from api.schemas.admin import BaseOut
from api.uploads import Head, head, slot, spooled
from core.errors import BaseInvalid, UnsupportedType
from core.requests import bases, idempotency, quota
from core.requests.admission import Admission

router = APIRouter(tags=["bases"])

ROUTE = "POST /v1/bases"
MAX_BYTES = 8 << 30
_TYPES = {"application/safetensors", "application/octet-stream", None}
_binary = {"schema": {"type": "string", "format": "binary"}}
_upload: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A backbone's state dict as a safetensors file.",
        "content": {"application/safetensors": _binary, "application/octet-stream": _binary},
    }
}


@router.post(
    "/v1/bases", status_code=201, response_model=BaseOut, responses=answers(409, 429), openapi_extra=_upload
)
async def create(
    request: Request,
    architecture: Annotated[
        str,
        Query(
            description='A name (resnet18), or a JSON object with hyper-parameters: {"name": "resnet18", "stem": '
            '"standard"} for a checkpoint of large images, {"name": "vit_b_16", "patch": 16}',
            min_length=1,
            max_length=4000,
        ),
    ],
    actor: Write,
    db: Db,
    blobs: BlobStore,
    settings: Config,
    catalogue: CatalogueOf,
    work: ShapeWork,
    image_size: Annotated[int | None, Query(ge=8, le=1024, description="Pixels a side; default 32")] = None,
    channels: Annotated[int | None, Query(ge=1, le=3, description="1 or 3; default 3")] = None,
    idempotency_key: IdempotencyKey = None,
    content_digest: Annotated[
        str | None, Header(alias="Content-Digest", description="sha-256=:BASE64: of the body; verified")
    ] = None,
) -> Response:
    """Upload a base; its header is checked before anything else.

    A file that differs from the architecture in its stem, patches or channels alone is refused with `fits`: the query,
    architecture and image that it fits.
    """
    del content_digest  # read with the rest of the head
    limit = min(MAX_BYTES, settings.max_body_bytes)
    known = _head(request, settings, limit)

    def wanted() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]:
        resolved, image = bases.parse_architecture(catalogue(), architecture, image_size, channels)
        Admission.of(settings).check_network(resolved, image)
        if known.length == 0:
            raise BaseInvalid("The body is empty; a base is a safetensors file.")
        return resolved, image, bases.known_base(settings, resolved, image)

    def expect() -> dict[str, Any]:
        return bases.expected_base(settings, resolved, image)

    def keep(path: File, repeat: idempotency.Request | None) -> dict[str, Any]:
        return bases.create(
            db,
            blobs,
            settings,
            actor,
            architecture=resolved,
            image=image,
            family=catalogue()["architectures"][resolved["name"]]["family"],
            expected=expected,
            path=path,
            repeat=repeat,
        )

    key = idempotency.checked(idempotency_key)
    with slot(request, actor.owner_id, settings.max_uploads):
        resolved, image, known_shapes = await to_thread.run_sync(wanted)
        # An impossible architecture is refused before the upload.
        expected = await work.run(actor.owner_id, expect) if known_shapes is None else known_shapes

        def admit() -> None:
            quota.require_room(db, actor.owner_id, settings.max_owner_bytes, known.length)

        if key is None:
            await to_thread.run_sync(admit)
            async with spooled(request, known, settings, limit) as upload:
                return _created(await to_thread.run_sync(keep, upload.path, None))
        outer = idempotency.fingerprint(request.url.query)
        async with InFlight(db, actor, ROUTE, key, outer) as mark:
            if mark.replay is not None and same_body(mark.replay, outer, known):
                return replayed(mark.replay)
            if mark.replay is None:
                await to_thread.run_sync(admit)
            async with spooled(request, known, settings, limit) as upload:
                whole = idempotency.fingerprint(outer, upload.sha256)
                repeat = idempotency.Request(ROUTE, key, whole, outer, upload.body_sha256, mark.token)
                if mark.replay is not None:
                    if mark.replay.fingerprint != repeat.fingerprint:
                        raise idempotency.mismatch()
                    return replayed(mark.replay)
                answer = await to_thread.run_sync(keep, upload.path, repeat)
                mark.answered = True
                return _created(answer)


@router.get("/v1/bases/{base}", response_model=BaseOut)
def read(
    base: Annotated[str, Path(description="Id of the base", max_length=40)], actor: Read, db: Db
) -> Response:
    """One base."""
    return json_answer(bases.get(db, actor, base))


def _head(request: Request, settings: Config, limit: int) -> Head:
    known = head(request, settings, limit, multipart=False)
    if known.media_type not in _TYPES:
        raise UnsupportedType("Send a base as application/safetensors.")
    return known


def _created(answer: dict[str, Any]) -> Response:
    return json_answer(answer, 201, {"Location": f"/v1/bases/{answer['id']}"})
