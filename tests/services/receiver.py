"""A receiver of webhooks: writes down what comes, and answers as a test wants, slowly, wrongly or
not at all.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook


@dataclass
class Received:
    """One request: its path, headers in lower case, body, and when it came and was answered
    (monotonic seconds).
    """

    path: str
    headers: dict[str, str]
    body: bytes
    came: float
    answered: float = 0.0

    def verified(self, secret: str) -> Any:
        """The payload, verified by the reference library; raises where the signature is wrong."""
        return Webhook(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """The requests received, in order. `status`: the answer to a request, from its number of the path, 0 on;
    `delay_s`: before it."""

    url: str = ""
    seen: list[Received] = field(default_factory=list)
    status: Callable[[str, int], int] = lambda path, number: 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay_s: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def of(self, path: str) -> list[Received]:
        """The requests to a path that were answered."""
        return [one for one in self.seen if one.path == path and one.answered]

    def wait(self, count: int, path: str = "/", seconds: float = 60.0) -> list[Received]:
        """The requests to a path, once there are so many."""
        with self.changed:
            enough = self.changed.wait_for(lambda: len(self.of(path)) >= count, seconds)
        assert enough, f"{len(self.of(path))} requests to {path} came, not {count}"
        return self.of(path)


@contextmanager
def run_receiver(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a receiver on a free port of the loopback interface."""
    receiver = Receiver()

    class Handler(_Handler):
        told = receiver

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    told: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        told = self.told
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        one = Received(self.path, headers, body, time.monotonic())
        with told.changed:
            number = sum(other.path == self.path for other in told.seen)
            told.seen.append(one)
        time.sleep(told.delay_s)
        try:
            self.send_response(told.status(self.path, number))
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)
        finally:
            with told.changed:
                one.answered = time.monotonic()
                told.changed.notify_all()

    def do_GET(self) -> None:  # whoever followed a redirect would come here
        self.do_POST()

    def log_message(self, *_given: Any) -> None:
        return


@contextmanager
def serve_slowly(pieces: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """Run a server that answers with pieces, a tenth of a second before each.
    Yield its address.
    """
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve_connections() -> None:
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    for piece in pieces():
                        if over.wait(0.1):
                            break
                        connection.sendall(piece)
                except OSError:
                    pass

    thread = threading.Thread(target=serve_connections, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    finally:
        over.set()
        server.close()
