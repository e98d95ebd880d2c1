"""A transport that sends the head of a response together with the first piece of its body.

uvloop hands each write to the system at once. Two writes for each response would cost a second
system call here, and often wake the client twice.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

_HEAD = b"HTTP/1."

Piece = bytes | bytearray | memoryview


class HeadJoiningTransport:
    """A transport that holds the head of a response until the next write, or until the event loop's
    next turn.

    All that is not defined here is the wrapped transport's.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: Piece) -> None:
        """Send bytes after those that were held back; hold them back if they begin a response."""
        if self._held:
            data, self._held = self._held + data, b""
        elif bytes(data[: len(_HEAD)]) == _HEAD:
            self._held = bytes(data)
            # The body may come much later, as of a stream of events.
            self._loop.call_soon(self._send_held_bytes)
            return
        self._transport.write(data)

    def writelines(self, list_of_data: Iterable[Piece]) -> None:
        """Send several pieces as one write."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Send what was held back, then the end of the stream."""
        self._send_held_bytes()
        self._transport.write_eof()

    def close(self) -> None:
        """Send what was held back, then close the wrapped transport."""
        self._send_held_bytes()
        self._transport.close()

    def _send_held_bytes(self) -> None:
        data, self._held = self._held, b""
        # A connection that was lost meanwhile refuses further bytes.
        if data and not self._transport.is_closing():
            self._transport.write(data)
