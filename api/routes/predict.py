"""Route for predictions with any version: images in, labels and probabilities out."""

from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import JsonValue

from api.authentication.guard import mark_handler_for_direct_call
from api.dependencies import Predict
from api.description.documented_routes import make_tagged_api_router
from api.predict.body import SlotHoldingJsonResponse
from api.predict.form import FIELDS
from api.predict.images import FILES
from api.predict.prediction import PredictRequestTarget, predict_images_and_keep_slot
from api.problems import build_openapi_problem_responses
from api.schemas.common import ModelPath
from api.schemas.versions import VersionPath
from core.contract.responses.versions.predict import PredictOut
from core.ingest.limits import PREDICT_IMAGES
from core.settings import Settings

router = make_tagged_api_router("predict")

TOP_K = 10
TaskNumber = Annotated[
    int | None, Query(ge=1, lt=2**31, description="Task scenario: whose head answers")
]
TopK = Annotated[
    int, Query(ge=1, lt=2**31, description="How many of the most probable labels each image gets")
]
_files: JsonValue = {
    "type": "array",
    "items": {"type": "string", "format": "binary"},
    "minItems": 1,
}
_numbers: JsonValue = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}
_pixels: JsonValue = {
    "type": "array",
    "items": {"anyOf": [_numbers, {"type": "array", "items": _numbers}]},
}
_base64: JsonValue = {
    "type": "object",
    "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
    "required": ["b64"],
    "additionalProperties": False,
}


def _build_image_list_schema(name: str, description: str, items: JsonValue) -> JsonValue:
    """Return the schema of a body that contains only a list of images."""
    listed: JsonValue = {"type": "array", "items": items, "minItems": 1, "maxItems": PREDICT_IMAGES}
    return {
        "type": "object",
        "description": description,
        "properties": {name: listed},
        "required": [name],
        "additionalProperties": False,
    }


_body: dict[str, JsonValue] = {
    "requestBody": {
        "required": True,
        "description": f"At most {PREDICT_IMAGES} images: one file as it is, files in a form or in "
        "base64, or N×H×W[×C] values from 0 to 255.",
        "content": {
            **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in FILES},
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
                    "oneOf": [
                        _build_image_list_schema(
                            "instances", "Image files in base64, without line breaks.", _base64
                        ),
                        _build_image_list_schema("images", "Nested arrays.", _pixels),
                    ]
                }
            },
        },
    }
}


@router.post(
    "/v1/models/{model}/versions/{version}/predict",
    summary="Predict",
    response_model=PredictOut,
    responses=build_openapi_problem_responses(409),
    openapi_extra=_body,
)
@mark_handler_for_direct_call(reads_query=False)
async def predict_labels(
    request: Request,
    actor: Predict,
    model: ModelPath,
    version: VersionPath,
    task: TaskNumber = None,
    top_k: TopK = TOP_K,
) -> Response:
    """Return labels and probabilities for images, in the order sent; decoded as for training.

    An image that cannot be used gets an `error` in place of a label; the others are predicted. If
    it is the only image, the response is a 422.
    """
    state = request.app.state
    settings: Settings = state.settings
    target = PredictRequestTarget(actor, model, version, task, top_k)
    predictions, images, slot = await predict_images_and_keep_slot(
        request, target, state.database, state.blobs, settings
    )
    # Free the images now: a slow client may delay the end of the response.
    del images
    try:
        slot.replace_request_bytes_by_response_bytes(len(predictions))
        # From here on, the response owns the place.
        return SlotHoldingJsonResponse(predictions, slot, settings)
    except BaseException:
        slot.release_predict_slot()
        raise
