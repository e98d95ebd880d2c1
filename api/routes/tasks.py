"""Routes for tasks: submit a batch as a stream, and list the history."""

import hashlib
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import structlog
from anyio import to_thread
from fastapi import Depends, Header, Path, Query, Response
from fastapi.exceptions import RequestValidationError
from pydantic import JsonValue, ValidationError

from api.authentication.guard import MAX_JSON_BYTES, read_small_body
from api.dependencies import (
    Bell,
    BlobStore,
    CatalogueOf,
    Db,
    ObjectStore,
    Page,
    Read,
    Service,
    Write,
)
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response, build_queued_job_response
from api.limits.fair_share import (
    reacquire_request_slot_after_wait,
    release_request_slot_before_wait,
)
from api.problems import build_openapi_problem_responses
from api.schemas.common import FreeName, ModelPath
from api.schemas.jobs import Retry
from api.schemas.tasks import MAX_SECONDS_MEANING, MAX_TRIAL_S, FromUpload, Settle
from api.strict_json import parse_strict_json
from api.uploads.assembled_upload import join_upload_pieces_in_spool
from api.uploads.batch_request import (
    BatchRequestOptions,
    BatchSubmissionRequest,
    build_requested_trials,
    parse_batch_reading_options,
    parse_recipe_override,
    parse_trials_query,
)
from api.uploads.body import ReceivedUpload, require_announced_digest
from api.uploads.repeat import UploadIdempotency
from api.uploads.request_checks import UploadRequestHead, UploadRouteRules
from api.uploads.upload import UploadReception, make_upload_reception_dependency
from core.admission.admission import AdmissionLimits, NewJobLimits
from core.contract.jobs.trial import Choose
from core.contract.patch import RecipePatch
from core.contract.reports.report import ConflictsPolicy, DuplicatesPolicy, Report
from core.contract.responses.job import JobOut
from core.contract.responses.task import Accepted, TaskOut, TaskPage
from core.errors import Invalid, InvalidRecipe
from core.ingest.limits import ArchiveLimits
from core.ingest.readers.registry import UPLOAD_TYPES
from core.ingest.sniff import detect_upload_format
from core.requests import idempotency
from core.requests.actor import require_visible_model
from core.tasks import held_out_batch, task_decisions, tasks, validations
from core.tasks.submitted_batch import BatchSubmissionResponse
from core.trials.plan import TrialsRequest
from core.uploads import complete_uploads
from core.uploads.complete_uploads import CompleteUpload

router = make_tagged_api_router("tasks")
log = structlog.get_logger(__name__)

ARCHIVE = UploadRouteRules(
    "POST /v1/models/{model}/tasks",
    headers=("perennial-recipe",),
    fields=("recipe",),
    look=detect_upload_format,
)
JSON = "application/json"

Number = Annotated[int, Path(ge=1, lt=2**31, description="Number of the task")]
TaskName = Annotated[FreeName, Query(description="Name of the batch")]
_binary: JsonValue = {"schema": {"type": "string", "format": "binary"}}
_upload: dict[str, JsonValue] = {
    "requestBody": {
        "required": True,
        "description": "The archive: as the whole body, as the one `file` of a form, or by the id "
        "of a complete upload.",
        "content": {
            "application/octet-stream": _binary,
            **dict.fromkeys(UPLOAD_TYPES, _binary),
            JSON: {"schema": {"$ref": "#/components/schemas/FromUpload"}},
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


async def _gather_batch_query_parameters(
    model: ModelPath,
    name: TaskName | None = None,
    validate: Annotated[
        Literal["only", "full"] | None,
        Query(
            description="Check the batch, submit nothing. `only`: names and sizes, at once; "
            "`full`: a job decodes it"
        ),
    ] = None,
    duplicates_policy: Annotated[
        DuplicatesPolicy,
        Query(description="Equal images of one class: keep all of them, or drop all but the first"),
    ] = "keep",
    conflicts: Annotated[
        ConflictsPolicy,
        Query(
            description="Equal pixels under two labels, in the batch or in one that the model was "
            "taught: reject the batch, or keep them and learn it as it is"
        ),
    ] = "reject",
    layout: Annotated[
        Literal["auto", "folders"],
        Query(description="`folders`: folder names are the classes, whatever lies beside them"),
    ] = "auto",
    one_class: Annotated[
        bool, Query(description="All images are of one class, whatever their folder is called")
    ] = False,
    classes: Annotated[
        str | None,
        Query(
            description="The level of folders that names the classes, as `level:1`, below wrapping "
            "folders and parts"
        ),
    ] = None,
    max_bad: Annotated[
        str | None,
        Query(
            description="The largest share of bad entries of a label table, as `0.05` or `5%`",
            max_length=20,
        ),
    ] = None,
    image: Annotated[str | None, Query(description="The column of images of a label table")] = None,
    label: Annotated[str | None, Query(description="The column of labels of a label table")] = None,
    table: Annotated[
        str | None, Query(description="The file that is the label table, where several may be")
    ] = None,
    names_pattern: Annotated[
        str | None,
        Query(description="Labels stand in the names of files, as `{label}_{number}` says"),
    ] = None,
    names: Annotated[
        str | None, Query(description="The encoding of names in a zip, such as `gbk`")
    ] = None,
    again: Annotated[
        bool,
        Query(description="Learn the batch also where the model has a task of the same content"),
    ] = False,
    trials: Annotated[
        str | None,
        Query(
            description="Learn the batch by several recipes and publish the best result: `auto` "
            "for recipes that fit, or 2 to 8 recipe overrides as a JSON list"
        ),
    ] = None,
    choose: Annotated[
        Choose | None,
        Query(description="Decision between trials: by their scores (best), or by a person"),
    ] = None,
    max_seconds: Annotated[
        float | None, Query(gt=0, le=MAX_TRIAL_S, description=MAX_SECONDS_MEANING)
    ] = None,
    perennial_recipe: Annotated[
        str | None, Header(alias="Perennial-Recipe", description="A recipe override as JSON")
    ] = None,
) -> BatchRequestOptions:
    texts = {
        **{"classes": classes, "max_bad": max_bad, "image": image, "label": label},
        **{"table": table, "names_pattern": names_pattern, "names": names},
    }
    options = replace(
        parse_batch_reading_options({name: text for name, text in texts.items() if text}),
        layout=layout,
        one_class=one_class,
    )
    return BatchRequestOptions(
        *(model, name, validate, duplicates_policy, conflicts, perennial_recipe, options, again),
        trials=trials,
        choose=choose,
        max_seconds=max_seconds,
    )


@router.post(
    "/v1/models/{model}/tasks",
    name="submit",
    status_code=202,
    response_model=Accepted | JobOut,
    responses={
        200: {
            "model": Report | Accepted,
            "description": "`?validate=only`; or the model has a task of the same content, and "
            "`repeats` says which",
        },
        202: {"description": "The task and its job; with `?validate=full` the job alone"},
        **build_openapi_problem_responses(409, 429),
    },
    openapi_extra=_upload,
)
async def submit_batch(
    batch_request: Annotated[BatchRequestOptions, Depends(_gather_batch_query_parameters)],
    actor: Write,
    upload: Annotated[UploadReception, Depends(make_upload_reception_dependency(ARCHIVE))],
    store: ObjectStore,
    bell: Bell,
    catalogue: CatalogueOf,
) -> Response:
    """Send a batch: it becomes the model's next task, unless the model has one of the same
    content.
    """
    head = upload.check_request_head(ArchiveLimits.from_settings(upload.settings).body_bytes)
    # Starlette decodes headers as Latin-1: this restores the bytes that were sent.
    override = (
        None
        if batch_request.recipe is None
        else parse_recipe_override(batch_request.recipe.encode("latin-1"))
    )
    if batch_request.validate == "only":
        upload = replace(
            upload, key=None
        )  # It changes nothing, so a repetition is processed again.
    trials = parse_trials_query(batch_request)
    order = BatchSubmissionRequest(
        batch_request, override, actor, upload, store, bell, catalogue, trials
    )
    with upload.hold_upload_slot():
        if head.media_type == JSON:
            return await _check_or_submit_uploaded_batch(order, head)
        return await upload.receive_and_commit_upload(
            head,
            order.check_batch_room_and_read_former_names,
            partial(_validate_or_submit_file, order),
        )


async def _validate_or_submit_file(
    order: BatchSubmissionRequest,
    file: ReceivedUpload,
    repeat: idempotency.IdempotentRequestIdentity | None,
    complete_upload: CompleteUpload | None = None,
) -> Response:
    """Validate or submit a received batch file; `complete_upload`: the resumable upload that it came from."""
    batch_submission = await order.build_submission(file, repeat, complete_upload)
    # Each runs to its end in a thread: a client that disconnects now has submitted its batch.
    if order.request.validate == "only":
        return build_json_response(await to_thread.run_sync(batch_submission.preview_submission))
    if order.request.validate == "full":
        validation = await to_thread.run_sync(validations.queue_batch_validation, batch_submission)
        return _notify_workers_and_build_accepted_response(
            validation, validation.response, order.bell
        )
    result = await to_thread.run_sync(
        held_out_batch.submit_batch_or_measure_adopted_classifier, batch_submission
    )
    return _notify_workers_and_build_accepted_response(result, result.response["job"], order.bell)


async def _check_or_submit_uploaded_batch(
    order: BatchSubmissionRequest, head: UploadRequestHead
) -> Response:
    """Validate or submit a batch that was uploaded in pieces; only a submit consumes the upload.

    Raises:
        NotFound, UploadIncomplete: see `core.uploads.complete_uploads.require_complete_upload`.
    """
    upload, actor = order.upload, order.actor
    db, settings = upload.db, upload.settings
    await to_thread.run_sync(require_visible_model, db, actor, order.request.model)
    release_request_slot_before_wait()
    body = await read_small_body(upload.request.receive, MAX_JSON_BYTES, head.length)
    await reacquire_request_slot_after_wait()
    sha256 = hashlib.sha256(body).hexdigest()
    require_announced_digest(head, sha256)
    fields = _parse_upload_reference(body)
    batch_request, override = (
        _choose_batch_name_from_query_or_body(order.request, fields),
        _choose_recipe_from_header_or_body(order.override, fields),
    )
    trials = _choose_trials_from_query_or_body(order.trials, fields)
    order = replace(order, request=batch_request, override=override, trials=trials, is_here=True)
    async with UploadIdempotency(db, actor, ARCHIVE, upload.request, upload.key) as repeat:
        request = repeat.build_request_with_body_fingerprint(sha256, sha256)
        # The first request may have consumed the upload.
        if repeat.earlier is not None:
            return repeat.get_stored_response_if_body_matches(request)
        await to_thread.run_sync(order.check_batch_room_and_read_former_names, None)
        complete_upload = await to_thread.run_sync(
            complete_uploads.require_complete_upload, db, actor, fields.upload
        )
        async with join_upload_pieces_in_spool(
            db, order.store, actor, complete_upload, detect_upload_format, settings
        ) as file:
            response = await _validate_or_submit_file(order, file, request, complete_upload)
            repeat.is_done = True
            return response


def _parse_upload_reference(body: bytes) -> FromUpload:
    """Parse the JSON body that names an upload to submit. Raises RequestValidationError."""
    value = parse_strict_json(body)
    try:
        return FromUpload.model_validate(value)
    except ValidationError as error:
        wrong = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(wrong, body=value) from None


def _choose_batch_name_from_query_or_body(
    batch_request: BatchRequestOptions, body: FromUpload
) -> BatchRequestOptions:
    if body.name is not None and batch_request.name is not None:
        raise Invalid("Send the name in the query or in the body, not in both.")
    return batch_request if body.name is None else replace(batch_request, name=body.name)


def _choose_recipe_from_header_or_body(
    override: RecipePatch | None, body: FromUpload
) -> RecipePatch | None:
    if body.recipe is not None and override is not None:
        raise InvalidRecipe(
            "Send the recipe in the header Perennial-Recipe or in the body, not in both."
        )
    return override if body.recipe is None else body.recipe


def _choose_trials_from_query_or_body(
    trials: TrialsRequest | None, body: FromUpload
) -> TrialsRequest | None:
    requested_trials = build_requested_trials(body.trials, body.choose, body.max_seconds)
    if requested_trials is None:
        return trials
    if trials is not None:
        raise Invalid("Send trials in the query or in the body, not in both.")
    return requested_trials


def _notify_workers_and_build_accepted_response(
    done: BatchSubmissionResponse[Any], job: JobOut, bell: Bell
) -> Response:
    """Return the accepted task or validation with its job; a new job wakes a worker."""
    if done.is_new and not done.is_replay:
        event = "check accepted" if job is done.response else "task accepted"
        log.info(event, model=job["model"], job=job["id"], task=job["task"])
        bell.notify_workers(job["id"])
    return build_json_response(done.response, done.status, done.headers, replay=done.is_replay)


@router.get("/v1/models/{model}/tasks", response_model=TaskPage)
def list_tasks(model: ModelPath, actor: Read, db: Db, page: Page) -> Response:
    """List the model's batches, in order."""
    return build_json_response(tasks.list_tasks(db, actor, model, page.limit, page.cursor))


@router.get("/v1/models/{model}/tasks/{n}", summary="Read", response_model=TaskOut)
def read_task(model: ModelPath, n: Number, actor: Read, db: Db) -> Response:
    """Return one batch: digest, classes, counts, report, job, version and accuracy."""
    return build_json_response(tasks.read_task(db, actor, model, n))


@router.post(
    "/v1/models/{model}/tasks/{n}/continue",
    summary="Go On",
    response_model=TaskOut,
    responses=build_openapi_problem_responses(409),
)
def continue_without_task(
    model: ModelPath, n: Number, actor: Write, db: Db, bell: Bell, body: Settle | None = None
) -> Response:
    """Continue the lineage without a task whose version is held: the version stays, the task is
    skipped.
    """
    return _notify_workers_and_build_task_response(
        task_decisions.skip_held_task_and_continue_lineage(
            db, actor, model, n, None if body is None else body.reason
        ),
        bell,
    )


@router.post(
    "/v1/models/{model}/tasks/{n}/discard",
    summary="Discard",
    response_model=TaskOut,
    responses=build_openapi_problem_responses(409),
)
def discard_task(
    model: ModelPath, n: Number, actor: Write, db: Db, bell: Bell, body: Settle | None = None
) -> Response:
    """Discard a task that no version has learned, so that nothing waits for it."""
    return _notify_workers_and_build_task_response(
        task_decisions.discard_task(db, actor, model, n, None if body is None else body.reason),
        bell,
    )


@router.post(
    "/v1/models/{model}/tasks/{n}/relearn",
    summary="Relearn",
    status_code=202,
    response_model=JobOut,
    responses=build_openapi_problem_responses(409, 429),
)
def relearn_task(
    model: ModelPath,
    n: Number,
    actor: Write,
    service: Service,
    body: Retry | None = None,
) -> Response:
    """Learn again a task that the lineage lacks, before all waiting ones."""
    override = None if body is None else body.recipe
    job_response, fresh = task_decisions.relearn_task(
        service.load_use_case_resources(),
        actor,
        model,
        n,
        override,
        NewJobLimits(
            service.settings.max_open_jobs, AdmissionLimits.from_settings(service.settings)
        ),
    )
    if fresh:
        service.bell.notify_workers(job_response["id"])
    return build_queued_job_response(job_response)


def _notify_workers_and_build_task_response(
    settled: tuple[TaskOut, str | None], bell: Bell
) -> Response:
    task_response, job = settled
    if job is not None:
        bell.notify_workers(job)  # its turn may have come
    return build_json_response(task_response)


@router.delete(
    "/v1/models/{model}/tasks/{n}/data",
    status_code=204,
    responses=build_openapi_problem_responses(409),
)
def delete_data(
    model: ModelPath, n: Number, actor: Write, db: Db, store: ObjectStore, blobs: BlobStore
) -> Response:
    """Remove the batch's images; the learned versions stay."""
    tasks.delete_task_data(db, store, blobs, actor, model, n)
    return Response(status_code=204)
