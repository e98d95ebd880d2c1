"""A relay before a server, which can simulate an absent, silent or overloaded server.

It can also break connections off in the middle. One event loop runs in a thread; `fault` and `heal`
may be called from any other. It relays bytes unchanged, so it serves PostgreSQL, Redis and S3
alike; only the overload speaks HTTP.
"""

import asyncio
import itertools
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Literal

Fault = Literal["refused", "silent", "overloaded", "cut"]

_SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce '
    b"your request"
    b" rate.</Message><RequestId>1</RequestId></Error>"
)
_PIECE = 1 << 16


class FaultProxy:
    """A relay of a port of the loopback interface.

    Args:
        target: the server's port, on the same interface.

    Attributes:
        cuts: number of connections that were cut in the middle so far.
        up: number of bytes relayed to the server.
        down: number of bytes relayed from the server.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._fault: Fault | None = None
        self._cuts: itertools.cycle[int] = itertools.cycle([0])
        self._unspent: list[int] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = self.cuts = self.up = self.down = 0
        self._gate = asyncio.Event()
        self._gate.set()
        self._do(self._listen_for_notifications())

    def fault(self, kind: Fault, cuts: Sequence[int] = ()) -> None:
        """Begin a fault; open connections break, or fall silent too.

        Args:
            kind: `refused`: no server listens; `silent`: connections are accepted and nothing is
                ever sent; `overloaded`: every HTTP request is answered with 503; `cut`: connections
                end in the middle.
            cuts: numbers of bytes after which connections are cut, in turn and in either direction.
                A connection that ends earlier leaves its remaining bytes to the next.
        """
        self._do(self._begin_watching(kind, cuts))

    def heal(self) -> None:
        """End the fault; data that was sent to a silent connection arrives now."""
        self._do(self._end())

    def close(self) -> None:
        """Close all connections and end the loop."""
        self._do(self._begin_watching("refused", ()))
        self._do(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen_for_notifications(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _begin_watching(self, kind: Fault, cuts: Sequence[int]) -> None:
        self._fault = kind
        if kind == "silent":
            self._gate.clear()
            return
        if kind == "refused":
            self._server.close()
        self._cuts, self._unspent = itertools.cycle(cuts or [0]), []
        for writer in list(self._open):
            writer.transport.abort()

    async def _end(self) -> None:
        if self._fault == "refused":
            await self._listen_for_notifications()
        elif self._fault != "silent":
            for writer in list(self._open):
                writer.transport.abort()
        self._fault = None
        self._gate.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._gate.wait()
            if self._fault == "overloaded":
                await self._refuse(reader, writer)
            else:
                await self._relay(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # one side has gone
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = None
        if self._fault == "cut":
            left = [
                self._unspent.pop() if self._unspent else next(self._cuts)
            ] * 2  # of each direction
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._open.add(back)
        try:
            ways = [
                asyncio.ensure_future(self._pump(source, sink, left, is_up))
                for source, sink, is_up in ((reader, back, True), (there, writer, False))
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            if left is not None and min(left) > 0:
                self._unspent.append(min(left))
        finally:
            self._open.discard(back)
            back.transport.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        left: list[int] | None,
        is_up: bool,
    ) -> None:
        while data := await source.read(_PIECE):
            await self._gate.wait()
            sent = data if left is None else data[: left[is_up]]
            sink.write(sent)
            self.up, self.down = self.up + is_up * len(sent), self.down + (not is_up) * len(sent)
            await sink.drain()
            if left is not None:
                left[is_up] -= len(data)
                if left[is_up] <= 0:
                    self.cuts += 1
                    await asyncio.sleep(0.05)  # what was written so far arrives
                    return

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer 503 to every request of a connection."""
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = [line.partition(":") for line in head.split("\r\n")]
            length = next((int(v) for name, _, v in lines if name.lower() == "content-length"), 0)
            while length:
                length -= len(await reader.read(min(length, _PIECE))) or length
            body = b"" if head.startswith("HEAD ") else _SLOW_DOWN
            writer.write(
                b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\n"
                + f"Content-Length: {len(_SLOW_DOWN)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()
