"""Prediction with any version: images in, labels and probabilities out."""

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from api.dependencies import BlobStore, Config, Db, Read
from api.guard import declared_length, read_body
from api.image_form import boundary_of, images_of
from api.predictor import Predictor
from api.problems import answers
from api.schemas.common import ModelPath
from api.schemas.predict import PredictOut
from api.schemas.versions import VersionPath
from core.errors import BodyTooLarge, StoreCorrupt, UnsupportedType
from core.requests.predictions import predictable

router = APIRouter(tags=["predict"])

MAX_BYTES = 64 << 20
MAX_IMAGES = 256
_image = {"type": "string", "format": "binary"}
_numbers = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}
_pixels = {"type": "array", "items": {"anyOf": [_numbers, {"type": "array", "items": _numbers}]}}
_body: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"At most {MAX_IMAGES} images: files in a form, or N×H×W[×C] values from 0 to 255.",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"image": {"type": "array", "items": _image, "minItems": 1}},
                    "required": ["image"],
                    "additionalProperties": False,
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "images": {"type": "array", "items": _pixels, "minItems": 1, "maxItems": MAX_IMAGES}
                    },
                    "required": ["images"],
                    "additionalProperties": False,
                }
            },
        },
    }
}


@router.post(
    "/v1/models/{model}/versions/{version}/predict",
    response_model=PredictOut,
    responses=answers(409),
    openapi_extra=_body,
)
async def predict(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    actor: Read,
    db: Db,
    blobs: BlobStore,
    settings: Config,
    task: Annotated[
        int | None, Query(ge=1, lt=2**31, description="Task scenario: whose head answers")
    ] = None,
) -> Response:
    """Labels and probabilities for images; decoded as for training."""
    # First, since nobody is to learn from another answer that a version is there.
    found = await to_thread.run_sync(predictable, db, actor, model, version, task)
    declared = declared_length(request.headers.get("content-length"))
    if declared is not None and declared > MAX_BYTES:
        raise BodyTooLarge(f"The body may have {MAX_BYTES} bytes; this one has {declared}.")
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in ("multipart/form-data", "application/json"):
        raise UnsupportedType("Send images as multipart/form-data, or nested arrays as application/json.")
    boundary = boundary_of(content_type) if media_type == "multipart/form-data" else None
    helper = _helper(request, settings)
    with helper.place(MAX_BYTES if declared is None else declared):
        body = await read_body(request.receive, MAX_BYTES, declared)
        files = (
            [body] if boundary is None else await to_thread.run_sync(images_of, body, boundary, MAX_IMAGES)
        )
        del body

        def header() -> dict[str, Any]:
            return {
                "version_id": found.id,
                "version": found.number,
                "manifest": found.manifest,
                "parts": found.paths(blobs),
                "task": task,
                "format": "arrays" if boundary is None else "files",
            }

        try:
            # Not in the helper's line: a store that is out would hold up versions whose parts are here.
            asked = await to_thread.run_sync(header)
            answer = await helper.predict(asked, files)
        except StoreCorrupt:  # perhaps deleted since its row was read: then it is not found by now
            await to_thread.run_sync(predictable, db, actor, model, version, task)
            raise
    return Response(answer, media_type="application/json")


def _helper(request: Request, settings: Config) -> Predictor:
    """The app's one helper; a second one cannot come about, since nothing is awaited here."""
    state = request.app.state
    if getattr(state, "predictor", None) is None:
        state.predictor = Predictor(settings)
    helper: Predictor = state.predictor
    return helper
