"""A piece of an upload that can be resumed: held, received, kept even where it is cut off.

The request holds the upload in the database for as long as it writes (`core.requests.uploads`), so that any API process
may take the next piece.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from starlette.requests import Request

from api.fair_share import pause
from api.uploads.body import Writer, check_digest, spooled, stream
from api.uploads.head import Head
from api.uploads.outage import outlasted
from api.uploads.tus import Checksum, completes
from core.db.session import Database
from core.errors import BodyTimeout, BodyTooLarge, BodyTruncated, ChecksumMismatch, Invalid, PerennialError
from core.failpoints import hit
from core.requests import uploads
from core.requests.actor import Actor
from core.requests.uploads import LEAST_BYTES, Piece, Writing
from core.settings import Settings


@asynccontextmanager
async def held(db: Database, actor: Actor, upload: str, offset: int) -> AsyncIterator[Writing]:
    """Hold an upload while the block writes to it. Raises as `core.requests.uploads.begin`."""
    writing = await to_thread.run_sync(uploads.begin, db, actor, upload, offset)
    renewing = asyncio.create_task(_renew(db, writing))
    try:
        yield writing
    except BaseException:
        with outlasted("upload"):
            await to_thread.run_sync(uploads.release, db, writing)
        raise
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


def check_size(request: Request, head: Head, writing: Writing) -> None:
    """Refuse a piece by what its head says of its length, before a byte of it is read.

    Raises:
        BodyTooLarge: it would go beyond the file.
        Invalid: it is short and not the last, or is not the last that it says to be.
    """
    left = writing.length - writing.offset
    if head.length is None:
        return
    if head.length > left:
        raise BodyTooLarge(
            f"{left} of {writing.length} bytes of {writing.id} are lacking; this piece has {head.length}."
        )
    if head.length < min(LEAST_BYTES, left):
        raise Invalid(
            f"This piece has {head.length} bytes: send {LEAST_BYTES} or more, or the last ones "
            f"({left} from {writing.offset} on)."
        )
    if completes(request.headers) and head.length != left:
        raise Invalid(
            f"Upload-Complete says that this is the last piece; it has {head.length} bytes, and {left} are lacking."
        )


@asynccontextmanager
async def received(
    request: Request, head: Head, writing: Writing, checksum: Checksum | None, settings: Settings
) -> AsyncIterator[tuple[Piece, PerennialError | None]]:
    """Read a piece into the spool; what came of it, and why no more did.

    Of a piece that is cut off, what came is kept, unless a checksum was announced: only the whole piece can have it.

    Raises:
        BodyTooLarge, BodyTruncated, BodyTimeout, DigestMismatch: as they say.
        ChecksumMismatch: it has another checksum.
    """
    left = writing.length - writing.offset
    with spooled(settings, left) as file:
        writer = Writer(file)
        cut: PerennialError | None = None
        pause()  # for the rest of it, too: `Upload.place` limits how many an owner has under way
        try:
            await stream(request, writer, head.length, left, settings)
        except (BodyTruncated, BodyTimeout) as error:
            if checksum is not None or head.digest is not None:
                raise
            await writer.finish()
            cut = error
        hit("upload-received")
        if cut is None:
            check_digest(head, file.sha256)
            if checksum is not None and not await to_thread.run_sync(checksum.fits, file.path):
                raise ChecksumMismatch(
                    f"Upload-Checksum announced the {checksum.algorithm} {checksum.hex}; these {file.size} bytes "
                    f"have another. Nothing of them is kept: send them again from {writing.offset} on."
                )
        yield Piece(file.path, file.size, file.sha256), cut


async def _renew(db: Database, writing: Writing) -> None:
    while True:
        await asyncio.sleep(uploads.RENEW_S)
        with outlasted("upload"):
            await to_thread.run_sync(uploads.renew, db, writing)
