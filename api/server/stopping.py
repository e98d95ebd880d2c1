"""Notification that the server is stopping, so that endless responses can end in time.

The server waits for open responses before it notifies the application, so an event stream would
delay the shutdown. The signal is therefore also handled here, and passed on to the server's own
handler.
"""

import asyncio
import signal
import threading
from types import FrameType


class StopFlag:
    """A flag that is set by SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def install_signal_handlers(self) -> None:
        """Install signal handlers that set the flag; call it after the server has installed its
        own.
        """
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # Python sets signal handlers only in the main thread; an embedded app may run in another.
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if callable(before) and before is not signal.default_int_handler:
                self._chain_signal_handler(number, before)

    def _chain_signal_handler(self, number: signal.Signals, before: "signal._HANDLER") -> None:
        def handle_stop_signal(received: int, frame: FrameType | None) -> None:
            if self._loop is not None and not self._loop.is_closed():
                # A signal handler interrupts the loop at any point, so it must not set the event.
                self._loop.call_soon_threadsafe(self.mark_stopping)
            if callable(before):
                before(received, frame)

        signal.signal(number, handle_stop_signal)

    def mark_stopping(self) -> None:
        """Mark the server as stopping."""
        if self._event is not None:
            self._event.set()

    @property
    def is_stopping(self) -> bool:
        """True once the server has begun to stop."""
        return self._event is not None and self._event.is_set()

    async def wait_for_stop(self, seconds: float) -> bool:
        """Wait at most this many seconds; return True if the server is stopping."""
        assert self._event is not None
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
