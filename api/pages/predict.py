"""`/ui/models/{model}/versions/{version}/predict`: predictions for photos, and downloads of a
version.
"""

import base64
import json
from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api import session
from api.dependencies import Bell, BlobStore, CatalogueOf, Config, Db, Read, Write
from api.pages import forms
from api.pages.render import render_page, root_of
from api.predict.asking import Asked, predict_images
from api.schemas.common import ModelPath
from api.schemas.versions import VersionPath
from core.errors import PerennialError
from core.protocol.answers.model import ModelOut
from core.protocol.answers.predict import PredictOut
from core.requests import export_jobs, exports, models, tasks, versions

router = APIRouter(include_in_schema=False)

PATH = "/ui/models/{model}/versions/{version}/predict"
TOP = 5
"""Number of labels shown per photo."""
THUMB_BYTES = 2 << 20
"""Largest photo in bytes that is shown beside its prediction."""
THUMBS = 12
TASKS = 50
_PICTURES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
Head = Annotated[int | None, Query(ge=1, lt=2**31, description="Task scenario: whose head answers")]


@dataclass(frozen=True)
class Answer:
    """A prediction for a photo.

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


@router.get(PATH)
def show(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    actor: Read,
    db: Db,
    catalogue: CatalogueOf,
) -> Response:
    """Show the form."""
    model_response = models.read(db, catalogue(), actor, model)
    number = versions.get_version(db, actor, model_response["id"], version)["number"]
    heads = [
        one["number"]
        for one in tasks.list_tasks(db, actor, model_response["id"], TASKS, None)["items"]
    ]
    return _render_form(request, model_response, version, number, heads)


@router.post(PATH)
async def predict(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    actor: Read,
    db: Db,
    blobs: BlobStore,
    settings: Config,
    catalogue: CatalogueOf,
    task: Head = None,
) -> Response:
    """Show the predicted labels of the chosen photos."""
    session.require_own_origin(request.scope)
    model_response = await to_thread.run_sync(lambda: models.read(db, catalogue(), actor, model))
    version_response = await to_thread.run_sync(
        versions.get_version, db, actor, model_response["id"], version
    )
    heads = [
        one["number"]
        for one in (
            await to_thread.run_sync(tasks.list_tasks, db, actor, model_response["id"], TASKS, None)
        )["items"]
    ]
    question = Asked(actor, model_response["id"], version, task, TOP)
    try:
        predictions, images, place = await predict_images(request, question, db, blobs, settings)
    except PerennialError as error:
        return _render_form(
            request,
            model_response,
            version,
            version_response["number"],
            heads,
            wrong=error.detail,
            status=error.status,
        )
    try:
        shown_answers = await to_thread.run_sync(_build_answers, predictions, images.body)
    finally:
        place.leave()
    return _render_form(
        request,
        model_response,
        version,
        version_response["number"],
        heads,
        answers=shown_answers,
        task=task,
    )


@router.post("/ui/models/{model}/versions/{version}/export/{format}")
async def export(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    format: str,
    actor: Write,
    db: Db,
    blobs: BlobStore,
    settings: Config,
    bell: Bell,
) -> Response:
    """Redirect to the download of a version in a format, or to the job that creates it."""
    await forms.read_form(request)
    root = root_of(request.scope)
    max_open_jobs = settings.max_open_jobs

    def request_export() -> str:
        download = exports.Download(model, version, format)
        if exports.find_stored(db, blobs, actor, download) is not None:
            return f"{root}/v1/models/{model}/versions/{version}/download?format={format}"
        job, fresh = export_jobs.request_export(
            db, actor, model, version, format=format, max_open_jobs=max_open_jobs
        )
        if fresh:
            bell.ring(job["id"])
        return f"{root}/ui/jobs/{job['id']}"

    return RedirectResponse(await to_thread.run_sync(request_export), 303)


def _build_answers(said: bytes, photos: object) -> list[Answer]:
    response: PredictOut = json.loads(said)
    answers = []
    for index, (one, photo) in enumerate(zip(response["predictions"], photos, strict=True)):  # type: ignore[call-overload]
        photo_url = _encode_photo(photo) if index < THUMBS else None
        if "error" in one:
            answers.append(Answer(one["name"], photo_url, [], one["error"]["detail"]))
        else:
            answers.append(
                Answer(
                    one["name"],
                    photo_url,
                    list(one["probabilities"].items())[:TOP],
                    None,
                    one.get("sure"),
                )
            )
    return answers


def _encode_photo(data: bytes | bytearray | memoryview) -> str | None:
    """Return a picture as a data URL for an `img`, where browsers run no scripts in it."""
    kind = next(
        (kind for begin, kind in _PICTURES.items() if bytes(data[: len(begin)]) == begin), None
    )
    if kind is None or len(data) > THUMB_BYTES:
        return None
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _render_form(
    request: Request,
    model: ModelOut,
    version: str,
    number: int,
    heads: list[int],
    *,
    answers: list[Answer] | None = None,
    wrong: str | None = None,
    task: int | None = None,
    status: int = 200,
) -> Response:
    context = {"model": model, "version": version, "number": number, "heads": heads, "task": task}
    return render_page(
        request, "predict.html", {**context, "answers": answers, "wrong": wrong}, status
    )
