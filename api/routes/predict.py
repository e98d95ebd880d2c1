"""Prediction with any version: images in, labels and probabilities out."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import JsonValue

from api.dependencies import BlobStore, Config, Db, Read
from api.predict.answer import HeldResponse
from api.predict.form import FIELDS
from api.predict.images import form_boundary, read_images
from api.predict.line import PredictLine
from api.predict.predictor import Predictor, Question
from api.problems import responses
from api.schemas.common import ModelPath
from api.schemas.versions import VersionPath
from core.errors import Invalid, StoreCorrupt
from core.ingest.limits import PREDICT_IMAGES
from core.protocol.answers.predict import PredictOut
from core.requests.predictions import explained, predictable

router = APIRouter(tags=["predict"])

TOP_K = 10
TaskNumber = Annotated[int | None, Query(ge=1, lt=2**31, description="Task scenario: whose head answers")]
TopK = Annotated[
    int, Query(ge=1, lt=2**31, description="How many of the most probable labels each image gets")
]
_files: JsonValue = {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
_numbers: JsonValue = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}
_pixels: JsonValue = {"type": "array", "items": {"anyOf": [_numbers, {"type": "array", "items": _numbers}]}}
_body: dict[str, JsonValue] = {
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
    responses=responses(409),
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
    task: TaskNumber = None,
    top_k: TopK = TOP_K,
) -> Response:
    """Labels and probabilities for images, in the order sent; decoded as for training.

    An image that cannot be used gets an `error` in place of a label, and the others are answered. Where it is the
    only one sent, the answer is a 422.
    """
    # First, since nobody is to learn from another answer that a version is there.
    found = await to_thread.run_sync(predictable, db, actor, model, version, task)
    _check(top_k, settings.predict_max_top_k)
    boundary = form_boundary(request)
    line: PredictLine = request.app.state.predict_line
    helper: Predictor = request.app.state.predictor
    place = line.place(actor.owner_id)
    try:
        images = await read_images(request, place, boundary, settings)
        try:
            # Not in the helper's turn: a store that is out would hold up versions whose parts are here.
            asked = await to_thread.run_sync(Question.to, found, blobs, task, top_k)
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


def _check(top_k: int, most: int) -> None:
    """Raises Invalid for more labels than an image may have."""
    if top_k > most:
        raise Invalid(
            f"top_k is {top_k}, and an image may have {most} labels: send ?top_k={most} or less.",
            fields=[{"field": "top_k", "message": f"at most {most}"}],
        )
