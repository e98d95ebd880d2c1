"""Bodies of predict: the request's (stage 2) and the response's (stage 5), with limits.

The limits on a request's idle time and rate are those of uploads. Its bytes count at the request's
place, so a slow client uses up its own places and bytes. The client must read the response within
the same limits.
"""

import asyncio
from collections.abc import Callable

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.predict.concurrency import PredictConcurrencySlot
from core.errors import BodyTimeout, BodyTooLarge, BodyTruncated
from core.settings import Settings

HEAD_BYTES = 1024
"""Number of first bytes that show which kind of JSON a body is; a shorter body is read
completely.
"""
BoundOf = Callable[[bytes], int]
"""Function that returns a body's maximum size in bytes, given its first bytes."""


async def read_predict_body_within_limits(
    receive: Receive,
    slot: PredictConcurrencySlot,
    max_bytes: int,
    declared: int | None,
    settings: Settings,
    get_body_limit: BoundOf | None = None,
) -> bytearray:
    """Read the body of a predict request, counting each received byte against the memory limits.

    Args:
        max_bytes: maximum size in bytes.
        declared: Content-Length, None for a chunked body.
        get_body_limit: returns a lower maximum, given the first `HEAD_BYTES`; its exceptions
            propagate.

    Raises:
        BodyTooLarge: the body is larger than allowed.
        BodyTruncated: the client disconnected, or sent another number of bytes than declared.
        BodyTimeout: no bytes arrived for `upload_idle_s`, or they arrive too slowly.
        TooManyRequests, Unavailable: there is no room for it now.
    """
    # A client that declares too much is refused before it sends it.
    _refuse_too_long_predict_body(declared, max_bytes)
    body, more = bytearray(), True
    now = asyncio.get_running_loop().time
    idle, began = settings.upload_idle_s, now()
    while more:
        try:
            async with asyncio.timeout(idle):
                message = await receive()
        except TimeoutError:
            raise BodyTimeout(f"Nothing of the body came for {idle:g} s.") from None
        if message["type"] == "http.disconnect":
            raise BodyTruncated("The connection was closed before the body was complete.")
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) + len(chunk) > max_bytes:
            raise BodyTooLarge(f"The body may have {max_bytes} bytes.")
        slot.reserve_request_bytes(len(chunk))
        body += chunk
        # Asked once: the first bytes decide the kind of the whole body.
        if get_body_limit is not None and (len(body) >= HEAD_BYTES or not more):
            max_bytes, get_body_limit = (
                min(max_bytes, get_body_limit(bytes(body[:HEAD_BYTES]))),
                None,
            )
            _refuse_too_long_predict_body(max(len(body), declared or 0), max_bytes)
        # Within the idle time, the rate of a short body says nothing.
        if more and now() - began > idle and len(body) < settings.upload_min_rate * (now() - began):
            raise BodyTimeout(f"The body comes at less than {settings.upload_min_rate} bytes/s.")
    if declared is not None and len(body) != declared:
        raise BodyTruncated(f"Content-Length says {declared} bytes, {len(body)} came.")
    return body


def _refuse_too_long_predict_body(announced: int | None, max_bytes: int) -> None:
    """Raise BodyTooLarge if the declared length of a predict request exceeds the limit."""
    if announced is not None and announced > max_bytes:
        raise BodyTooLarge(f"The body may have {max_bytes} bytes; this one has {announced}.")


PIECE_BYTES = 64 << 10
"""Bytes per piece of a response; at most this many are in the server's buffers."""


class SlotHoldingJsonResponse(Response):
    """A JSON response that holds its request's place in the predict queue until it has been sent.

    Args:
        place: released at the end, also after an error.
    """

    media_type = "application/json"

    def __init__(self, content: bytes, place: PredictConcurrencySlot, settings: Settings) -> None:
        super().__init__(content)
        self._place = place
        self._piece_s = settings.upload_idle_s + PIECE_BYTES / settings.upload_min_rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._piece_s) as timer:
                now = asyncio.get_running_loop().time
                await send(
                    {
                        "type": "http.response.start",
                        "status": self.status_code,
                        "headers": self.raw_headers,
                    }
                )
                # The last piece is empty: the server accepts it only when it can send more, so all
                # earlier pieces are on their way.
                for at in range(0, len(self.body) + PIECE_BYTES, PIECE_BYTES):
                    timer.reschedule(now() + self._piece_s)
                    piece = self.body[at : at + PIECE_BYTES]
                    await send(
                        {"type": "http.response.body", "body": piece, "more_body": bool(piece)}
                    )
        except TimeoutError:
            raise ClientDisconnect from None
        finally:
            self._place.release_predict_slot()
