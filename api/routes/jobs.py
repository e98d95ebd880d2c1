"""Routes of jobs. Clients poll a job and its events, so these reads bypass the ORM."""

import time
from functools import partial
from typing import Annotated, Any, cast, get_args

from fastapi import Header, Query, Request, Response
from pydantic import JsonValue

from api.authentication.guard import mark_handler_for_direct_call
from api.dependencies import (
    LIMIT,
    Bell,
    Cursor,
    Db,
    Limit,
    ListPageQuery,
    Page,
    Read,
    Service,
    Write,
)
from api.description.documented_routes import make_tagged_api_router
from api.downloads import DOWNLOAD_HEADERS, build_file_response, build_openapi_download_responses
from api.event_stream import (
    EVENT_STREAM,
    PAGE,
    FoundStreamEvents,
    LastEventId,
    StreamEvent,
    build_event_stream_response,
    parse_last_event_id_header,
)
from api.json_responses import (
    build_json_response,
    build_queued_job_response,
    is_etag_in_if_none_match,
)
from api.problems import build_openapi_problem_responses
from api.schemas.common import JobPath
from api.schemas.jobs import Choice, Retry
from core.admission.admission import AdmissionLimits, NewJobLimits
from core.contract.responses.event import (
    EventOut,
    EventPage,
    EventType,
    LogData,
    LogLine,
    LogPage,
    MetricData,
    Point,
    PointPage,
    ProgressData,
)
from core.contract.responses.job import JobOut, JobPage, TrialsOut
from core.database.kinds import JobKind
from core.database.polling import PolledJobEventRow, PolledJobRow, PollingDatabaseReads
from core.database.states import JobAction, JobState
from core.errors import Invalid
from core.jobs import job_response, jobs
from core.jobs.anytime import get_or_build_best_state_download
from core.requests.actor import Actor
from core.requests.pages import DEFAULT_LIMIT, MAX_LIMIT, decode_page_cursor, encode_page_cursor
from core.requests.timestamps import format_rfc3339
from core.tasks import retries
from core.trials import listing, trial_selection

router = make_tagged_api_router("jobs")

ZIP = "application/zip"
EVENT_TYPES = get_args(EventType)
_TYPES = rf"^({'|'.join(EVENT_TYPES)})(,({'|'.join(EVENT_TYPES)}))*$"
RETRY_AFTER = {"Retry-After": "1"}
RESULT = "result"
"""Metric in which a job counts the correct predictions of one version on one task."""
_not_modified: dict[int | str, dict[str, JsonValue]] = {
    304: {"description": "Not modified since that ETag"}
}
_etag = {"ETag": {"schema": {"type": "string"}, "description": "Strong; changes with every change"}}

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match")]


@router.get(
    "/v1/jobs/{job}",
    summary="Read",
    response_model=JobOut,
    responses={200: {"headers": _etag}, **_not_modified},
)
@mark_handler_for_direct_call(reads_query=True)
async def read_job(
    request: Request, actor: Read, job: JobPath, if_none_match: IfNoneMatch = None
) -> Response:
    """Return one job; poll it with `If-None-Match`."""
    row = await _get_visible_job(request, actor, job)
    facts = await _find_reasons_for_job_delay(request, row)
    tag = job_response.build_job_etag(row, facts)
    # Clients poll this most of all, so it avoids building an object for its headers.
    for name, value in request.scope["headers"]:
        if name == b"if-none-match" and is_etag_in_if_none_match(value.decode("latin-1"), tag):
            return Response(status_code=304, headers={"ETag": tag})
    # Retry-After asks a client to poll again, which a finished job does not need.
    headers = {"ETag": tag} if row.finished_at is not None else {"ETag": tag, **RETRY_AFTER}
    encoded_jobs: job_response.EncodedJobCache = request.app.state.encoded_jobs
    return Response(
        encoded_jobs.encode_job_response_cached(row, facts, tag), 200, headers, "application/json"
    )


@router.get("/v1/jobs", response_model=JobPage, responses=build_openapi_problem_responses(404))
def list_jobs(
    actor: Read,
    db: Db,
    page: Page,
    state: JobState | None = None,
    kind: JobKind | None = None,
    model: Annotated[str | None, Query(max_length=63, description="Id or name")] = None,
) -> Response:
    """List your jobs, newest first."""
    state_name = None if state is None else str(state)
    job_page = jobs.list_jobs(
        db,
        actor,
        jobs.JobFilter(state_name, model, kind),
        limit=page.limit,
        cursor=page.cursor,
    )
    return build_json_response(job_page)


def _build_job_action_handler(action: JobAction) -> Any:
    def apply_action(job: JobPath, actor: Write, db: Db, bell: Bell) -> Response:
        job_json = jobs.apply_job_action(db, actor, job, action)
        if action is not JobAction.PAUSE:
            # wakes a worker for the model's next job, or for this one again
            bell.notify_workers(job_json["id"])
        return build_json_response(job_json)

    apply_action.__doc__ = _DOCS[action]
    return apply_action


_DOCS = {
    JobAction.CANCEL: "End the job; the model's next job follows. It can be retried while its data is "
    "kept.",
    JobAction.PAUSE: "Stop the job and keep its place: later jobs of the model wait.",
    JobAction.RESUME: "Let a paused job go on, from its newest snapshot.",
}
for _action in _DOCS:
    router.add_api_route(
        f"/v1/jobs/{{job}}/{_action}",
        _build_job_action_handler(_action),
        methods=["POST"],
        response_model=JobOut,
        responses=build_openapi_problem_responses(409),
        name=str(_action),
    )


@router.post(
    "/v1/jobs/{job}/retry",
    summary="Retry",
    status_code=202,
    response_model=JobOut,
    responses=build_openapi_problem_responses(409, 429),
)
def retry_job(job: JobPath, actor: Write, service: Service, body: Retry | None = None) -> Response:
    """Learn the task again in its place: a failed or cancelled job again, a held version by a new
    job."""
    override = None if body is None else body.recipe
    job_json, fresh = retries.retry_job(
        service.db,
        service.catalogue(),
        actor,
        job,
        override,
        NewJobLimits(
            service.settings.max_open_jobs, AdmissionLimits.from_settings(service.settings)
        ),
    )
    if fresh:
        service.bell.notify_workers(job_json["id"])
    return build_queued_job_response(job_json)


@router.get("/v1/jobs/{job}/trials", summary="Trials", response_model=TrialsOut)
def read_job_trials(job: JobPath, actor: Read, db: Db) -> Response:
    """Return the trials of a job: recipe, state and figures of each, and why it lost."""
    return build_json_response(listing.read_job_trials(db, actor, job))


@router.post(
    "/v1/jobs/{job}/choose",
    summary="Choose",
    response_model=TrialsOut,
    responses=build_openapi_problem_responses(409),
)
def choose_trial(job: JobPath, body: Choice, actor: Write, db: Db, bell: Bell) -> Response:
    """Choose the trial of a waiting job whose result becomes the version."""
    trials, fresh = trial_selection.choose_trial(db, actor, job, body.trial)
    if fresh:
        bell.notify_workers(job)
    return build_json_response(trials)


@router.get(
    "/v1/jobs/{job}/events",
    summary="Events",
    response_model=EventPage,
    responses={
        200: {
            "headers": _etag,
            "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
            "description": "A page, or a stream of events with `Accept: text/event-stream`",
        },
        204: {"description": "A stream of a job that is over, with nothing after `Last-Event-ID`"},
        **_not_modified,
    },
)
@mark_handler_for_direct_call(reads_query=True)
async def stream_job_events(
    request: Request,
    actor: Read,
    job: JobPath,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
    type: Annotated[
        str | None, Query(pattern=_TYPES, description="Only these types, separated by commas")
    ] = None,
    if_none_match: IfNoneMatch = None,
    last_event_id: LastEventId = None,
) -> Response:
    """List the events of a job, oldest first."""
    # The guard calls this handler itself, and its declared parameters only document the route.
    query = request.query_params
    types = _parse_event_types(query.get("type"))
    after = _decode_event_cursor(query.get("cursor"))
    accepted_types = request.headers.get("accept", "")
    if EVENT_STREAM in accepted_types:
        row = await _get_visible_job(request, actor, job)
        # An EventSource that reconnects repeats its URL's cursor, and adds the last id it got.
        after = max(after, parse_last_event_id_header(request.headers.get("last-event-id")))
        if row.finished_at is not None and not await _get_polling_reads(request).list_job_events(
            row.id, after, 1, None
        ):
            return Response(status_code=204)  # 204 keeps an EventSource from reconnecting
        return build_event_stream_response(
            request,
            partial(_find_job_stream_events_after, _get_polling_reads(request), row.id, types),
            after,
        )
    event_limit = _parse_page_limit(query.get("limit"))
    row = await _get_visible_job(request, actor, job)
    rows = await _get_polling_reads(request).list_job_events(row.id, after, event_limit + 1, types)
    page: EventPage = {
        "items": [job_event_to_json(e) for e in rows[:event_limit]],
        "next_cursor": encode_page_cursor(rows[event_limit - 1].id)
        if len(rows) > event_limit
        else None,
    }
    last = rows[-1].id if rows else after
    # Events never change, so the last id and the count identify the page.
    tag = f'"{row.id[4:]}-{last}-{len(rows)}"'
    if is_etag_in_if_none_match(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers={"ETag": tag})
    return build_json_response(page, 200, {"ETag": tag})


@router.get("/v1/jobs/{job}/logs", summary="Logs", response_model=LogPage)
async def list_job_logs(request: Request, job: JobPath, actor: Read, page: Page) -> Response:
    """List the log lines of a job, oldest first."""
    rows, after = await _read_job_event_page(request, actor, job, page, ("log",))
    log_events = [(event, cast(LogData, event.data)) for event in rows]
    items: list[LogLine] = [
        {
            "id": event.id,
            "at": format_rfc3339(event.at),
            "level": log_data["level"],
            "message": log_data["message"],
        }
        for event, log_data in log_events
    ]
    log_page: LogPage = {"items": items, "next_cursor": after}
    return build_json_response(log_page)


@router.get("/v1/jobs/{job}/metrics", summary="Metrics", response_model=PointPage)
async def list_job_metrics(request: Request, job: JobPath, actor: Read, page: Page) -> Response:
    """List the measurements taken while learning, oldest first: loss, accuracy, ADP and the
    method's own."""
    row = await _get_visible_job(request, actor, job)
    points: list[Point] = []
    after, more = _decode_event_cursor(page.cursor), True
    # An event may hold no measurement: read on until the page is full.
    while more and len(points) <= page.limit:
        rows = await _get_polling_reads(request).list_job_events(
            row.id, after, MAX_LIMIT, ("metric", "progress")
        )
        points += [point for point in map(_build_metric_point, rows) if point is not None]
        more = len(rows) == MAX_LIMIT
        after = rows[-1].id if rows else after
    following = (
        encode_page_cursor(points[page.limit - 1]["id"]) if len(points) > page.limit else None
    )
    point_page: PointPage = {"items": points[: page.limit], "next_cursor": following}
    return build_json_response(point_page)


async def download_anytime(
    request: Request, job: JobPath, actor: Read, service: Service
) -> Response:
    """Download the best validated state of an unfinished job, in the format of a version's
    download."""
    db, store, spool = service.db, service.store, service.settings.make_folder("spool")
    file = await service.export_work.run_work_in_turn(
        actor.owner_id,
        lambda: get_or_build_best_state_download(db, store, service.catalogue(), actor, job, spool),
    )
    return build_file_response(request, file, file.sha256, file.size, ZIP, file.filename)


router.get(
    "/v1/jobs/{job}/anytime/download",
    response_class=Response,
    responses={**build_openapi_download_responses(ZIP), **build_openapi_problem_responses(409)},
    openapi_extra={"parameters": DOWNLOAD_HEADERS},
)(download_anytime)
# Unlike Starlette, FastAPI answers HEAD only at routes that declare it.
router.head(
    "/v1/jobs/{job}/anytime/download",
    response_class=Response,
    responses={**build_openapi_download_responses(ZIP), **build_openapi_problem_responses(409)},
    openapi_extra={"parameters": DOWNLOAD_HEADERS},
    operation_id="head_download_anytime",
)(download_anytime)


def _build_metric_point(event: PolledJobEventRow) -> Point | None:
    """Return a measurement; None for progress without a loss (decoding, a change of phase)."""
    if event.type == "metric":
        metric = cast(MetricData, event.data)
        step, name, value, data = (
            metric.get("step"),
            metric["name"],
            metric.get("value"),
            metric.get("data"),
        )
        if name == RESULT and data is not None:
            name = "accuracy"
            # A task without held-out images has a total of 0.
            value = data["correct"] / data["total"] if data.get("total") else None
    else:
        progress = cast(ProgressData, event.data)
        step, name, value, data = progress.get("step"), "loss", progress.get("loss"), None
        if value is None:
            return None
    at = format_rfc3339(event.at)
    return {"id": event.id, "at": at, "name": name, "step": step, "value": value, "data": data}


def job_event_to_json(event: PolledJobEventRow) -> EventOut:
    """Return an event in the API's JSON form."""
    return {"id": event.id, "type": event.type, "at": format_rfc3339(event.at), "data": event.data}


async def _find_job_stream_events_after(
    reads: PollingDatabaseReads, job_id: str, types: tuple[str, ...] | None, after: int
) -> FoundStreamEvents:
    """Read the events of a job after an id; the stream ends once the job has finished."""
    # Read the job first: if it finished after the page was read, its last events could be missed.
    job = await reads.find_job(job_id)
    if job is None:
        raise jobs.make_missing_job_error(job_id)
    # All types: the position then moves past events that the client does not ask for.
    rows = await reads.list_job_events(job_id, after, PAGE, None)
    new_events = [
        StreamEvent(row.id, row.type, job_event_to_json(row))
        for row in rows
        if types is None or row.type in types
    ]
    return FoundStreamEvents(
        new_events, rows[-1].id if rows else after, len(rows) == PAGE, job.finished_at is not None
    )


async def _find_reasons_for_job_delay(
    request: Request, row: PolledJobRow
) -> job_response.JobResponseContext:
    """Find what delays a job, such as a missing GPU, base or task, for the job's response."""
    device = None
    if row.wants_gpus is not None:
        device = job_response.find_missing_cuda_devices(
            row, row.wants_gpus, row.device_seen, time.time()
        )
    base = job_response.get_awaited_base_fetching_job(row)
    if row.stop_task is None or base is not None:
        return job_response.JobResponseContext(row.outcome, base=base, device=device)
    stop_fields = await _get_polling_reads(request).read_task_state_if_stopping_lineage(
        row.model_id, row.stop_task
    )
    stop = (
        None
        if stop_fields is None
        else job_response.LineageStoppingTask(row.stop_task, *stop_fields)
    )
    return job_response.JobResponseContext(row.outcome, stop, device=device)


async def _get_visible_job(request: Request, actor: Actor, job_id: str) -> PolledJobRow:
    row = await _get_polling_reads(request).find_job(job_id)
    # Hidden jobs look like missing ones, so that ids of other owners cannot be guessed.
    if row is None or not actor.can_see(row.owner_id):
        raise jobs.make_missing_job_error(job_id)
    return row


def _get_polling_reads(request: Request) -> PollingDatabaseReads:
    reads: PollingDatabaseReads = request.app.state.polling
    return reads


async def _read_job_event_page(
    request: Request, actor: Actor, job: str, page: ListPageQuery, types: tuple[str, ...]
) -> tuple[list[PolledJobEventRow], str | None]:
    row = await _get_visible_job(request, actor, job)
    limit, after = page.limit, _decode_event_cursor(page.cursor)
    rows = await _get_polling_reads(request).list_job_events(row.id, after, limit + 1, types)
    return rows[:limit], encode_page_cursor(rows[limit - 1].id) if len(rows) > limit else None


def _decode_event_cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    value = decode_page_cursor(cursor, int)
    assert isinstance(value, int)
    return value


def _parse_page_limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_LIMIT):
        raise Invalid(
            f"limit must be 1 to {MAX_LIMIT}.",
            fields=[{"field": "limit", "message": f"1 to {MAX_LIMIT}"}],
        )
    return int(text)


def _parse_event_types(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    types = tuple(text.split(","))
    unknown = [name for name in types if name not in EVENT_TYPES]
    if unknown:
        raise Invalid(
            f"Unknown type {unknown[0][:40]!r}; there are {', '.join(EVENT_TYPES)}.",
            fields=[{"field": "type", "message": "unknown"}],
        )
    return types
