"""Complete uploads: read their pieces again, and remove them once a task has taken them."""

from collections.abc import Iterator
from dataclasses import dataclass

import structlog
from sqlalchemy.orm import Session

from core.database.session import Database
from core.errors import PerennialError, StoredObjectDamaged, UploadIncomplete
from core.requests.actor import Actor
from core.storage import ObjectStorage
from core.storage.blobs import iterate_verified_blob_chunks
from core.uploads import chunks
from core.uploads.uploads import find_upload, read_upload_progress

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CompleteUpload:
    """A resumable upload whose bytes have all arrived.

    Attributes:
        sha256: digest of the whole file that its client announced; None if it did not.
        pieces: (key, sha256) of each piece, in order.
    """

    id: str
    owner_id: str
    length: int
    sha256: str | None
    pieces: tuple[tuple[str, str], ...]


def require_complete_upload(db: Database, actor: Actor, upload: str) -> CompleteUpload:
    """Return the resumable upload of that id, after checking that all its bytes have arrived.

    Raises:
        NotFound: there is none.
        UploadIncomplete: bytes are missing.
    """
    with db.read() as session:
        row = find_upload(session, actor, upload, db.now(session))
        if row.offset != row.length:
            raise UploadIncomplete(
                f"{row.offset} of {row.length} bytes of {row.id} are here: send the rest by PATCH "
                f"/v1/uploads/{row.id} from Upload-Offset {row.offset} on.",
                extra={"offset": row.offset, "length": row.length},
            )
        pieces = tuple(
            (chunk.key, chunk.sha256) for chunk in chunks.list_upload_pieces(session, row.id)
        )
        return CompleteUpload(row.id, row.owner_id, row.length, row.sha256, pieces)


def read_upload_bytes(
    db: Database, store: ObjectStorage, actor: Actor, upload: CompleteUpload
) -> Iterator[bytes]:
    """Yield the bytes of a complete upload; each piece is verified while it is read.

    Raises:
        NotFound: the upload was submitted or removed meanwhile.
        StoredObjectDamaged: a piece is missing or damaged.
    """
    try:
        for key, sha256 in upload.pieces:
            yield from iterate_verified_blob_chunks(store.read(key), key, sha256)
    except StoredObjectDamaged as error:
        read_upload_progress(
            db, actor, upload.id
        )  # raises NotFound if the upload has been removed meanwhile
        raise StoredObjectDamaged(
            f"{error.detail} It is a piece of {upload.id}: DELETE /v1/uploads/{upload.id}, and "
            f"upload the file again.",
            extra=error.extra,
        ) from error


def delete_accepted_upload_rows(
    session: Session, actor: Actor, upload: CompleteUpload, now: float
) -> None:
    """Delete the rows of an upload, in the transaction that accepts its content as a batch.

    Call `delete_upload_piece_objects` afterwards.

    Raises:
        NotFound: another request was faster.
    """
    # The lock decides which of two requests at once takes the upload.
    chunks.delete_upload_rows(session, find_upload(session, actor, upload.id, now, lock=True).id)


def delete_upload_piece_objects(store: ObjectStorage, upload: CompleteUpload) -> None:
    """Delete the stored pieces of an upload that a task has used up.

    The sweep removes what an outage leaves.
    """
    try:
        for key, _ in upload.pieces:
            store.delete(key)
    except PerennialError as error:
        log.warning(
            "pieces of a spent upload are left to the sweep", upload=upload.id, error=error.detail
        )
