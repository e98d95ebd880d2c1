"""Repeated authentication during a transfer: a key that ends also ends its uploads and downloads.

Otherwise a key that is revoked or expires during a transfer could still complete it. The key is
read again every `LOOK_S` seconds of a transfer. An upload is then answered with 401 and nothing of
its body is kept. A download is cut off, since the head of its response has been sent. Requests that
change something check the key once more in their own transaction
(`core.requests.actor.require_caller_key_still_valid`).
"""

import asyncio

from starlette.types import Message, Receive, Scope, Send

from api.authentication.access import Authenticator
from core.errors import Unavailable

LOOK_S = 2.0
"""Seconds of a transfer between two checks of its key."""


class KeyValidityWatch:
    """Rechecks the API key of one request during a long transfer. For one event loop.

    Args:
        access: authenticates requests.
        scope: ASGI scope of the request.
    """

    def __init__(self, access: Authenticator, scope: Scope) -> None:
        self._access = access
        self._scope = scope
        self._now = asyncio.get_running_loop().time
        self._next = self._now() + LOOK_S

    async def check_key_if_due(self) -> None:
        """Check that the request's API key is still valid, if the last check is `LOOK_S` seconds
        ago.

        In an outage of the database the transfer continues.

        Raises:
            NotAuthenticated: the key or the session has ended.
        """
        if self._now() < self._next:
            return
        # Set first, so that an outage does not cause a check for every piece.
        self._next = self._now() + LOOK_S
        try:
            await self._access.authenticate_request(self._scope, fresh=True)
        # An outage revokes no key, so the transfer goes on until the next check.
        except Unavailable:
            return

    def wrap_receive_with_check(self, receive: Receive) -> Receive:
        """Wrap an ASGI `receive` so that the API key is rechecked before each piece of the body."""

        async def receive_and_check_key() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                await self.check_key_if_due()
            return message

        return receive_and_check_key

    def wrap_send_with_check(self, send: Send) -> Send:
        """Wrap an ASGI `send` so that the API key is rechecked before each piece of the response."""

        async def send_after_key_check(message: Message) -> None:
            if message["type"] == "http.response.body" and message.get("more_body", False):
                await self.check_key_if_due()
            await send(message)

        return send_after_key_check
