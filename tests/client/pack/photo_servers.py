"""Servers of photos as the tests want them: a web server with TLS, and a bucket that speaks S3's
protocol.
"""

import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape


class Page:
    """Answer of a path; `body` may be an endless iterator of pieces."""

    def __init__(
        self,
        body: bytes | Callable[[], Iterator[bytes]] = b"",
        status: int = 200,
        kind: str = "image/png",
        **headers: str,
    ) -> None:
        self.body, self.status, self.kind = body, status, kind
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Photos:
    """The pages of a server by path, and what was asked for. `answer` is asked where a path has no
    page.
    """

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, str]] = []
        self.answer: Callable[[str, dict[str, str]], Page] = lambda path, headers: Page(status=404)
        self.no_head = False
        self.url = ""


@contextmanager
def run_photo_server(certificate: Path | None = None) -> Iterator[Photos]:
    """Run a server on a free port of the loopback interface, with TLS if there is a certificate."""
    photos = Photos()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            photos.asked.append((self.command, self.path))
            if self.command == "HEAD" and photos.no_head:
                self.send_response(405)
                self.end_headers()
                return
            given = {name.lower(): value for name, value in self.headers.items()}
            page = photos.pages.get(self.path) or photos.answer(self.path, given)
            self.send_response(page.status)
            self.send_header("Content-Type", page.kind)
            if isinstance(page.body, bytes) and "Content-Length" not in page.headers:
                self.send_header("Content-Length", str(len(page.body)))
            for name, value in page.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            try:
                for piece in [page.body] if isinstance(page.body, bytes) else page.body():
                    self.wfile.write(piece)
            except OSError:
                return  # the client has seen enough

        do_HEAD = do_GET

        def log_message(self, *_given: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        scheme = "https"
    photos.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield photos
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def make_self_signed_certificate(folder: Path) -> Path:
    """Make a self-signed certificate of 127.0.0.1 and photos.test, with its key in the same file."""
    path = folder / "both.pem"
    named = "-subj /CN=photos.test -addext subjectAltName=DNS:photos.test,IP:127.0.0.1"
    made = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 {named} -keyout {path}.key -out {path}"
    )
    subprocess.run(made.split(), check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.key").read_text())
    return path


def yield_endless_bytes() -> Iterator[bytes]:
    """Yield bytes without an end."""
    while True:
        yield bytes(1 << 16)


def drip_bytes() -> Iterator[bytes]:
    """Yield a byte from time to time, without an end."""
    while True:
        time.sleep(0.05)
        yield b"x"


class Bucket:
    """A bucket of S3: objects by key, listed in pages of 1,000, each with an ETag; everything may
    lie.
    """

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.sizes: dict[str, int] = {}
        self.more: Callable[[str], str | None] | None = None
        self.read: list[str] = []
        self.instead: dict[str, Page] = {}

    def answer(self, path: str, headers: dict[str, str]) -> Page:
        """See Photos."""
        parts = urlsplit(path)
        query = {
            name: values[0]
            for name, values in parse_qs(parts.query, keep_blank_values=True).items()
        }
        key = unquote(parts.path).partition("/")[2].partition("/")[2]
        if not key:
            return self._listing(query)
        if key in self.instead:
            return self.instead[key]
        if key not in self.objects:
            return Page(_build_error("NoSuchKey"), 404, "application/xml")
        if headers.get("if-match", self.etag(key)) != self.etag(key):
            return Page(_build_error("PreconditionFailed"), 412, "application/xml")
        self.read.append(key)
        return Page(self.objects[key], ETag=self.etag(key))

    def etag(self, key: str) -> str:
        """Of the object's bytes."""
        return f'"{hash(self.objects[key]) & 0xFFFFFFFF:032x}"'

    def _listing(self, query: dict[str, str]) -> Page:
        keys = [key for key in sorted(self.objects) if key.startswith(query.get("prefix", ""))]
        begin = int(query.get("continuation-token", "0").partition("-")[0])
        some, following = keys[begin : begin + 1000], begin + 1000
        rows = "".join(
            f"<Contents><Key>{escape(quote(key))}</Key><Size>{self.sizes.get(key, len(self.objects[key]))}</Size>"
            f"<ETag>{escape(self.etag(key))}</ETag></Contents>"
            for key in some
        )
        token = f"{following}" if following < len(keys) else None
        if self.more is not None:
            token = self.more(query.get("continuation-token", ""))
        cut = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        body = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<EncodingType>url</EncodingType><IsTruncated>{'true' if token else 'false'}</IsTruncated>{cut}{rows}"
            "</ListBucketResult>"
        )
        return Page(body.encode(), kind="application/xml")


def _build_error(code: str) -> bytes:
    return (
        f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
    )
