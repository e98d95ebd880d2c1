"""Events as they happen (server-sent events), of a job or of all models of an owner.

A stream can be resumed after any event by `Last-Event-ID`; it ends by itself after the event that nothing
follows, after ten minutes, when the server stops, or when its key is revoked or expires (which the client
learns when it comes again).
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header
from starlette.requests import Request
from starlette.responses import StreamingResponse

from api.access import Access
from api.stopping import Stopping
from core.errors import Invalid, NotAuthenticated, NotFound, Unavailable

EVENT_STREAM = "text/event-stream"
LIFE_S = 600.0
LOOK_S = 0.5
KEEP_ALIVE_S = 15.0
PAGE = 200
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Go on after this event")]


@dataclass(frozen=True, slots=True)
class Told:
    """An event as its stream tells it."""

    id: int
    type: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Look:
    """What was found after an id.

    Attributes:
        told: what the client is told of it.
        last: the last id that was looked at.
        more: look again at once.
        over: nothing will follow what is told now.
    """

    told: Sequence[Told]
    last: int
    more: bool
    over: bool


def follow(request: Request, look: Callable[[int], Awaitable[Look]], after: int) -> StreamingResponse:
    """The stream of what `look` finds with ids above `after`.

    look: raises NotFound where there is nothing to follow any more, and Unavailable in an outage.
    """
    return StreamingResponse(
        _events(request, look, after),
        media_type=EVENT_STREAM,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def event_id(text: str | None) -> int:
    """The id in a header `Last-Event-ID`; 0 without one.

    Raises:
        Invalid: it is no number.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Invalid(
            "Last-Event-ID is not an id of an event.",
            fields=[{"field": "Last-Event-ID", "message": "not a number"}],
        )
    return int(text)


async def _events(
    request: Request, look: Callable[[int], Awaitable[Look]], after: int
) -> AsyncIterator[bytes]:
    stopping: Stopping = request.app.state.stopping
    access: Access = request.app.state.access
    waited, lived = 0.0, 0.0
    yield b"retry: 1000\n\n" if not after else f"retry: 1000\nid: {after}\n\n".encode()
    while lived < LIFE_S and not stopping.is_set:
        seen = Look(
            (), after, False, False
        )  # in an outage: keep the stream, the client would only come again
        try:
            await access.actor(request.scope)  # remembered: a look at the key every few seconds
            seen = await look(after)
        except (NotAuthenticated, NotFound):
            return
        except Unavailable:
            pass
        after = seen.last
        for event in seen.told:
            yield _encoded(event)
            waited = 0.0
        if seen.more:
            continue
        if seen.over:
            return
        if waited >= KEEP_ALIVE_S:
            yield b": alive\n\n"
            waited = 0.0
        await stopping.wait(LOOK_S)
        waited += LOOK_S
        lived += LOOK_S


def _encoded(event: Told) -> bytes:
    text = json.dumps(event.data, separators=(",", ":"), ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.type}\ndata: {text}\n\n".encode()
