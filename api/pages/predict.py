"""`/ui/models/{model}/versions/{version}/predict`: photos in, labels and probabilities out; and downloads of
a version."""

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
from api.pages.render import page, root_of
from api.predict.asking import Asked, ask
from api.schemas.common import ModelPath
from api.schemas.versions import VersionPath
from core.errors import PerennialError
from core.protocol.answers.model import ModelOut
from core.protocol.answers.predict import PredictOut
from core.requests import export_jobs, exports, models, tasks, versions

router = APIRouter(include_in_schema=False)

PATH = "/ui/models/{model}/versions/{version}/predict"
TOP = 5
"""Labels shown of each photo."""
THUMB_BYTES = 2 << 20
"""A photo of at most so many bytes is shown beside its answer."""
THUMBS = 12
TASKS = 50
_PICTURES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
Head = Annotated[int | None, Query(ge=1, lt=2**31, description="Task scenario: whose head answers")]


@dataclass(frozen=True)
class Answer:
    """A photo's answer. `photo`: its address for an `img`, None: it is not shown."""

    name: str | None
    photo: str | None
    labels: list[tuple[str, float]]
    error: str | None
    sure: bool | None = None


@router.get(PATH)
def show(
    request: Request, model: ModelPath, version: VersionPath, actor: Read, db: Db, catalogue: CatalogueOf
) -> Response:
    """The form."""
    found = models.read(db, catalogue(), actor, model)
    number = versions.get_version(db, actor, found["id"], version)["number"]
    heads = [one["number"] for one in tasks.list_tasks(db, actor, found["id"], TASKS, None)["items"]]
    return _page(request, found, version, number, heads)


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
    """The labels of the photos that were chosen."""
    session.require_own_origin(request.scope)
    found = await to_thread.run_sync(lambda: models.read(db, catalogue(), actor, model))
    told = await to_thread.run_sync(versions.get_version, db, actor, found["id"], version)
    heads = [
        one["number"]
        for one in (await to_thread.run_sync(tasks.list_tasks, db, actor, found["id"], TASKS, None))["items"]
    ]
    asked = Asked(actor, found["id"], version, task, TOP)
    try:
        said, images, place = await ask(request, asked, db, blobs, settings)
    except PerennialError as error:
        return _page(request, found, version, told["number"], heads, wrong=error.detail, status=error.status)
    try:
        answers = await to_thread.run_sync(_answers, said, images.body)
    finally:
        place.leave()
    return _page(request, found, version, told["number"], heads, answers=answers, task=task)


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
    """The download of a version in a format that a job makes: the file, or the job while it is made."""
    await forms.form(request)
    root = root_of(request.scope)
    most = settings.max_open_jobs

    def asked() -> str:
        if exports.stored(db, blobs, actor, model, version, format=format) is not None:
            return f"{root}/v1/models/{model}/versions/{version}/download?format={format}"
        job, fresh = export_jobs.ask(db, actor, model, version, format=format, max_open_jobs=most)
        if fresh:
            bell.ring(job["id"])
        return f"{root}/ui/jobs/{job['id']}"

    return RedirectResponse(await to_thread.run_sync(asked), 303)


def _answers(said: bytes, photos: object) -> list[Answer]:
    told: PredictOut = json.loads(said)
    found = []
    for index, (one, photo) in enumerate(zip(told["predictions"], photos, strict=True)):  # type: ignore[call-overload]
        shown = _photo(photo) if index < THUMBS else None
        if "error" in one:
            found.append(Answer(one["name"], shown, [], one["error"]["detail"]))
        else:
            found.append(
                Answer(one["name"], shown, list(one["probabilities"].items())[:TOP], None, one.get("sure"))
            )
    return found


def _photo(data: bytes | bytearray | memoryview) -> str | None:
    """A picture as the address of an `img`; a browser decodes it, and nothing in it runs."""
    kind = next((kind for begin, kind in _PICTURES.items() if bytes(data[: len(begin)]) == begin), None)
    if kind is None or len(data) > THUMB_BYTES:
        return None
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _page(
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
    told = {"model": model, "version": version, "number": number, "heads": heads, "task": task}
    return page(request, "predict.html", {**told, "answers": answers, "wrong": wrong}, status)
