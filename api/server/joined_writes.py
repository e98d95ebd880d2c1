"""A transport that sends the head of a response together with the first piece of its body.

uvloop hands each write to the system at once. Two writes for each response would cost a second
system call here, and often wake the client twice.
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1."


class HeadJoiningTransport:
    """A transport that holds the head of a response until the next write, within one turn of the
    event loop.

    Everything but `write`, `write_eof` and `close` is the wrapped transport's.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes after those that were held back; hold them back if they begin a response."""
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(_HEAD):
            self._held = data
            # The body may come much later, as of a stream of events.
            self._loop.call_soon(self._send_held_bytes)
            return
        self._transport.write(data)

    def write_eof(self) -> None:
        """Send what was held back, then the end of the stream."""
        self._send_held_bytes()
        self._transport.write_eof()

    def close(self) -> None:
        """Send what was held back, then close the wrapped transport."""
        self._send_held_bytes()
        self._transport.close()

    def _send_held_bytes(self) -> None:
        if self._held:
            data, self._held = self._held, b""
            self._transport.write(data)
