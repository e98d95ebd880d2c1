"""Events of all models of an owner, as pages or as one stream."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Query, Request, Response

from api.dependencies import Db, Page, Read
from api.description.documented_routes import make_tagged_api_router
from api.event_stream import (
    EVENT_STREAM,
    PAGE,
    FoundStreamEvents,
    LastEventId,
    StreamEvent,
    build_event_stream_response,
    parse_last_event_id_header,
)
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from core.contract.responses.owner_event import OWNER_EVENT_TYPES, OwnerEventOut, OwnerEventPage
from core.database.polling import OwnerEventFilter, PolledOwnerEventRow, PollingDatabaseReads
from core.database.session import Database
from core.requests.actor import Actor, find_model
from core.requests.pages import decode_page_cursor, encode_page_cursor
from core.requests.timestamps import format_rfc3339

router = make_tagged_api_router("events")

_ANY = "|".join(OWNER_EVENT_TYPES)
Types = Annotated[
    str | None,
    Query(pattern=rf"^({_ANY})(,({_ANY}))*$", description="Only these types, separated by commas"),
]


@dataclass(frozen=True)
class EventStreamFilters:
    """The model and the types of events that a request asks for; None: all."""

    model: str | None
    types: tuple[str, ...] | None


async def _gather_event_query_parameters(
    model: Annotated[str | None, Query(max_length=63, description="Id or name")] = None,
    type: Types = None,
) -> EventStreamFilters:
    return EventStreamFilters(model, None if type is None else tuple(type.split(",")))


@router.get(
    "/v1/events",
    summary="Events",
    response_model=OwnerEventPage,
    responses={
        200: {
            "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
            "description": "A page, or a stream of what happens from now on with `Accept: "
            "text/event-stream`",
        },
        **build_openapi_problem_responses(404),
    },
)
async def stream_owner_events(
    request: Request,
    actor: Read,
    db: Db,
    filters: Annotated[EventStreamFilters, Depends(_gather_event_query_parameters)],
    page: Page,
    last_event_id: LastEventId = None,
) -> Response:
    """List events of your jobs, versions and aliases, oldest first."""
    reads: PollingDatabaseReads = request.app.state.polling
    about = await to_thread.run_sync(_build_visible_event_filter, db, actor, filters.model)
    types, limit, cursor = filters.types, page.limit, page.cursor
    # An EventSource that reconnects repeats its URL's cursor, and adds the last id it got.
    after = max(
        0 if cursor is None else int(decode_page_cursor(cursor, int)),
        parse_last_event_id_header(last_event_id),
    )
    if EVENT_STREAM in request.headers.get("accept", ""):
        # A stream begins now, unless the client says where an earlier one ended.
        if cursor is None and not last_event_id:
            after = await reads.read_newest_owner_event_id(about)
        return build_event_stream_response(
            request, partial(_find_owner_stream_events_after, reads, about, types), after
        )
    # One row more than asked for shows whether another page follows.
    rows = await reads.read_owner_events(about, after, limit + 1, types)
    event_page: OwnerEventPage = {
        "items": [_owner_event_to_json(row) for row in rows[:limit]],
        "next_cursor": encode_page_cursor(rows[limit - 1].id) if len(rows) > limit else None,
    }
    return build_json_response(event_page)


def _build_visible_event_filter(db: Database, actor: Actor, model: str | None) -> OwnerEventFilter:
    """Return the selection of events that the caller may see. Raises NotFound."""
    if model is None:
        return OwnerEventFilter(owner_id=None if actor.is_admin else actor.owner_id)
    with db.read() as session:
        return OwnerEventFilter(model_id=find_model(session, actor, model).id)


async def _find_owner_stream_events_after(
    reads: PollingDatabaseReads, about: OwnerEventFilter, types: tuple[str, ...] | None, after: int
) -> FoundStreamEvents:
    rows = await reads.read_owner_events(about, after, PAGE, types)
    stream_events = [StreamEvent(row.id, row.type, _owner_event_to_json(row)) for row in rows]
    # An owner's events have no last one, so the stream ends by its time alone.
    return FoundStreamEvents(
        stream_events, rows[-1].id if rows else after, len(rows) == PAGE, False
    )


def _owner_event_to_json(row: PolledOwnerEventRow) -> OwnerEventOut:
    return {
        "id": row.id,
        "type": row.type,
        "model": row.model_id,
        "job": row.job_id,
        "at": format_rfc3339(row.at),
        "data": row.data,
    }
