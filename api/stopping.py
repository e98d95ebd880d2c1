"""Knows when the server is asked to stop, so that endless answers can end by themselves.

The server waits for open answers before it tells the application; an event stream would hold it up. So
the signal is noticed here too, and handed on to the server's own handler.
"""

import asyncio
import signal
import threading
from types import FrameType


class Stopping:
    """A flag that rises with SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def listen(self) -> None:
        """Start to notice signals; call it on the event loop, after the server has set its handlers."""
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if callable(before) and before is not signal.default_int_handler:
                self._chain(number, before)

    def _chain(self, number: signal.Signals, before: "signal._HANDLER") -> None:
        def handler(received: int, frame: FrameType | None) -> None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.set)
            if callable(before):
                before(received, frame)

        signal.signal(number, handler)

    def set(self) -> None:
        """Say that the server stops."""
        if self._event is not None:
            self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether the server stops."""
        return self._event is not None and self._event.is_set()

    async def wait(self, seconds: float) -> bool:
        """Wait at most so long; return whether the server stops."""
        assert self._event is not None
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
