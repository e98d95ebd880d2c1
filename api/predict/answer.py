"""Stage 5 of predict: the response, which the client must read within the limits of a
request body.
"""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.predict.line import Place
from core.settings import Settings

PIECE_BYTES = 64 << 10
"""Bytes per piece of a response; at most this many are in the server's buffers."""


class HeldResponse(Response):
    """A JSON response that keeps its request's place until the client has read it or gives up.

    Args:
        place: released at the end, also after an error.
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
            self._place.leave()
