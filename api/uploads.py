"""Large bodies: streamed to a spool file, counted and hashed on the way, never held in memory.

Whatever can be known from the request's head is checked before the first byte is read. Disk and sha256
work runs in threads while the next bytes arrive. However an upload ends, its spool file is gone, unless
it was moved into the store.
"""

import asyncio
import base64
import binascii
import mmap
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from api.fair_share import pause
from api.guard import declared_length
from api.multipart import MultipartFile
from api.spool_file import Early, SpoolFile
from core import spool
from core.errors import (
    BodyTimeout,
    BodyTooLarge,
    BodyTruncated,
    DigestMismatch,
    Invalid,
    NoSpace,
    TooManyRequests,
    UnsupportedType,
)
from core.ids import new_id
from core.settings import Settings

FLUSH_BYTES = 1 << 20
MULTIPART_OVERHEAD = 1 << 20
"""Bytes that parts' headers and fields may add to a multipart body."""
RESERVED_DISK_BYTES = 64 << 20
_DIGEST = re.compile(r"(?:^|,)\s*sha-256\s*=\s*([^,]*)")

_disk = ThreadPoolExecutor(8, thread_name_prefix="upload")


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
        NoSpace: the disk has none.
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
            raise NoSpace("There is no room on the service's disk for this upload.")
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
    path = settings.folder("spool") / f"{spool.PREFIX}{new_id('tsk')[4:]}"
    file = SpoolFile(path, limit, known.media_type, early)
    sink: SpoolFile | MultipartFile = file
    most = limit
    if known.boundary is not None:
        sink = MultipartFile(file, known.boundary, fields)
        most += MULTIPART_OVERHEAD
    try:
        pause()  # for the rest of it, too: `slot` limits how many an owner has under way
        await _stream(request, sink, known.length, most, settings)
        body_digest = sink.body_sha256
        if known.digest is not None and known.digest != body_digest:
            raise DigestMismatch(
                f"Content-Digest announced the sha256 {known.digest}, the body has {body_digest}."
            )
        form = sink.values if isinstance(sink, MultipartFile) else {}
        yield Received(path, file.size, file.sha256, body_digest, file.media_type, form)
    finally:
        file.close()
        path.unlink(missing_ok=True)


async def _stream(
    request: Request, sink: "SpoolFile | MultipartFile", length: int | None, most: int, settings: Settings
) -> None:
    """Move the body to the sink; one piece is written while the next one arrives."""
    loop = asyncio.get_running_loop()
    idle = settings.upload_idle_s
    began = loop.time()
    # Two buffers for the whole upload: fresh memory for every piece would cost more than disk and hash. They are pages
    # of their own: malloc would cut them from its heap after the first, and small blocks above keep that from shrinking.
    filling, other, filled, size = mmap.mmap(-1, FLUSH_BYTES), mmap.mmap(-1, FLUSH_BYTES), 0, 0
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
