"""A stub server whose answers a test defines.

A real service gives such answers only when something is wrong with it.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from perennial import Perennial


@dataclass
class Asked:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Said:
    """An answer of the stub.

    Attributes:
        cut: number of bytes of the body after which the connection is closed.
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


@dataclass
class Stub:
    """The address of the server, and the requests that it received."""

    url: str
    asked: list[Asked]


@contextmanager
def run_stub(answer: Callable[[Asked], Said]) -> Iterator[Stub]:
    """Run a server on a free port whose answers come from a function."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self._body()
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked.append(Asked(self.command, self.path, headers, body))
            said = answer(asked[-1])
            content = (
                said.body if isinstance(said.body, bytes) else json.dumps(said.body or {}).encode()
            )
            self.send_response(said.status)
            for name, value in {"Content-Length": str(len(content)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD" and said.status not in (204, 304):
                self.wfile.write(content[: said.cut])
            if said.cut is not None:
                self.close_connection = True

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") == "chunked":
                found = b""
                while size := int(self.rfile.readline(), 16):
                    found += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return found
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield Stub(f"http://127.0.0.1:{server.server_address[1]}", asked)
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def run_stub_with_client(
    answer: Callable[[Asked], Said], **options: int
) -> Iterator[tuple[Stub, Perennial]]:
    """Run a stub server and yield it with a client of it."""
    with run_stub(answer) as stub, Perennial("k", base_url=stub.url, **options) as client:
        yield stub, client


def build_problem(status: int, code: str, detail: str = "…", **headers: str) -> Said:
    """Build a problem as the service sends it."""
    body = {
        "type": f"/problems/{code}",
        "title": code,
        "status": status,
        "detail": detail,
        "errors": [],
    }
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return Said(status, body, {"X-Request-ID": "req-1", **more})
