"""A piece of a resumable upload: held, received, and kept even if it is cut off.

The request holds the upload in the database while it writes (`core.uploads.uploads`), so that any
API process may receive the next piece.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from starlette.requests import Request

from api.limits.fair_share import release_request_slot_before_wait
from api.uploads.body import (
    DoubleBufferedWriter,
    open_temporary_spool_file,
    require_announced_digest,
    stream_body_to_writer,
)
from api.uploads.outage_tolerance import suppress_database_outage
from api.uploads.request_checks import UploadRequestHead
from api.uploads.tus import PieceChecksum, parse_upload_complete_header
from core.database.session import Database
from core.errors import (
    BodyTimeout,
    BodyTooLarge,
    BodyTruncated,
    ChecksumMismatch,
    Invalid,
    PerennialError,
)
from core.failpoints import hit_failpoint
from core.requests.actor import Actor
from core.settings import Settings
from core.uploads import uploads
from core.uploads.uploads import LEAST_BYTES, LeasedUpload, ReceivedUploadPiece


@asynccontextmanager
async def hold_upload_lease(
    db: Database, actor: Actor, upload: str, offset: int
) -> AsyncIterator[LeasedUpload]:
    """Lease an upload within the block so that no other request writes to it. Renews the lease."""
    writing = await to_thread.run_sync(uploads.lease_upload_to_write, db, actor, upload, offset)
    renewing = asyncio.create_task(_renew_upload_lease_periodically(db, writing))
    try:
        yield writing
    # A block that succeeds has released the upload itself, by appending or explicitly.
    except BaseException:
        with suppress_database_outage("upload"):
            await to_thread.run_sync(uploads.release_upload_lease, db, writing)
        raise
    finally:
        renewing.cancel()
        # Awaited, so that no renewal is still running when the caller goes on.
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


def refuse_piece_by_declared_length(
    request: Request, head: UploadRequestHead, writing: LeasedUpload
) -> None:
    """Refuse a piece of an upload by its declared length, before a byte of it is read.

    Raises:
        BodyTooLarge: it would go beyond the end of the file.
        Invalid: it is short and not the last, or it claims to be the last and is not.
    """
    remaining_bytes = writing.length - writing.offset
    if head.length is None:
        return
    if head.length > remaining_bytes:
        raise BodyTooLarge(
            f"{remaining_bytes} of {writing.length} bytes of {writing.id} are lacking; this piece has "
            f"{head.length}."
        )
    if head.length < min(LEAST_BYTES, remaining_bytes):
        raise Invalid(
            f"This piece has {head.length} bytes: send {LEAST_BYTES} or more, or the last ones "
            f"({remaining_bytes} from {writing.offset} on)."
        )
    if parse_upload_complete_header(request.headers) and head.length != remaining_bytes:
        raise Invalid(
            f"Upload-Complete says that this is the last piece; it has {head.length} bytes, and "
            f"{remaining_bytes} are lacking."
        )


@asynccontextmanager
async def receive_whole_or_cut_piece_into_spool(
    request: Request,
    head: UploadRequestHead,
    writing: LeasedUpload,
    checksum: PieceChecksum | None,
    settings: Settings,
) -> AsyncIterator[tuple[ReceivedUploadPiece, PerennialError | None]]:
    """Receive a piece of an upload into the spool; yield it with the error that cut it off, or
    None.

    The received part of a piece that is cut off is kept, unless a checksum was announced: only the
    whole piece can match it.

    Raises:
        BodyTooLarge: it is larger than allowed.
        BodyTruncated, BodyTimeout: it was cut off, and a checksum or digest was announced.
        DigestMismatch: it has another digest than announced.
        ChecksumMismatch: it has another checksum than announced.
    """
    remaining_bytes = writing.length - writing.offset
    with open_temporary_spool_file(settings, remaining_bytes) as file:
        writer = DoubleBufferedWriter(file)
        cut: PerennialError | None = None
        # For the rest of the request, too: `hold_upload_slot` limits an owner's uploads in progress.
        release_request_slot_before_wait()
        try:
            await stream_body_to_writer(request, writer, head.length, remaining_bytes, settings)
        except (BodyTruncated, BodyTimeout) as error:
            if checksum is not None or head.digest is not None:
                raise
            # What is still in the buffer has arrived as well, and must not be sent again.
            await writer.finish_sink()
            cut = error
        hit_failpoint("upload-received")
        if cut is None:
            require_announced_digest(head, file.sha256)
            if checksum is not None and not await to_thread.run_sync(
                checksum.matches_file, file.path
            ):
                raise ChecksumMismatch(
                    f"Upload-Checksum announced the {checksum.algorithm} {checksum.hex}; these "
                    f"{file.size} bytes have another. Nothing of them is kept: send them again "
                    f"from {writing.offset} on."
                )
        yield ReceivedUploadPiece(file.path, file.size, file.sha256), cut


async def _renew_upload_lease_periodically(db: Database, writing: LeasedUpload) -> None:
    while True:
        await asyncio.sleep(uploads.RENEW_S)
        with suppress_database_outage("upload"):
            await to_thread.run_sync(uploads.renew_upload_lease, db, writing)
