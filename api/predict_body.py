"""Both ends of a prediction's exchange: its body, which must keep coming, and its answer, which must be taken.

Both are bounded by the same time without a byte and the same slowest rate as uploads, and hold the request's place
for as long as they take: who sends or reads slowly uses up places and bytes of his own.
"""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.predict_line import Place
from core.errors import BodyTimeout, BodyTooLarge, BodyTruncated
from core.settings import Settings

PIECE_BYTES = 64 << 10
"""An answer is handed to the server in pieces of so many bytes: as many are in its hands at most."""


async def read_body(
    receive: Receive, place: Place, most: int, declared: int | None, settings: Settings
) -> bytearray:
    """The whole body; each byte is counted at its place when it comes.

    Args:
        most: bytes that it may have.
        declared: its Content-Length, None for a chunked one.

    Raises:
        BodyTooLarge, BodyTruncated, BodyTimeout: as they say.
        TooManyRequests, Unavailable: there is no room for it now.
    """
    if declared is not None and declared > most:
        raise BodyTooLarge(f"The body may have {most} bytes; this one has {declared}.")
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
        if len(body) + len(chunk) > most:
            raise BodyTooLarge(f"The body may have {most} bytes.")
        place.take(len(chunk))
        body += chunk
        if more and now() - began > idle and len(body) < settings.upload_min_rate * (now() - began):
            raise BodyTimeout(f"The body comes at less than {settings.upload_min_rate} bytes/s.")
    if declared is not None and len(body) != declared:
        raise BodyTruncated(f"Content-Length says {declared} bytes, {len(body)} came.")
    return body


class HeldResponse(Response):
    """A JSON answer that keeps its request's place until the client has taken it, or is given up.

    Args:
        place: left at the end, however that comes.
    """

    media_type = "application/json"

    def __init__(self, content: bytes, place: Place, settings: Settings) -> None:
        super().__init__(content)
        self._place = place
        self._piece_s = settings.upload_idle_s + PIECE_BYTES / settings.upload_min_rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._piece_s) as timer:
                now = asyncio.get_running_loop().time
                await send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                # The last piece is empty: the server waits until it can take it, so all others are on their way.
                for at in range(0, len(self.body) + PIECE_BYTES, PIECE_BYTES):
                    timer.reschedule(now() + self._piece_s)
                    piece = self.body[at : at + PIECE_BYTES]
                    await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})
        except TimeoutError:
            raise ClientDisconnect from None
        finally:
            self._place.leave()
