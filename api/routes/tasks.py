"""Routes of tasks: submit a batch as a stream, and the history."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import structlog
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Response
from pydantic import JsonValue

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
from api.problems import responses
from api.schemas.common import FreeName, ModelPath
from api.schemas.jobs import Retry
from api.schemas.tasks import Settle
from api.strict_json import parse
from api.uploads.body import Received
from api.uploads.head import Terms
from api.uploads.upload import Upload, upload_by
from core.errors import InvalidRecipe
from core.ingest.inspect import inspect
from core.ingest.limits import Limits
from core.ingest.readers.registry import UPLOAD_TYPES
from core.ingest.sniff import sniff
from core.protocol.answers.job import JobOut
from core.protocol.answers.task import Accepted, TaskOut, TaskPage
from core.protocol.patch import RecipePatch
from core.protocol.report import DuplicatesPolicy, Report
from core.recipe.stored import MAX_RECIPE_BYTES
from core.requests import idempotency, settling, submission, tasks, validations
from core.requests.admission import Admission
from core.requests.submission import Batch, Submission

router = APIRouter(tags=["tasks"])
log = structlog.get_logger(__name__)

ARCHIVE = Terms(
    "POST /v1/models/{model}/tasks", headers=("perennial-recipe",), fields=("recipe",), look=sniff
)
_inspections = CapacityLimiter(2)
"""Directories read at once in one process: each takes up to 300 bytes per entry and a core."""

Number = Annotated[int, Path(ge=1, lt=2**31, description="Number of the task")]
TaskName = Annotated[FreeName, Query(description="Name of the batch")]
_binary: JsonValue = {"schema": {"type": "string", "format": "binary"}}
_upload: dict[str, JsonValue] = {
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


@dataclass(frozen=True)
class Asked:
    """What a request asks for its batch. recipe: the override in the header, as JSON."""

    model: str
    name: str | None
    validate: Literal["only", "full"] | None
    duplicates_policy: DuplicatesPolicy
    recipe: str | None


async def _asked(
    model: ModelPath,
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
    perennial_recipe: Annotated[
        str | None, Header(alias="Perennial-Recipe", description="A recipe override as JSON")
    ] = None,
) -> Asked:
    return Asked(model, name, validate, duplicates_policy, perennial_recipe)


@router.post(
    "/v1/models/{model}/tasks",
    status_code=202,
    response_model=Accepted | JobOut,
    responses={
        200: {"model": Report, "description": "`?validate=only`"},
        202: {"description": "The task and its job; with `?validate=full` the job alone"},
        **responses(409, 429),
    },
    openapi_extra=_upload,
)
async def submit(
    asked: Annotated[Asked, Depends(_asked)],
    actor: Write,
    upload: Annotated[Upload, Depends(upload_by(ARCHIVE))],
    store: ObjectStore,
    bell: Bell,
    catalogue: CatalogueOf,
) -> Response:
    """Submit a batch: it becomes the model's next task."""
    db, settings = upload.db, upload.settings
    head = upload.head(Limits.of(settings).body_bytes)
    override = None if asked.recipe is None else _recipe(asked.recipe.encode("latin-1"))
    is_look = asked.validate == "only"
    if is_look:
        upload = replace(upload, key=None)  # it changes nothing, so it is done again

    def precheck(length: int | None) -> None:
        room = 0 if is_look else settings.max_owner_bytes  # nothing of a mere look stays
        jobs = settings.max_open_jobs
        submission.admit(db, actor, asked.model, max_open_jobs=jobs, max_bytes=room, length=length)

    async def commit(file: Received, repeat: idempotency.Request | None) -> Response:
        batch = await _batch(file, asked, override, Limits.of(settings))
        known = await to_thread.run_sync(catalogue)
        bounds = settings.max_owner_bytes, settings.max_open_jobs, Admission.of(settings)
        sent = Submission(db, store, known, actor, asked.model, batch, repeat, *bounds)
        # Each runs to its end in a thread: a client that leaves now has submitted its batch.
        if is_look:
            return json_answer(await to_thread.run_sync(sent.preview))
        if asked.validate == "full":
            check, replay = await to_thread.run_sync(validations.begin, sent)
            return _accepted(check, check, replay, bell)
        answer, replay = await to_thread.run_sync(sent.submit)
        return _accepted(answer, answer["job"], replay, bell)

    with upload.place():
        return await upload.answer(head, precheck, commit)


async def _batch(file: Received, asked: Asked, override: RecipePatch | None, limits: Limits) -> Batch:
    """The batch in a received file.

    Raises:
        InvalidRecipe: it comes twice, or is none.
        ArchiveInvalid, ArchiveHostile, ArchiveTooLarge, LabelsInvalid: see `core.ingest.inspect`.
    """
    field = file.fields.get("recipe")
    if field is not None:
        if override is not None:
            raise InvalidRecipe(
                "Send the recipe in the header Perennial-Recipe or in the field recipe, not both."
            )
        override = _recipe(field.encode())
    found = await to_thread.run_sync(inspect, file.path, file.kind, limits, limiter=_inspections)
    return Batch(
        file.path, file.sha256, file.size, found, asked.name, override or {}, asked.duplicates_policy
    )


def _accepted(answer: Accepted | JobOut, job: JobOut, replay: bool, bell: Bell) -> Response:
    """202 with the task and its job, or with the job of a check alone; a new job wakes a worker."""
    if not replay:
        said = "check accepted" if job is answer else "task accepted"
        log.info(said, model=job["model"], job=job["id"], task=job["task"])
        bell.ring(job["id"])
    return json_answer(answer, 202, {"Location": f"/v1/jobs/{job['id']}", "Retry-After": "1"}, replay=replay)


def _recipe(text: bytes) -> RecipePatch:
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


@router.post("/v1/models/{model}/tasks/{n}/continue", response_model=TaskOut, responses=responses(409))
def go_on(
    model: ModelPath, n: Number, actor: Write, db: Db, bell: Bell, body: Settle | None = None
) -> Response:
    """Let the line go on without a task whose version is held; the version stays, the task is skipped."""
    return _settled(settling.go_on(db, actor, model, n, None if body is None else body.reason), bell)


@router.post("/v1/models/{model}/tasks/{n}/discard", response_model=TaskOut, responses=responses(409))
def discard(
    model: ModelPath, n: Number, actor: Write, db: Db, bell: Bell, body: Settle | None = None
) -> Response:
    """Give a task up: no version must have been taught it, and nothing waits for it."""
    return _settled(settling.discard(db, actor, model, n, None if body is None else body.reason), bell)


@router.post(
    "/v1/models/{model}/tasks/{n}/relearn",
    status_code=202,
    response_model=JobOut,
    responses=responses(409, 429),
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


def _settled(found: tuple[TaskOut, str | None], bell: Bell) -> Response:
    answer, job = found
    if job is not None:
        bell.ring(job)  # it may be its turn now
    return json_answer(answer)


@router.delete("/v1/models/{model}/tasks/{n}/data", status_code=204, responses=responses(409))
def delete_data(
    model: ModelPath, n: Number, actor: Write, db: Db, store: ObjectStore, blobs: BlobStore
) -> Response:
    """Remove the batch's images; what was learned stays."""
    tasks.delete_data(db, store, blobs, actor, model, n)
    return Response(status_code=204)
