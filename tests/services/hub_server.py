"""A server that speaks the protocol of the Hugging Face Hub: repositories and their files.

A file is described by its commit, digest and size. It is then fetched from another host, as the Hub
sends clients to a CDN.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret_of_the_test"
_RESOLVE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_API = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+?)(/revision/[^/]+)?(\?.*)?")
_CDN = re.compile(r"/cdn/(?P<repository>[^/]+/[^/]+)/(?P<file>.+)")


@dataclass
class Hub:
    """The files of the server, its simulated faults, and a record of its requests.

    Attributes:
        files: (repository, file) → bytes.
        digests: (repository, file) → the digest that the server names in place of the true one.
        stall_at: a file is sent up to this byte, and then nothing until `go_on`.
        cut_at: a connection is closed there, once.
        close: stops the server, so that nothing answers.
        gets: (repository, first byte) of each request for a file's bytes, in order.
    """

    port: int = 0
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    stall_at: int | None = None
    cut_at: int | None = None
    go_on: threading.Event = field(default_factory=threading.Event)
    gets: list[tuple[str, int]] = field(default_factory=list)
    tokens: list[tuple[str, str | None]] = field(default_factory=list)
    close: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return environment variables that make huggingface_hub use this server."""
        return {"HF_ENDPOINT": self.url, "HF_HUB_ETAG_TIMEOUT": "5", "HF_HUB_DOWNLOAD_TIMEOUT": "5"}

    def put(self, repository: str, data: bytes, file: str = "model.safetensors") -> None:
        """Add a file to a repository."""
        self.files[repository, file] = data


@contextmanager
def run_hub() -> Iterator[Hub]:
    """Run a server on a free port of the loopback interface."""
    hub = Hub()

    class Handler(_Handler):
        server_hub = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def close_hub() -> None:
        hub.go_on.set()
        server.shutdown()
        server.server_close()

    hub.close = close_hub
    try:
        yield hub
    finally:
        close_hub()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_hub: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.server_hub
        hub.tokens.append((self.path, self.headers.get("Authorization")))
        if found := _API.fullmatch(self.path):
            self._info(found["repository"])
        elif found := _CDN.fullmatch(self.path):
            self._bytes(found["repository"], found["file"])
        elif found := _RESOLVE.fullmatch(self.path):
            self._resolve(found["repository"], found["file"])
        else:
            self._empty(404)

    def _info(self, repository: str) -> None:
        names = [name for of, name in self.server_hub.files if of == repository]
        if not names or repository in self.server_hub.private:
            return self._empty(401, {"X-Error-Code": "RepoNotFound"})
        told: dict[str, Any] = {
            "id": repository,
            "sha": COMMIT,
            "siblings": [{"rfilename": n} for n in names],
        }
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def _resolve(self, repository: str, file: str) -> None:
        hub = self.server_hub
        data = hub.files.get((repository, file))
        if data is None:
            return self._empty(404, {"X-Error-Code": "EntryNotFound"})
        digest = hub.digests.get((repository, file)) or hashlib.sha256(data).hexdigest()
        return self._empty(
            302,
            {
                "Location": f"http://127.0.0.1:{hub.port}/cdn/{repository}/{file}",
                "X-Repo-Commit": COMMIT,
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(data)),
            },
        )

    def _bytes(self, repository: str, file: str) -> None:
        hub = self.server_hub
        data = hub.files[repository, file]
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(asked[1]) if asked else 0
        hub.gets.append((repository, begin))
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        try:
            if hub.cut_at is not None:
                self.wfile.write(data[begin : hub.cut_at])
                hub.cut_at = None
                self.close_connection = True
                return
            if hub.stall_at is not None:
                self.wfile.write(data[begin : hub.stall_at])
                self.wfile.flush()
                hub.go_on.wait()
                begin = max(begin, hub.stall_at)
            self.wfile.write(data[begin:])
        except OSError:  # the client was killed
            time.sleep(0)

    def _empty(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
