"""Large bodies: streamed to a spool file, counted and hashed on the way, never held in memory.

Whatever can be known from the request's head is checked before the first byte is read. Disk and sha256
work runs in threads while the next bytes arrive. However an upload ends, its spool file is gone, unless
it was moved into the store.
"""

import asyncio
import base64
import binascii
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from api.guard import declared_length
from core.errors import (
    BodyTimeout,
    BodyTooLarge,
    BodyTruncated,
    DigestMismatch,
    Invalid,
    TooManyRequests,
    Unavailable,
    UnsupportedType,
)
from core.ids import new_id
from core.ingest.sniff import SNIFF_BYTES
from core.settings import Settings

FLUSH_BYTES = 1 << 20
MAX_FIELD_BYTES = 64 << 10
MULTIPART_OVERHEAD = 1 << 20
"""Bytes that parts' headers and fields may add to a multipart body."""
RESERVED_DISK_BYTES = 64 << 20
_DIGEST = re.compile(r"(?:^|,)\s*sha-256\s*=\s*([^,]*)")

_disk = ThreadPoolExecutor(8, thread_name_prefix="upload")

Early = Callable[[bytes, str | None], None]


@dataclass(frozen=True)
class Head:
    """What a request says about its body before any of it is read.

    Attributes:
        length: Content-Length, None for a chunked body.
        digest: sha256 in hex from Content-Digest.
        media_type: lower case, without parameters; None when the client did not say.
        boundary: of a multipart body.
    """

    length: int | None
    digest: str | None
    media_type: str | None
    boundary: bytes | None


@dataclass(frozen=True)
class Received:
    """A complete upload in the spool.

    Attributes:
        sha256: of the file; `body_sha256`: of the body as sent (the same unless multipart).
        media_type: declared for the file.
        fields: other fields of a multipart body.
    """

    path: Path
    size: int
    sha256: str
    body_sha256: str
    media_type: str | None
    fields: dict[str, str]


def head(request: Request, settings: Settings, limit: int, *, multipart: bool) -> Head:
    """Check what the request's head says.

    Args:
        limit: bytes that the file may have.
        multipart: whether `multipart/form-data` is accepted.

    Raises:
        BodyTooLarge, UnsupportedType, Invalid: the head says so.
        Unavailable: the disk has no room.
    """
    headers = request.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedType("Send the body without Content-Encoding.")
    length = declared_length(headers.get("content-length"))
    declared = headers.get("content-type")
    kind, options = parse_options_header(declared) if declared else (b"", {})
    media_type = kind.decode("latin-1").lower() or None
    boundary = None
    if media_type == "multipart/form-data":
        if not multipart:
            raise UnsupportedType("Send the file itself as the body.")
        boundary = options.get(b"boundary")
        if not boundary or len(boundary) > 70:
            raise Invalid("The multipart body needs a boundary of at most 70 characters.")
        limit += MULTIPART_OVERHEAD
    if length is not None:
        if length > limit:
            raise BodyTooLarge(f"The body may have {limit} bytes; this one has {length}.")
        free = shutil.disk_usage(settings.folder("spool")).free
        if length + RESERVED_DISK_BYTES > free:
            raise Unavailable("There is no room on the service's disk for this upload.", retry_after_s=60)
    return Head(length, _digest(headers.get("content-digest")), media_type, boundary)


@contextmanager
def slot(request: Request, owner: str, most: int) -> Iterator[None]:
    """One of an owner's places for uploads under way.

    Raises:
        TooManyRequests: all are taken.
    """
    under_way: dict[str, int] = request.app.state.uploads
    if under_way.get(owner, 0) >= most:
        raise TooManyRequests(f"You have {most} uploads under way: wait for one to end.", retry_after_s=5)
    under_way[owner] = under_way.get(owner, 0) + 1
    try:
        yield
    finally:
        under_way[owner] -= 1
        if not under_way[owner]:
            del under_way[owner]


@asynccontextmanager
async def spooled(
    request: Request,
    known: Head,
    settings: Settings,
    limit: int,
    *,
    fields: tuple[str, ...] = (),
    early: Early | None = None,
) -> AsyncIterator[Received]:
    """Read the body into a spool file, which is removed at the end of the block.

    Args:
        fields: names of fields that a multipart body may have beside its one `file`.
        early: called with the file's first bytes (`SNIFF_BYTES`, or all) and its declared type; what it
            raises ends the upload before the rest is read.

    Raises:
        BodyTooLarge, BodyTruncated, BodyTimeout, DigestMismatch, Invalid: as they say.
    """
    path = settings.folder("spool") / f"upload-{new_id('tsk')[4:]}"
    file = _File(path, limit, known.media_type, early)
    sink: _File | _Multipart = file
    most = limit
    if known.boundary is not None:
        sink = _Multipart(file, known.boundary, fields)
        most += MULTIPART_OVERHEAD
    try:
        await _stream(request, sink, known.length, most, settings)
        body_digest = sink.body_sha256
        if known.digest is not None and known.digest != body_digest:
            raise DigestMismatch(
                f"Content-Digest announced the sha256 {known.digest}, the body has {body_digest}."
            )
        form = sink.values if isinstance(sink, _Multipart) else {}
        yield Received(path, file.size, file.sha256, body_digest, file.media_type, form)
    finally:
        file.close()
        path.unlink(missing_ok=True)


async def _stream(
    request: Request, sink: "_File | _Multipart", length: int | None, most: int, settings: Settings
) -> None:
    """Move the body to the sink; one piece is written while the next one arrives."""
    loop = asyncio.get_running_loop()
    idle = settings.upload_idle_s
    began = loop.time()
    # Two buffers for the whole upload: fresh memory for every piece would cost more than disk and hash.
    filling, other, filled, size = bytearray(FLUSH_BYTES), bytearray(FLUSH_BYTES), 0, 0
    writing: asyncio.Future[None] | None = None
    try:
        async with asyncio.timeout(idle) as timer:
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise BodyTruncated("The connection was closed before the body was complete.")
                chunk = message.get("body", b"")
                more = message.get("more_body", False)
                size += len(chunk)
                if size > most:
                    raise BodyTooLarge(f"The body may have {most} bytes.")
                rest = memoryview(chunk)
                while rest or not more:
                    taken = min(len(rest), FLUSH_BYTES - filled)
                    filling[filled : filled + taken] = rest[:taken]
                    filled, rest = filled + taken, rest[taken:]
                    if filled < FLUSH_BYTES and (rest or more):
                        continue
                    if writing is not None:
                        timer.reschedule(None)  # waiting for our disk is not the client's delay
                        await writing
                    writing = loop.run_in_executor(_disk, sink.write, filling, filled)
                    filling, other, filled = other, filling, 0
                    if not rest:
                        break
                now = loop.time()
                if now - began > idle and size < settings.upload_min_rate * (now - began):
                    raise BodyTimeout(f"The body comes at less than {settings.upload_min_rate} bytes/s.")
                if chunk or timer.when() is None:
                    timer.reschedule(now + idle)
            timer.reschedule(None)
            if writing is not None:
                await writing
                writing = None
            await loop.run_in_executor(_disk, sink.finish)
    except TimeoutError:
        raise BodyTimeout(f"Nothing of the body came for {idle:.0f} s.") from None
    finally:
        if writing is not None and not writing.done():
            await asyncio.wait([writing])
    if length is not None and size != length:
        raise BodyTruncated(f"Content-Length says {length} bytes, {size} came.")


class _File:
    """The spool file; its methods run in threads, one after the other."""

    def __init__(self, path: Path, limit: int, media_type: str | None, early: Early | None) -> None:
        self._fd: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._limit = limit
        self._hash = hashlib.sha256()
        self._first = b""
        self._early = early
        self.media_type = media_type
        self.size = 0

    def write(self, data: bytes | bytearray, length: int) -> None:
        """Append the first `length` bytes of `data`."""
        self.append(memoryview(data)[:length])

    def append(self, data: memoryview) -> None:
        """Append a piece."""
        assert self._fd is not None
        self.size += len(data)
        if self.size > self._limit:
            raise BodyTooLarge(f"The file may have {self._limit} bytes.")
        if self._early is not None:
            self._first += bytes(data[: SNIFF_BYTES - len(self._first)])
            if len(self._first) >= SNIFF_BYTES:
                self._look()
        self._hash.update(data)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise Unavailable(f"The upload cannot be written: {error.strerror}.", retry_after_s=60) from error

    def _look(self) -> None:
        early, self._early = self._early, None
        if early is not None:
            early(self._first, self.media_type)

    def finish(self) -> None:
        """All has come."""
        self._look()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    @property
    def body_sha256(self) -> str:
        return self.sha256

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class _Multipart:
    """Finds the one `file` and the fields in a multipart body."""

    def __init__(self, file: _File, boundary: bytes, fields: tuple[str, ...]) -> None:
        self._file = file
        self._allowed = fields
        self._hash = hashlib.sha256()
        self._name: str | None = None
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        self._value = bytearray()
        self._files = 0
        self._ended = False
        self.values: dict[str, str] = {}
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_part_data": self._data,
                "on_part_end": self._end,
                "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_end": self._all,
            },
        )

    def write(self, data: bytearray, length: int) -> None:
        piece = data if length == len(data) else data[:length]
        self._hash.update(piece)
        try:
            self._parser.write(piece)  # type: ignore[arg-type]
        except FormParserError as error:
            raise Invalid(f"The multipart body cannot be read: {error}.") from None

    def finish(self) -> None:
        """All has come.

        Raises:
            BodyTruncated: the closing boundary is missing.
            Invalid: there is no file.
        """
        if not self._ended:
            raise BodyTruncated("The multipart body ends before its closing boundary.")
        if not self._files:
            raise Invalid("The multipart body has no part named file.", fields=[_missing("file")])
        self._file.finish()

    @property
    def body_sha256(self) -> str:
        return self._hash.hexdigest()

    def _begin(self) -> None:
        self._headers, self._header, self._value, self._name = (
            {},
            (bytearray(), bytearray()),
            bytearray(),
            None,
        )

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _headers_finished(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data":
            raise Invalid("A part of the multipart body has no Content-Disposition: form-data.")
        if name == "file":
            self._files += 1
            if self._files > 1:
                raise Invalid("Send one file: the multipart body has several parts named file.")
            declared = self._headers.get(b"content-type")
            self._file.media_type = declared.decode("latin-1") if declared else None
        elif name not in self._allowed or name in self.values:
            known = ", ".join(("file", *self._allowed))
            raise Invalid(
                f"Unknown or repeated part {name[:60]!r}; there are: {known}.",
                fields=[{"field": name[:60], "message": "unknown or repeated"}],
            )
        self._name = name

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._name == "file":
            self._file.append(memoryview(data)[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            raise BodyTooLarge(f"The field {self._name} may have {MAX_FIELD_BYTES} bytes.")

    def _end(self) -> None:
        if self._name is not None and self._name != "file":
            try:
                self.values[self._name] = self._value.decode("utf-8")
            except UnicodeDecodeError:
                raise Invalid(f"The field {self._name} is not UTF-8.") from None

    def _all(self) -> None:
        self._ended = True


def _missing(name: str) -> dict[str, str]:
    return {"field": name, "message": "is missing"}


def _digest(header: str | None) -> str | None:
    """The sha256 in hex of `Content-Digest: sha-256=:…:` (RFC 9530); other algorithms are left alone."""
    found = _DIGEST.search(header) if header else None
    if found is None:
        return None
    value = found.group(1).strip()
    try:
        raw = base64.b64decode(value[1:-1].encode("ascii"), validate=True)
    except (binascii.Error, UnicodeError):
        raw = b""
    if not (value.startswith(":") and value.endswith(":") and len(raw) == 32):
        raise Invalid("Content-Digest must be sha-256=:BASE64: of the body.")
    return raw.hex()
