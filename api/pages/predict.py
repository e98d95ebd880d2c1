"""`/ui/models/{model}/versions/{version}/predict`: predictions for photos, and downloads of a
version.
"""

import base64
import json
from dataclasses import dataclass, replace
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api.authentication import session
from api.dependencies import CatalogueOf, Db, Read, Service, Write
from api.pages.parts import forms
from api.pages.parts.render import get_root_path, render_page
from api.predict.prediction import PredictRequestTarget, predict_images_and_keep_slot
from api.schemas.common import ModelPath
from api.schemas.versions import VersionPath
from core.contract.responses.model import ModelOut
from core.contract.responses.versions.predict import PredictOut
from core.database.session import Database
from core.errors import PerennialError
from core.models import models
from core.requests.actor import Actor
from core.tasks import tasks
from core.versions import export_jobs, exports, versions

router = APIRouter(include_in_schema=False)

PATH = "/ui/models/{model}/versions/{version}/predict"
TOP = 5
"""Number of labels shown per photo."""
THUMB_BYTES = 2 << 20
"""Largest photo in bytes that is shown beside its prediction."""
# Photos go into the page itself as data URLs, a third larger than they are.
THUMBS = 12
TASKS = 50
# Every browser shows these; HEIC or TIFF, which are accepted too, would be broken images.
_PICTURES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
Head = Annotated[int | None, Query(ge=1, lt=2**31, description="Task scenario: whose head answers")]


@dataclass(frozen=True)
class ShownPrediction:
    """The predicted labels of one photo, for the prediction page.

    Attributes:
        photo: data URL for an `img`; None: the photo is not shown.
        labels: (label, probability), most probable first.
        error: reason why there is no prediction.
        sure: True if the probability reaches the version's threshold; None: there is no threshold.
    """

    name: str | None
    photo: str | None
    labels: list[tuple[str, float]]
    error: str | None
    sure: bool | None = None


@dataclass(frozen=True)
class _PredictPageContent:
    """Template data of the page that predicts photos.

    Attributes:
        version: number or alias, as in the page's URL.
        heads: numbers of the tasks to choose from.
        task: the chosen one.
        predictions: None: no photos were sent.
        error: why there are no predictions.
    """

    model: ModelOut
    version: str
    number: int
    heads: list[int]
    task: int | None = None
    predictions: list[ShownPrediction] | None = None
    error: PerennialError | None = None


@router.get(PATH)
def show_predict_form(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    actor: Read,
    db: Db,
    catalogue: CatalogueOf,
) -> Response:
    """Show the form that sends photos to a version."""
    model_response = models.read_model(db, catalogue(), actor, model)
    return _render_predict_form(
        request, _load_predict_page_content(db, actor, model_response, version)
    )


@router.post(PATH)
async def handle_predict_form(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    actor: Read,
    service: Service,
    task: Head = None,
) -> Response:
    """Show the predicted labels of the chosen photos."""
    # The body is no small form, so `read_values_of_own_page_form`, which checks the origin, is not used.
    session.require_own_request_origin(request.scope)
    db = service.db
    model_response = await to_thread.run_sync(
        lambda: models.read_model(db, service.catalogue(), actor, model)
    )
    content = await to_thread.run_sync(
        _load_predict_page_content, db, actor, model_response, version
    )
    question = PredictRequestTarget(actor, model_response["id"], version, task, TOP)
    try:
        response, images, slot = await predict_images_and_keep_slot(
            request, question, db, service.blobs, service.settings
        )
    except PerennialError as error:
        return _render_predict_form(request, replace(content, error=error))
    try:
        predictions = await to_thread.run_sync(_build_shown_predictions, response, images.body)
    finally:
        # Until here, the place counts the photos, which are now copied into the page.
        slot.release_predict_slot()
    return _render_predict_form(request, replace(content, predictions=predictions, task=task))


@router.post("/ui/models/{model}/versions/{version}/export/{format}")
async def handle_export_request(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    format: str,
    actor: Write,
    service: Service,
) -> Response:
    """Redirect to the download of a version in a format, or to the job that creates it."""
    await forms.read_values_of_own_page_form(request)
    root = get_root_path(request.scope)
    db, max_open_jobs = service.db, service.settings.max_open_jobs

    def find_export_or_queue_job() -> str:
        download = exports.RequestedExport(model, version, format)
        if exports.find_stored_export(db, service.blobs, actor, download) is not None:
            return f"{root}/v1/models/{model}/versions/{version}/download?format={format}"
        job, fresh = export_jobs.queue_export_job(
            db, actor, model, version, format=format, max_open_jobs=max_open_jobs
        )
        if fresh:
            service.bell.notify_workers(job["id"])
        return f"{root}/ui/jobs/{job['id']}"

    return RedirectResponse(await to_thread.run_sync(find_export_or_queue_job), 303)


def _load_predict_page_content(
    db: Database, actor: Actor, model: ModelOut, version: str
) -> _PredictPageContent:
    number = versions.get_version(db, actor, model["id"], version)["number"]
    task_page = tasks.list_tasks(db, actor, model["id"], TASKS, None)
    return _PredictPageContent(
        model, version, number, [one["number"] for one in task_page["items"]]
    )


def _build_shown_predictions(body: bytes, photos: object) -> list[ShownPrediction]:
    response: PredictOut = json.loads(body)
    predictions = []
    for index, (one, photo) in enumerate(zip(response["predictions"], photos, strict=True)):  # type: ignore[call-overload]
        photo_url = _encode_photo_data_url(photo) if index < THUMBS else None
        if "error" in one:
            predictions.append(ShownPrediction(one["name"], photo_url, [], one["error"]["detail"]))
        else:
            predictions.append(
                ShownPrediction(
                    one["name"],
                    photo_url,
                    list(one["probabilities"].items())[:TOP],
                    None,
                    one.get("sure"),
                )
            )
    return predictions


def _encode_photo_data_url(data: bytes | bytearray | memoryview) -> str | None:
    """Return a picture as a data URL for an `img`, where browsers run no scripts in it."""
    # By its first bytes: the media type that a client declares may be wrong.
    kind = next(
        (kind for begin, kind in _PICTURES.items() if bytes(data[: len(begin)]) == begin), None
    )
    if kind is None or len(data) > THUMB_BYTES:
        return None
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _render_predict_form(request: Request, content: _PredictPageContent) -> Response:
    error = content.error
    context = {
        "model": content.model,
        "version": content.version,
        "number": content.number,
        "heads": content.heads,
        "task": content.task,
        "answers": content.predictions,
        "wrong": error.detail if error else None,
    }
    return render_page(request, "predict.html", context, error.status if error else 200)
