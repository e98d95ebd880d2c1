"""Stage 4 of an upload: its body as it arrives, never held in memory as a whole.

Disk and SHA-256 work runs in threads while the next bytes arrive. The spool file is removed however
an upload ends, unless it was moved into the store.
"""

import asyncio
import mmap
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from api.limits.fair_share import release_request_slot_before_wait
from api.uploads.form import UploadFormParser
from api.uploads.request_checks import Look, UploadRequestHead, UploadRouteRules
from api.uploads.spool_file import SpoolFile
from core.errors import BodyTimeout, BodyTooLarge, BodyTruncated, DigestMismatch
from core.files import spool
from core.ids import new_id
from core.settings import Settings

FLUSH_BYTES = 1 << 20

# Threads of their own: a slow disk must not occupy those that answer other requests.
_disk = ThreadPoolExecutor(8, thread_name_prefix="upload")


@dataclass(frozen=True)
class ReceivedUpload:
    """A complete upload in the spool.

    Attributes:
        sha256: digest of the file.
        body_sha256: digest of the body as sent; the same unless multipart.
        kind: type of the file as `UploadRouteRules.look` returned it; "" without `look`.
        fields: other fields of a multipart body.
    """

    path: Path
    size: int
    sha256: str
    body_sha256: str
    kind: str
    fields: dict[str, str]


@asynccontextmanager
async def receive_body_into_spool(
    request: Request, head: UploadRequestHead, terms: UploadRouteRules, settings: Settings
) -> AsyncIterator[ReceivedUpload]:
    """Read the body into a spool file, which is removed at the end of the block.

    Raises:
        BodyTooLarge: the body or the file is larger than allowed.
        BodyTruncated: the body ended early.
        BodyTimeout: it arrives too slowly.
        DigestMismatch: it has another digest than announced.
        Invalid: the form cannot be read.
    """
    with open_temporary_spool_file(settings, head.limit, head.media_type, terms.look) as file:
        form = (
            None
            if head.boundary is None
            else UploadFormParser(file, head.boundary, terms.fields or ())
        )
        sink = form or file
        # For the rest of the request, too: `hold_upload_slot` limits an owner's uploads in progress.
        release_request_slot_before_wait()
        await stream_body_to_writer(
            request, DoubleBufferedWriter(sink), head.length, head.body_limit, settings
        )
        require_announced_digest(head, sink.body_sha256)
        fields = {} if form is None else form.values
        yield ReceivedUpload(file.path, file.size, file.sha256, sink.body_sha256, file.kind, fields)


@contextmanager
def open_temporary_spool_file(
    settings: Settings, limit: int, media_type: str | None = None, look: Look | None = None
) -> Iterator[SpoolFile]:
    """Create a spool file, which is removed at the end of the block; arguments as of
    `SpoolFile`.
    """
    path = settings.make_folder("spool") / f"{spool.PREFIX}{new_id('tsk')[4:]}"
    file = SpoolFile(path, limit, media_type, look)
    try:
        yield file
    finally:
        file.close()
        path.unlink(missing_ok=True)


def require_announced_digest(head: UploadRequestHead, sha256: str) -> None:
    """Raise DigestMismatch if a body's SHA-256 differs from the one in its request's head."""
    if head.digest is not None and head.digest != sha256:
        raise DigestMismatch(
            f"Content-Digest announced the sha256 {head.digest}, the body has {sha256}."
        )


async def stream_body_to_writer(
    request: Request,
    writer: "DoubleBufferedWriter",
    length: int | None,
    max_bytes: int,
    settings: Settings,
) -> None:
    """Stream a request body of at most `max_bytes` bytes to a writer.

    Raises:
        BodyTooLarge, BodyTruncated, BodyTimeout: the bytes before may still be finished.
    """
    now = asyncio.get_running_loop().time
    idle, began, size, more = settings.upload_idle_s, now(), 0, True
    try:
        async with asyncio.timeout(idle) as timer:
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise BodyTruncated("The connection was closed before the body was complete.")
                chunk, more = message.get("body", b""), message.get("more_body", False)
                size += len(chunk)
                if size > max_bytes:
                    raise BodyTooLarge(f"The body may have {max_bytes} bytes.")
                if chunk:
                    timer.reschedule(
                        None
                    )  # The server's own disk must not count as the client's delay.
                    await writer.buffer_bytes(memoryview(chunk))
                    timer.reschedule(now() + idle)
                took = now() - began
                # A minimum rate in the long run; within the idle time, pauses are allowed.
                if took > idle and size < settings.upload_min_rate * took:
                    raise BodyTimeout(
                        f"The body comes at less than {settings.upload_min_rate} bytes/s."
                    )
            timer.reschedule(None)
            await writer.finish_sink()
    except TimeoutError:
        raise BodyTimeout(f"Nothing of the body came for {idle:.0f} s.") from None
    finally:
        # The caller removes the spool file: no thread may still write to it.
        await writer.wait_until_sink_idle()
    if length is not None and size != length:
        raise BodyTruncated(f"Content-Length says {length} bytes, {size} came.")


class DoubleBufferedWriter:
    """Two buffers: one is written to the sink in a thread while the next bytes fill the other.

    Fresh memory for every piece would cost more than disk and hash. The buffers are pages of their
    own: malloc would take the second from its heap, and small blocks above it would keep the heap
    from shrinking.
    """

    def __init__(self, sink: SpoolFile | UploadFormParser) -> None:
        self._sink = sink
        self._filling, self._other = mmap.mmap(-1, FLUSH_BYTES), mmap.mmap(-1, FLUSH_BYTES)
        self._filled = 0
        self._writing: asyncio.Future[None] | None = None

    async def buffer_bytes(self, data: memoryview) -> None:
        """Copy received bytes into the buffer, which is flushed when full. Raises earlier write
        errors.
        """
        while data:
            count = min(len(data), FLUSH_BYTES - self._filled)
            self._filling[self._filled : self._filled + count] = data[:count]
            self._filled, data = self._filled + count, data[count:]
            if self._filled == FLUSH_BYTES:
                await self._flush_buffer_to_sink()

    async def finish_sink(self) -> None:
        """Flush all buffered bytes and finish the file. Raises write errors."""
        await self._flush_buffer_to_sink()
        if self._writing is not None:
            await self._writing
        await asyncio.get_running_loop().run_in_executor(_disk, self._sink.finish)

    async def wait_until_sink_idle(self) -> None:
        """Wait until no thread writes any more, ignoring write errors."""
        if self._writing is not None and not self._writing.done():
            # Not awaited itself: its error must not replace the one that ended the body.
            await asyncio.wait([self._writing])

    async def _flush_buffer_to_sink(self) -> None:
        if self._writing is not None:
            await self._writing
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(_disk, self._sink.write, self._filling, self._filled)
        self._filling, self._other, self._filled = self._other, self._filling, 0
