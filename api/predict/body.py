"""Stage 2 of predict: the body, with limits on its size, rate and idle time.

The limits on idle time and rate are those of uploads. Its bytes count at the request's place, so a
slow client uses up its own places and bytes.
"""

import asyncio
from collections.abc import Callable

from starlette.types import Receive

from api.predict.line import Place
from core.errors import BodyTimeout, BodyTooLarge, BodyTruncated
from core.settings import Settings

HEAD_BYTES = 1024
"""Number of first bytes that show which kind of JSON a body is; a shorter body is read
completely.
"""
BoundOf = Callable[[bytes], int]
"""Function that returns a body's maximum size in bytes, given its first bytes."""


async def read_body(
    receive: Receive,
    place: Place,
    max_bytes: int,
    declared: int | None,
    settings: Settings,
    bound_of: BoundOf | None = None,
) -> bytearray:
    """Read a whole body; each byte is counted at the request's place when it arrives.

    Args:
        max_bytes: maximum size in bytes.
        declared: Content-Length, None for a chunked body.
        bound_of: returns a lower maximum, given the first `HEAD_BYTES`; its exceptions propagate.

    Raises:
        BodyTooLarge: the body is larger than allowed.
        BodyTruncated: the client disconnected, or sent another number of bytes than declared.
        BodyTimeout: no bytes arrived for `upload_idle_s`, or they arrive too slowly.
        TooManyRequests, Unavailable: there is no room for it now.
    """
    # A client that declares too much is refused before it sends it.
    _require_few(declared, max_bytes)
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
        place.count_bytes(len(chunk))
        body += chunk
        # Asked once: the first bytes decide the kind of the whole body.
        if bound_of is not None and (len(body) >= HEAD_BYTES or not more):
            max_bytes, bound_of = min(max_bytes, bound_of(bytes(body[:HEAD_BYTES]))), None
            _require_few(max(len(body), declared or 0), max_bytes)
        # Within the idle time, the rate of a short body says nothing.
        if more and now() - began > idle and len(body) < settings.upload_min_rate * (now() - began):
            raise BodyTimeout(f"The body comes at less than {settings.upload_min_rate} bytes/s.")
    if declared is not None and len(body) != declared:
        raise BodyTruncated(f"Content-Length says {declared} bytes, {len(body)} came.")
    return body


def _require_few(announced: int | None, max_bytes: int) -> None:
    """Raise BodyTooLarge for more bytes than a body may have."""
    if announced is not None and announced > max_bytes:
        raise BodyTooLarge(f"The body may have {max_bytes} bytes; this one has {announced}.")
