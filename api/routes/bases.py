"""Routes for bases: weights that models may start from."""

from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Path, Query, Response
from pydantic import JsonValue

from api.dependencies import (
    BlobStore,
    Db,
    Page,
    Read,
    Service,
    ShapeWork,
    Write,
)
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.uploads.body import ReceivedUpload
from api.uploads.request_checks import UploadRouteRules
from api.uploads.upload import UploadReception, make_upload_reception_dependency
from api.uploads.weights import (
    BaseUploadOptions,
    load_expected_base_tensor_shapes,
    parse_base_class_names,
    resolve_requested_base_network,
)
from core.bases import bases
from core.contract.responses.base import BaseOut, BasePage
from core.recipe.base_images import Preset, parse_base_image_config
from core.requests import idempotency
from core.usage import quota

router = make_tagged_api_router("bases")

MAX_BYTES = 8 << 30
MAX_CLASSES_CHARS = 16_000
"""Longest list of classes in a query; that of a form may have 64 KiB (`api.uploads.form`)."""
BasePath = Annotated[str, Path(description="Id of the base", max_length=40)]
WEIGHTS = UploadRouteRules(
    "POST /v1/bases",
    fields=("classes",),
    media_types=frozenset(
        {"application/safetensors", "application/octet-stream", "multipart/form-data", None}
    ),
    not_taken="Send a base as application/safetensors.",
)
_binary: JsonValue = {"schema": {"type": "string", "format": "binary"}}
_upload: dict[str, JsonValue] = {
    "requestBody": {
        "required": True,
        "description": "A backbone's state dict as a safetensors file.",
        "content": {
            "application/safetensors": _binary,
            "application/octet-stream": _binary,
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "classes": {"type": "string", "description": "As the parameter `classes`"},
                    },
                    "required": ["file"],
                    "additionalProperties": False,
                }
            },
        },
    }
}


async def _gather_base_query_parameters(
    architecture: Annotated[
        str,
        Query(
            description='A name (resnet18), or a JSON object with hyper-parameters: {"name": '
            '"resnet18", "stem": "standard"} for a checkpoint of large images, {"name": '
            '"vit_b_16", "patch": 16}',
            min_length=1,
            max_length=4000,
        ),
    ],
    image_size: Annotated[
        int | None,
        Query(ge=8, le=1024, description="Pixels a side; default 32, or the named weights' own"),
    ] = None,
    channels: Annotated[int | None, Query(ge=1, le=3, description="1 or 3; default 3")] = None,
    config: Annotated[
        str | None,
        Query(
            description="JSON: how the images of the base are prepared. mean and std of each "
            "channel, size, crop, interpolation (bilinear, bicubic, nearest); default: as the "
            "named weights say, else mean .5 and std .25",
            max_length=1000,
        ),
    ] = None,
    preset: Annotated[
        Preset | None,
        Query(description="imagenet: mean and std of ImageNet, for weights of torchvision"),
    ] = None,
    classes: Annotated[
        str | None,
        Query(
            description="The file is a whole classifier, and these are the names of its outputs in "
            "order: one a line, a JSON list, or a JSON object of rows and names. A long list "
            "travels as the field `classes` of a form",
            max_length=MAX_CLASSES_CHARS,
        ),
    ] = None,
) -> BaseUploadOptions:
    return BaseUploadOptions(
        architecture, image_size, channels, parse_base_image_config(config, preset), classes
    )


@router.post(
    "/v1/bases",
    summary="Create",
    status_code=201,
    response_model=BaseOut,
    responses=build_openapi_problem_responses(409, 429),
    openapi_extra=_upload,
)
async def create_base(
    asked: Annotated[BaseUploadOptions, Depends(_gather_base_query_parameters)],
    actor: Write,
    upload: Annotated[UploadReception, Depends(make_upload_reception_dependency(WEIGHTS))],
    service: Service,
    work: ShapeWork,
) -> Response:
    """Upload a base; its header is checked before anything else.

    A file whose stem, patch size or channels differ from the architecture is refused with `fits`:
    the query, architecture and image that it fits. With `classes`, the file keeps its head, and a
    model that starts from the base adopts the classifier.
    """
    db, settings, catalogue = service.db, service.settings, service.catalogue
    head = upload.check_request_head(min(MAX_BYTES, settings.max_body_bytes))

    def require_storage_room_for_base(length: int | None) -> None:
        quota.require_storage_room(db, actor.owner_id, settings.max_owner_bytes, length)

    with upload.hold_upload_slot():
        # Before the upload, so that an impossible architecture costs no transfer.
        weights = await to_thread.run_sync(
            resolve_requested_base_network, asked, head.length, catalogue, settings
        )
        expected = await load_expected_base_tensor_shapes(weights, settings, work, actor.owner_id)

        async def check_and_store_base(
            file: ReceivedUpload, repeat: idempotency.IdempotentRequestIdentity | None
        ) -> Response:
            classes = parse_base_class_names(asked, file, settings)
            network = bases.ExpectedBaseNetwork(**vars(weights), expected=expected, classes=classes)
            resources = await to_thread.run_sync(service.load_use_case_resources)
            base_response = await to_thread.run_sync(
                bases.create_base_from_upload,
                resources,
                settings,
                actor,
                network,
                file.path,
                repeat,
            )
            return build_json_response(
                base_response, 201, {"Location": f"/v1/bases/{base_response['id']}"}
            )

        return await upload.receive_and_commit_upload(
            head, require_storage_room_for_base, check_and_store_base
        )


@router.get("/v1/bases", response_model=BasePage)
def list_bases(actor: Read, db: Db, page: Page) -> Response:
    """List your bases, newest first, with the models that started from each."""
    return build_json_response(bases.list_bases(db, actor, limit=page.limit, cursor=page.cursor))


@router.get("/v1/bases/{base}", summary="Read", response_model=BaseOut)
def read_base(base: BasePath, actor: Read, db: Db) -> Response:
    """Return one base."""
    return build_json_response(bases.get_uploaded_base(db, actor, base))


@router.delete(
    "/v1/bases/{base}",
    summary="Delete",
    status_code=204,
    responses=build_openapi_problem_responses(409),
)
def delete_base(base: BasePath, actor: Write, db: Db, blobs: BlobStore) -> Response:
    """Delete a base that no model started from."""
    bases.delete_base(db, blobs, actor, base)
    return Response(status_code=204)
