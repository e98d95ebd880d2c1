"""A key that ends, ends what it has begun: a look at it while a body comes and while an answer goes.

Without it a key that is revoked or expires in the middle of a transfer would have the rest of it. Every `LOOK_S`
seconds of a transfer the key is read again. In mid-upload the answer is then a 401, and nothing of this body is kept;
in mid-download the connection is cut, since the head of the answer has gone. What a request changes is checked once
more in its own transaction (`core.requests.actor.require_valid_key`).
"""

import asyncio

from starlette.types import Message, Receive, Scope, Send

from api.access import Access
from core.errors import Unavailable

LOOK_S = 2.0
"""Seconds of a transfer between two looks at its key."""


class KeyWatch:
    """Looks at the key of one request. For one event loop.

    Args:
        access: who may come in.
        scope: of the request.
    """

    def __init__(self, access: Access, scope: Scope) -> None:
        self._access = access
        self._scope = scope
        self._now = asyncio.get_running_loop().time
        self._next = self._now() + LOOK_S

    async def look(self) -> None:
        """Look at the key, if the last look was long ago. In an outage of the database the transfer goes on.

        Raises:
            NotAuthenticated: the key or the session has ended.
        """
        if self._now() < self._next:
            return
        self._next = self._now() + LOOK_S
        try:
            await self._access.actor(self._scope, fresh=True)
        except Unavailable:
            return

    def receiving(self, receive: Receive) -> Receive:
        """A `receive` that looks before it hands over a piece of a body."""

        async def watched() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                await self.look()
            return message

        return watched

    def sending(self, send: Send) -> Send:
        """A `send` that looks before it passes on a piece of an answer that goes on."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.body" and message.get("more_body", False):
                await self.look()
            await send(message)

        return watched
