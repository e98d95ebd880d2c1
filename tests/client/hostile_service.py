"""A service that sends the answers of a test byte by byte, and counts the bytes that are read."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

MOST_REQUESTS = 1000
"""Number of requests of one command after which connections are closed.

It ensures that no test is endless.
"""


@dataclass(frozen=True)
class Request:
    """A received request; `target` is its path and query."""

    method: str
    target: str
    headers: dict[str, str]


Reply = bytes | Iterable[bytes]
"""A whole HTTP answer with its head.

Pieces are sent until the client hangs up, and then the connection is closed.
"""


@dataclass
class HostileService:
    """The address of the service, its answers, and a record of its requests.

    Attributes:
        sent: bytes that the client took.
    """

    url: str = ""
    answer: Callable[[Request], Reply] = lambda request: b""
    requests: list[Request] = field(default_factory=list)
    sent: int = 0

    def forget(self) -> None:
        """Reset the recorded requests and the counter."""
        self.requests, self.sent = [], 0


def build_http_response(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """Build an HTTP response with its head.

    Args:
        headers: headers by name, with `_` in place of a hyphen.
    """
    given = {
        "Content-Length": str(len(body)),
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body


@contextlib.contextmanager
def run_hostile_service() -> Iterator[HostileService]:
    """Run a server on a free port."""
    service = HostileService()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            with contextlib.suppress(OSError, ValueError):
                while self._serve():
                    pass

        def _serve(self) -> bool:
            line = self.rfile.readline()
            if not line:
                return False
            method, target, _ = line.decode().split(" ")
            headers = {}
            while (header := self.rfile.readline()) not in (b"\r\n", b""):
                name, _, value = header.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            self._read_body(headers)
            request = Request(method, target, headers)
            service.requests.append(request)
            if len(service.requests) > MOST_REQUESTS:
                return False
            reply = service.answer(request)
            for piece in [reply] if isinstance(reply, bytes) else reply:
                self._send(piece)
            return isinstance(reply, bytes)

        def _read_body(self, headers: dict[str, str]) -> None:
            if headers.get("transfer-encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    self.rfile.read(size + 2)
                self.rfile.readline()
            else:
                self.rfile.read(int(headers.get("content-length", 0)))

        def _send(self, piece: bytes) -> None:
            left = memoryview(piece)
            while left:
                count = self.request.send(left[: 1 << 16])
                service.sent += count
                left = left[count:]

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_: Any) -> None:
            return

    with Server(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        try:
            yield service
        finally:
            server.shutdown()
