"""A job's events as they happen (server-sent events).

A stream can be resumed after any event by `Last-Event-ID`; it ends by itself after the event that made the
job terminal, after ten minutes, when the server stops, or when its key is revoked or expires (which the
client learns when it comes again).
"""

import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse

from api.access import Access
from api.stopping import Stopping
from core.db.polling import EventRow, PollingReads
from core.db.states import TERMINAL
from core.errors import NotAuthenticated, Unavailable
from core.requests.times import rfc3339

EVENT_STREAM = "text/event-stream"
LIFE_S = 600.0
LOOK_S = 0.5
KEEP_ALIVE_S = 15.0
PAGE = 200
_TERMINAL = frozenset(str(s) for s in TERMINAL)


def follow(request: Request, job_id: str, after: int, types: tuple[str, ...] | None) -> StreamingResponse:
    """The stream of a job's events with ids above `after`."""
    return StreamingResponse(
        _events(request, job_id, after, types),
        media_type=EVENT_STREAM,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(
    request: Request, job_id: str, after: int, types: tuple[str, ...] | None
) -> AsyncIterator[bytes]:
    reads: PollingReads = request.app.state.polling
    stopping: Stopping = request.app.state.stopping
    access: Access = request.app.state.access
    waited, lived = 0.0, 0.0
    yield b"retry: 1000\n\n"
    while lived < LIFE_S and not stopping.is_set:
        try:
            await access.actor(request.scope)  # remembered: a look at the key every few seconds
            # The job is read first: were it terminal only after the page, its last events could be missed.
            job = await reads.job(job_id)
            rows = await reads.events(job_id, after, PAGE, None)
        except NotAuthenticated:
            return
        except Unavailable:
            job, rows = None, []  # an outage: keep the stream, the client would only come again
        else:
            if job is None:
                return
        for row in rows:
            after = row.id
            if types is None or row.type in types:
                yield _encoded(row)
                waited = 0.0
        if len(rows) == PAGE:
            continue
        if job is not None and job.state in _TERMINAL:
            return
        if waited >= KEEP_ALIVE_S:
            yield b": alive\n\n"
            waited = 0.0
        await stopping.wait(LOOK_S)
        waited += LOOK_S
        lived += LOOK_S


def _encoded(row: EventRow) -> bytes:
    data = {"id": row.id, "type": row.type, "at": rfc3339(row.at), "data": row.data}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return f"id: {row.id}\nevent: {row.type}\ndata: {text}\n\n".encode()
