"""Prediction with any version: images in, labels and probabilities out."""

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from api.dependencies import BlobStore, Config, Db, Read
from api.fair_share import pause
from api.guard import declared_length
from api.image_form import FIELDS, boundary_of, images_of
from api.predict_body import HeldResponse, read_body
from api.predict_line import Place, PredictLine
from api.predictor import Images, Predictor, Question
from api.problems import answers
from api.schemas.common import ModelPath
from api.schemas.predict import PredictOut
from api.schemas.versions import VersionPath
from core.errors import Invalid, StoreCorrupt, UnsupportedType
from core.ingest.limits import PREDICT_IMAGES
from core.requests.predictions import explained, predictable
from core.settings import Settings

router = APIRouter(tags=["predict"])

TOP_K = 10
_files = {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
_numbers = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}
_pixels = {"type": "array", "items": {"anyOf": [_numbers, {"type": "array", "items": _numbers}]}}
_body: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"At most {PREDICT_IMAGES} images: files in a form, or N×H×W[×C] values from 0 to 255.",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "description": "Each image is a part of its own; all four names mean the same.",
                    "properties": {name: _files for name in FIELDS},
                    "minProperties": 1,
                    "additionalProperties": False,
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "images": {
                            "type": "array",
                            "items": _pixels,
                            "minItems": 1,
                            "maxItems": PREDICT_IMAGES,
                        }
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
    top_k: Annotated[
        int, Query(ge=1, lt=2**31, description="How many of the most probable labels each image gets")
    ] = TOP_K,
) -> Response:
    """Labels and probabilities for images, in the order sent; decoded as for training.

    An image that cannot be used gets an `error` in place of a label, and the others are answered. Where it is the
    only one sent, the answer is a 422.
    """
    # First, since nobody is to learn from another answer that a version is there.
    found = await to_thread.run_sync(predictable, db, actor, model, version, task)
    if top_k > settings.predict_max_top_k:
        raise Invalid(
            f"top_k is {top_k}, and an image may have {settings.predict_max_top_k} labels:"
            f" send ?top_k={settings.predict_max_top_k} or less.",
            fields=[{"field": "top_k", "message": f"at most {settings.predict_max_top_k}"}],
        )
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in ("multipart/form-data", "application/json"):
        raise UnsupportedType("Send images as multipart/form-data, or nested arrays as application/json.")
    boundary = boundary_of(content_type) if media_type == "multipart/form-data" else None
    line, helper = _line(request, settings)
    place = line.place(actor.owner_id)
    try:
        images = await _images(request, place, boundary, settings)

        def question() -> Question:
            return Question(
                version_id=found.id,
                version=found.number,
                manifest=found.manifest,
                parts=found.paths(blobs),
                task=task,
                classes=found.classes(task),
                top_k=top_k,
            )

        try:
            # Not in the helper's turn: a store that is out would hold up versions whose parts are here.
            asked = await to_thread.run_sync(question)
            answer = await helper.predict(actor.owner_id, asked, images)
        except StoreCorrupt as error:  # perhaps deleted since its row was read: then it is not found by now
            await to_thread.run_sync(predictable, db, actor, model, version, task)
            raise await to_thread.run_sync(explained, db, found, error) from error
        del images
        place.exchange(len(answer))
        return HeldResponse(answer, place, settings)
    except BaseException:
        place.leave()
        raise


async def _images(request: Request, place: Place, boundary: bytes | None, settings: Settings) -> Images:
    """The images of a request, read and counted at its place. Raises as `read_body` and `images_of`."""
    most = min(settings.predict_body_bytes, settings.predict_owner_bytes)
    if boundary is None:
        most = min(most, settings.predict_array_bytes)
    declared = declared_length(request.headers.get("content-length"))
    pause()  # for the rest of it, too: `place` limits how many an owner has under way
    body = await read_body(request.receive, place, most, declared, settings)
    if boundary is None:
        return Images("arrays", [body])
    sent = await to_thread.run_sync(images_of, body, boundary, PREDICT_IMAGES)
    return Images("files", [image.data for image in sent], [image.name for image in sent])


def _line(request: Request, settings: Settings) -> tuple[PredictLine, Predictor]:
    """The app's one line and its helpers; others cannot come about, since nothing is awaited here."""
    state = request.app.state
    if getattr(state, "predictor", None) is None:
        state.predictor = Predictor(settings)
    if getattr(state, "predict_line", None) is None:
        state.predict_line = PredictLine(settings)
    return state.predict_line, state.predictor
