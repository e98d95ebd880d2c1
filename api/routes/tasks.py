"""Routes of tasks: submit a batch as a stream, and the history."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import structlog
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Header, Path, Query, Request, Response

from api.answers import json_answer, queued
from api.dependencies import (
    LIMIT,
    Bell,
    BlobStore,
    CatalogueOf,
    Config,
    Cursor,
    Db,
    Limit,
    ObjectStore,
    Read,
    Write,
)
from api.in_flight import InFlight, replayed, same_body
from api.problems import answers
from api.routes.models import IdempotencyKey
from api.schemas.batches import Report
from api.schemas.common import FreeName, Json, ModelPath
from api.schemas.jobs import JobOut, Retry
from api.schemas.tasks import Accepted, Settle, TaskOut, TaskPage
from api.strict_json import parse
from api.uploads import Received, head, slot, spooled
from core.db.session import Database
from core.errors import InvalidRecipe
from core.ingest.equal_images import DuplicatesPolicy
from core.ingest.inspect import inspect
from core.ingest.limits import Limits
from core.ingest.readers.registry import UPLOAD_TYPES
from core.ingest.sniff import SNIFF_BYTES, sniff
from core.recipe.stored import MAX_RECIPE_BYTES
from core.requests import idempotency, settling, tasks, validations
from core.requests.actor import Actor
from core.requests.admission import Admission

router = APIRouter(tags=["tasks"])
log = structlog.get_logger(__name__)

ROUTE = "POST /v1/models/{model}/tasks"
_inspections = CapacityLimiter(2)
"""Directories read at once in one process: each takes up to 300 bytes per entry and a core."""

Number = Annotated[int, Path(ge=1, lt=2**31, description="Number of the task")]
TaskName = Annotated[FreeName, Query(description="Name of the batch")]
_binary = {"schema": {"type": "string", "format": "binary"}}
_upload: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The archive: as the whole body, or as the one `file` of a form.",
        "content": {
            "application/octet-stream": _binary,
            **dict.fromkeys(UPLOAD_TYPES, _binary),
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "recipe": {"type": "string", "description": "A recipe override as JSON"},
                    },
                    "required": ["file"],
                    "additionalProperties": False,
                }
            },
        },
    }
}


@router.post(
    "/v1/models/{model}/tasks",
    status_code=202,
    response_model=Accepted | JobOut,
    responses={
        200: {"model": Report, "description": "`?validate=only`"},
        202: {"description": "The task and its job; with `?validate=full` the job alone"},
        **answers(409, 429),
    },
    openapi_extra=_upload,
)
async def submit(
    request: Request,
    model: ModelPath,
    actor: Write,
    db: Db,
    store: ObjectStore,
    settings: Config,
    bell: Bell,
    catalogue: CatalogueOf,
    name: TaskName | None = None,
    validate: Annotated[
        Literal["only", "full"] | None,
        Query(
            description="Check the batch, submit nothing. `only`: names and sizes, at once; `full`: a job decodes it"
        ),
    ] = None,
    duplicates_policy: Annotated[
        DuplicatesPolicy,
        Query(description="Equal images of one class: keep all of them, or drop all but the first"),
    ] = "keep",
    idempotency_key: IdempotencyKey = None,
    perennial_recipe: Annotated[
        str | None, Header(alias="Perennial-Recipe", description="A recipe override as JSON")
    ] = None,
    content_digest: Annotated[
        str | None, Header(alias="Content-Digest", description="sha-256=:BASE64: of the body; verified")
    ] = None,
) -> Response:
    """Submit a batch: it becomes the model's next task."""
    del content_digest  # read with the rest of the head
    limits = Limits.of(settings)
    known = head(request, settings, limits.body_bytes, multipart=True)
    override = None if perennial_recipe is None else _recipe(perennial_recipe.encode("latin-1"))
    key = idempotency.checked(idempotency_key) if validate != "only" else None

    def admit() -> None:
        most = settings.max_owner_bytes if validate != "only" else 0  # nothing of a mere look stays
        tasks.admit(
            db, actor, model, max_open_jobs=settings.max_open_jobs, max_bytes=most, length=known.length
        )

    async def accept(batch: tasks.Batch, repeat: idempotency.Request | None) -> tuple[Json, bool]:
        use_case = tasks.submit if validate is None else validations.begin
        return await _accept(use_case, db, store, settings, catalogue, actor, model, batch, repeat)

    with slot(request, actor.owner_id, settings.max_uploads):
        if key is None:
            await to_thread.run_sync(admit)
            received = spooled(
                request, known, settings, limits.body_bytes, fields=("recipe",), early=_sniffed
            )
            async with received as upload:
                batch = await _batch(upload, name, override, limits, duplicates_policy)
                if validate == "only":
                    report = await to_thread.run_sync(
                        tasks.check, db, catalogue(), actor, model, batch, Admission.of(settings)
                    )
                    return json_answer(report)
                answer, replay = await accept(batch, None)
        else:
            outer = idempotency.fingerprint(model, request.url.query, perennial_recipe)
            async with InFlight(db, actor, ROUTE, key, outer) as mark:
                if mark.replay is not None and same_body(mark.replay, outer, known):
                    return replayed(mark.replay)
                if mark.replay is None:  # an answer that was given already needs no room
                    await to_thread.run_sync(admit)
                received = spooled(
                    request, known, settings, limits.body_bytes, fields=("recipe",), early=_sniffed
                )
                async with received as upload:
                    repeat = idempotency.Request(
                        ROUTE,
                        key,
                        idempotency.fingerprint(outer, upload.fields.get("recipe"), upload.sha256),
                        outer,
                        upload.body_sha256,
                        mark.token,
                    )
                    if mark.replay is not None:
                        if mark.replay.fingerprint != repeat.fingerprint:
                            raise idempotency.mismatch()
                        return replayed(mark.replay)
                    batch = await _batch(upload, name, override, limits, duplicates_policy)
                    answer, replay = await accept(batch, repeat)
                    mark.answered = True
    job = answer["job"] if validate is None else answer
    if not replay:
        said = "task accepted" if validate is None else "check accepted"
        log.info(said, model=job["model"], job=job["id"], task=job["task"])
        bell.ring(job["id"])
    headers = {"Location": f"/v1/jobs/{job['id']}", "Retry-After": "1"}
    return json_answer(answer, 202, headers, replay=replay)


async def _accept(
    use_case: Callable[..., tuple[Json, bool]],
    db: Database,
    store: ObjectStore,
    settings: Config,
    catalogue: CatalogueOf,
    actor: Actor,
    model: str,
    batch: tasks.Batch,
    repeat: idempotency.Request | None,
) -> tuple[Json, bool]:
    def work() -> tuple[Json, bool]:
        most = settings.max_owner_bytes
        jobs = settings.max_open_jobs
        return use_case(
            db,
            store,
            catalogue(),
            actor,
            model,
            batch,
            repeat,
            max_bytes=most,
            max_open_jobs=jobs,
            admission=Admission.of(settings),
        )

    # Shielded by running to its end in a thread: a client that leaves now has submitted its batch.
    return await to_thread.run_sync(work)


async def _batch(
    upload: Received,
    name: str | None,
    override: Json | None,
    limits: Limits,
    duplicates: DuplicatesPolicy,
) -> tasks.Batch:
    field = upload.fields.get("recipe")
    if field is not None:
        if override is not None:
            raise InvalidRecipe(
                "Send the recipe in the header Perennial-Recipe or in the field recipe, not both."
            )
        override = _recipe(field.encode())
    media_type = await to_thread.run_sync(_media_type, upload)
    directory = await to_thread.run_sync(inspect, upload.path, media_type, limits, limiter=_inspections)
    return tasks.Batch(upload.path, upload.sha256, upload.size, directory, name, override or {}, duplicates)


def _media_type(upload: Received) -> str:
    with upload.path.open("rb") as file:
        return sniff(file.read(SNIFF_BYTES), upload.media_type)


def _sniffed(first: bytes, declared: str | None) -> None:
    sniff(first, declared)


def _recipe(text: bytes) -> Json:
    if len(text) > MAX_RECIPE_BYTES:
        raise InvalidRecipe(f"A recipe may have {MAX_RECIPE_BYTES} bytes.")
    value = parse(text, "The recipe")
    if not isinstance(value, dict):
        raise InvalidRecipe('A recipe override is a JSON object such as {"epochs": 5}.')
    return value


@router.get("/v1/models/{model}/tasks", response_model=TaskPage)
def list_tasks(
    model: ModelPath, actor: Read, db: Db, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """The model's batches, in order."""
    return json_answer(tasks.list_tasks(db, actor, model, limit, cursor))


@router.get("/v1/models/{model}/tasks/{n}", response_model=TaskOut)
def read(model: ModelPath, n: Number, actor: Read, db: Db) -> Response:
    """One batch: digest, classes, counts, report, job, version and accuracy."""
    return json_answer(tasks.read(db, actor, model, n))


@router.post("/v1/models/{model}/tasks/{n}/continue", response_model=TaskOut, responses=answers(409))
def go_on(
    model: ModelPath, n: Number, actor: Write, db: Db, bell: Bell, body: Settle | None = None
) -> Response:
    """Let the line go on without a task whose version is held; the version stays, the task is skipped."""
    return _settled(settling.go_on(db, actor, model, n, None if body is None else body.reason), bell)


@router.post("/v1/models/{model}/tasks/{n}/discard", response_model=TaskOut, responses=answers(409))
def discard(
    model: ModelPath, n: Number, actor: Write, db: Db, bell: Bell, body: Settle | None = None
) -> Response:
    """Give a task up: no version must have been taught it, and nothing waits for it."""
    return _settled(settling.discard(db, actor, model, n, None if body is None else body.reason), bell)


@router.post(
    "/v1/models/{model}/tasks/{n}/relearn",
    status_code=202,
    response_model=JobOut,
    responses=answers(409, 429),
)
def relearn(
    model: ModelPath,
    n: Number,
    actor: Write,
    db: Db,
    bell: Bell,
    catalogue: CatalogueOf,
    settings: Config,
    body: Retry | None = None,
) -> Response:
    """Learn a task again that the line lacks, before all waiting ones."""
    override = None if body is None else body.recipe
    most = settings.max_open_jobs
    answer, fresh = settling.relearn(
        db, catalogue(), actor, model, n, override, max_open_jobs=most, admission=Admission.of(settings)
    )
    if fresh:
        bell.ring(answer["id"])
    return queued(answer)


def _settled(found: tuple[Json, str | None], bell: Bell) -> Response:
    answer, job = found
    if job is not None:
        bell.ring(job)  # it may be its turn now
    return json_answer(answer)


@router.delete("/v1/models/{model}/tasks/{n}/data", status_code=204, responses=answers(409))
def delete_data(
    model: ModelPath, n: Number, actor: Write, db: Db, store: ObjectStore, blobs: BlobStore
) -> Response:
    """Remove the batch's images; what was learned stays."""
    tasks.delete_data(db, store, blobs, actor, model, n)
    return Response(status_code=204)
