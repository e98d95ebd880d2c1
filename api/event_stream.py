"""Server-sent events of a job, or of all models of an owner.

A stream can be resumed after any event with `Last-Event-ID`. It ends after a final event, after ten
minutes, when the server stops, or when its key is revoked or expires. The client sees the reason
when it reconnects.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header
from starlette.requests import Request
from starlette.responses import StreamingResponse

from api.authentication.access import Authenticator
from api.server.stopping import StopFlag
from core.errors import Invalid, NotAuthenticated, NotFound, Unavailable

EVENT_STREAM = "text/event-stream"
LIFE_S = 600.0
LOOK_S = 0.5
KEEP_ALIVE_S = 15.0
PAGE = 200
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="Go on after this event")
]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a server-sent event stream: id, type and data."""

    id: int
    type: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FoundStreamEvents:
    """The events found after an id, and if more may follow at once or never.

    Attributes:
        events: those to send to the client.
        last: the last id that was examined.
        more: there may be more events: look again at once.
        over: no events will follow these.
    """

    events: Sequence[StreamEvent]
    last: int
    more: bool
    over: bool


def build_event_stream_response(
    request: Request, look: Callable[[int], Awaitable[FoundStreamEvents]], after: int
) -> StreamingResponse:
    """Return a server-sent event stream of the events with ids above `after`, found by calling
    `look`.

    Args:
        look: returns the events after an id. Raises NotFound when there is nothing left to follow,
            and Unavailable in an outage.
        after: id of the last event that the client has received; 0: none.
    """
    return StreamingResponse(
        _iterate_stream_events(request, look, after),
        media_type=EVENT_STREAM,
        # nginx would hold events back in its buffer until there are enough of them.
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def parse_last_event_id_header(text: str | None) -> int:
    """Return the id in a `Last-Event-ID` header; 0 without one.

    Raises:
        Invalid: it is not a number.
    """
    if not text:
        return 0
    # `isdigit` also accepts signs such as ², and a longer number may not fit 64 bits.
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Invalid(
            "Last-Event-ID is not an id of an event.",
            fields=[{"field": "Last-Event-ID", "message": "not a number"}],
        )
    return int(text)


async def _iterate_stream_events(
    request: Request, look: Callable[[int], Awaitable[FoundStreamEvents]], after: int
) -> AsyncIterator[bytes]:
    stopping: StopFlag = request.app.state.stopping
    access: Authenticator = request.app.state.access
    waited, lived = 0.0, 0.0
    # The id at once: a client that is cut before any event continues at the same place.
    yield b"retry: 1000\n\n" if not after else f"retry: 1000\nid: {after}\n\n".encode()
    while lived < LIFE_S and not stopping.is_stopping:
        # In an outage this empty result keeps the stream open: the client would only reconnect.
        batch = FoundStreamEvents((), after, False, False)
        try:
            await access.authenticate_request(
                request.scope
            )  # cached: reads the key about once a second
            batch = await look(after)
        # The key was revoked or the model deleted since the stream began.
        except (NotAuthenticated, NotFound):
            return
        except Unavailable:
            pass
        after = batch.last
        for event in batch.events:
            yield _encode_event(event)
            waited = 0.0
        if batch.more:
            continue
        if batch.over:
            return
        # Proxies close a connection on which nothing is sent for a while.
        if waited >= KEEP_ALIVE_S:
            yield b": alive\n\n"
            waited = 0.0
        # Ends early when the server stops, which an open stream would hold up.
        await stopping.wait_for_stop(LOOK_S)
        waited += LOOK_S
        lived += LOOK_S


def _encode_event(event: StreamEvent) -> bytes:
    text = json.dumps(event.data, separators=(",", ":"), ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.type}\ndata: {text}\n\n".encode()
