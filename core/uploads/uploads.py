"""Resumable uploads: a file arrives in pieces and stays until a task takes it.

The state is in the database and the store, not in a process. A request that writes holds the upload
by a lease, with a fence as for jobs. Its piece is an object of its own, stored before the row moves
to the next offset. An upload therefore never claims more than is stored, and a request that dies
leaves at most an unnamed object for the sweep.
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from core.contract.responses.upload import UploadOut, UploadPage
from core.database.session import Database
from core.database.tables import Owner, StoredUploadPiece, Upload
from core.errors import Invalid, NotFound, OffsetMismatch, TooManyRequests, UploadLocked
from core.failpoints import hit_failpoint
from core.ids import is_id, new_id
from core.requests import idempotency
from core.requests.actor import Actor, require_caller_key_still_valid
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import ListPage, read_query_page
from core.requests.timestamps import format_rfc3339
from core.settings import Settings
from core.storage import ObjectStorage
from core.uploads import chunks
from core.uploads.archive_storage import store_archive_unless_block_fails
from core.usage import quota, stored_bytes

LEAST_BYTES = 5 << 20
"""Minimum size in bytes of a piece that is not the last, so that there are few objects."""
SPARE_PIECES = 1000
"""Number of pieces allowed beyond those of `LEAST_BYTES`, since an interrupted piece is stored
however short it is.
"""
LEASE_S = 15.0
"""Seconds without renewal after which a writing request counts as dead."""
# Three renewals fit into `LEASE_S`, so that one may come late.
RENEW_S = 4.0
_LISTED = 20
_FILENAME = 255
"""Maximum number of characters of a file name that are shown."""


@dataclass(frozen=True)
class UploadLimits:
    """Limits on resumable uploads: open ones, stored bytes (0: no limit), and hours since the last
    byte.
    """

    max_open: int
    max_owner_bytes: int
    hours: float

    @staticmethod
    def from_settings(settings: Settings) -> "UploadLimits":
        """Return the limits on resumable uploads that the settings define."""
        return UploadLimits(
            settings.max_open_uploads, settings.max_owner_bytes, settings.upload_hours
        )


@dataclass(frozen=True)
class UploadProgress:
    """Progress of a resumable upload: bytes received, length and expiry.

    Attributes:
        offset, length: bytes received, and bytes of the whole file.
        details: Upload-Metadata as sent; None if there was none.
        expires_at: seconds since 1970.
    """

    id: str
    owner_id: str
    offset: int
    length: int
    details: str | None
    expires_at: float


@dataclass(frozen=True)
class LeasedUpload:
    """A resumable upload that a request has leased in order to write from `offset` on.

    `fence` identifies the request.
    """

    id: str
    owner_id: str
    offset: int
    length: int
    fence: int


@dataclass(frozen=True)
class ReceivedUploadPiece:
    """The next bytes of a resumable upload, in a local file that is moved into the store."""

    path: Path
    bytes: int
    sha256: str


@dataclass(frozen=True)
class AnnouncedUpload:
    """A file that a client announces for a resumable upload: length and metadata.

    Attributes:
        length: bytes of the whole file.
        details: Upload-Metadata as sent.
        sha256: digest of the whole file in hexadecimal, if the client sent it.
    """

    length: int
    details: str | None = None
    sha256: str | None = None


def create_upload(
    db: Database,
    actor: Actor,
    announced: AnnouncedUpload,
    terms: UploadLimits,
    repeat: idempotency.IdempotentRequestIdentity | None = None,
) -> tuple[UploadOut, bool]:
    """Begin a resumable upload; return it, and True if an earlier response is repeated.

    Raises:
        StorageQuotaReached, BodyTooLarge: the owner has no room for these bytes.
        TooManyRequests: the owner has `terms.max_open` uploads already.
        IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
    """
    quota.require_storage_room(db, actor.owner_id, terms.max_owner_bytes, announced.length)
    with db.write() as session:
        now = db.now(session)
        replay = idempotency.find_earlier_response(session, actor, repeat)
        if replay is not None:
            return cast(UploadOut, replay.body), True
        row = Upload(
            id=new_id("upl"),
            owner_id=actor.owner_id,
            length=announced.length,
            offset=0,
            fence=0,
            details=announced.details,
            sha256=announced.sha256,
            expires_at=now + terms.hours * 3600,
            created_at=now,
        )
        session.add(row)
        session.flush()
        record_audit_entry(
            session, actor, AuditedChange("upload.create", row.id, {"bytes": announced.length}), now
        )
        response = build_upload_response(row)
        stored_response = idempotency.IdempotentResponse(
            201, {"Location": f"/v1/uploads/{row.id}"}, response
        )
        idempotency.store_idempotent_response(session, actor, repeat, stored_response, now)
        # At the end of the transaction, since it locks the owner's row.
        _require_open_uploads_within_limit(session, row, terms.max_open, now)
    return response, False


def read_upload_progress(db: Database, actor: Actor, upload: str) -> UploadProgress:
    """Return how many bytes of a resumable upload have arrived.

    Raises:
        NotFound: the caller sees no such upload.
    """
    with db.read() as session:
        return _build_upload_progress(find_upload(session, actor, upload, db.now(session)))


def list_uploads(db: Database, actor: Actor, *, limit: int, cursor: str | None) -> UploadPage:
    """Return a page of the caller's open uploads: not submitted, removed or expired.

    The newest comes first.
    """
    with db.read() as session:
        query = select(Upload).where(
            actor.build_visible_condition(Upload.owner_id), Upload.expires_at > db.now(session)
        )
        uploads: ListPage[Upload] = read_query_page(
            session, query, Upload.id, limit, cursor, descending=True
        )
        return {
            "items": [build_upload_response(row) for row in uploads.rows],
            "next_cursor": uploads.next_cursor,
        }


def lease_upload_to_write(db: Database, actor: Actor, upload: str, offset: int) -> LeasedUpload:
    """Lease an upload for a request that writes to it from `offset` on.

    Call `renew_upload_lease` every `RENEW_S` seconds, and `release_upload_lease` if nothing was
    written.

    Raises:
        NotFound: there is no such upload, or it has expired.
        OffsetMismatch: the upload is at another offset.
        UploadLocked: another request writes to it.
        Invalid: it has too many pieces.
    """
    with db.write() as session:
        now = db.now(session)
        row = find_upload(session, actor, upload, now, lock=True)
        if row.offset != offset:
            raise _make_upload_offset_error(row, offset)
        if row.held_until is not None and row.held_until > now:
            raise UploadLocked(
                f"Another request writes to {row.id}: wait until it has ended, ask by HEAD where "
                "it is, and go on there.",
                retry_after_s=2,
            )
        _require_piece_count_below_limit(session, row)
        # A request that has lost its lease has an older fence, and cannot advance the upload.
        row.fence += 1
        row.held_until = now + LEASE_S
        return LeasedUpload(row.id, row.owner_id, row.offset, row.length, row.fence)


def renew_upload_lease(db: Database, writing: LeasedUpload) -> None:
    """Renew the lease of a request that is still writing to an upload.

    It has no effect once another request has the lease.
    """
    with db.write() as session:
        until = db.now(session) + LEASE_S
        # A renewal that comes after the end of the lease must not begin it again.
        mine = update(Upload).where(
            *_build_lease_conditions(writing), Upload.held_until.is_not(None)
        )
        session.execute(mine.values(held_until=until))


def release_upload_lease(db: Database, writing: LeasedUpload) -> None:
    """End a request's lease on an upload; without effect once another request has the lease."""
    with db.write() as session:
        session.execute(
            update(Upload).where(*_build_lease_conditions(writing)).values(held_until=None)
        )


def require_storage_room_for_piece(
    db: Database, writing: LeasedUpload, size: int | None, terms: UploadLimits
) -> None:
    """Check that an upload's owner has storage left for a piece of `size` bytes (None if not known
    yet).

    Raises:
        StorageQuotaReached, BodyTooLarge: see `core.usage.quota`.
    """
    quota.require_storage_room(db, writing.owner_id, terms.max_owner_bytes, size)


def append_upload_piece(
    db: Database,
    store: ObjectStorage,
    actor: Actor,
    writing: LeasedUpload,
    piece: ReceivedUploadPiece,
    terms: UploadLimits,
) -> UploadProgress:
    """Store a piece of an upload, advance the upload past it, end the lease, and return the
    progress.

    Raises:
        NotFound: the upload was removed meanwhile.
        OffsetMismatch: another request has written to it meanwhile.
        StorageQuotaReached: its owner has no room for the piece.
        NotAuthenticated: the key has ended meanwhile.
    """
    key = chunks.make_upload_piece_key(writing.id, writing.offset, writing.fence)
    with store_archive_unless_block_fails(
        db, store, key, piece.path, chunks.find_referenced_upload_piece_keys
    ):
        hit_failpoint("upload-stored")
        with db.write() as session:
            now = db.now(session)
            # Checked here, since a piece leaves no audit row, whose writing would check it.
            require_caller_key_still_valid(session, actor, now)
            row = session.get(Upload, writing.id, with_for_update=True)
            if row is None:
                raise _make_missing_upload_error(writing.id)
            if (row.fence, row.offset) != (writing.fence, writing.offset):
                raise _make_upload_offset_error(row, writing.offset)
            chunk = StoredUploadPiece(
                upload_id=row.id, offset=row.offset, bytes=piece.bytes, sha256=piece.sha256, key=key
            )
            session.add(chunk)
            row.offset += piece.bytes
            row.held_until = None
            row.expires_at = now + terms.hours * 3600
            session.flush()
            state = _build_upload_progress(row)
            quota.add_upload_bytes_or_raise_if_full(
                session, row.owner_id, terms.max_owner_bytes, piece.bytes
            )
    hit_failpoint("upload-committed")
    return state


def delete_upload(db: Database, store: ObjectStorage, actor: Actor, upload: str) -> None:
    """Delete a resumable upload; a request that writes to it then finds it missing.

    Raises:
        NotFound: the caller sees no such upload.
    """
    with db.write() as session:
        now = db.now(session)
        row = find_upload(session, actor, upload, now, lock=True)
        record_audit_entry(
            session, actor, AuditedChange("upload.delete", row.id, {"bytes": row.offset}), now
        )
        keys = chunks.delete_upload_rows(session, row.id)
        stored_bytes.mark_owner_bytes_outdated(session, row.owner_id)
    # After the commit: if it failed, rows would name deleted objects.
    for key in keys:
        store.delete(key)


def find_upload(
    session: Session, actor: Actor, upload: str, now: float, *, lock: bool = False
) -> Upload:
    """Return the resumable upload of that id, if the caller sees it and it has not expired.

    Args:
        now: seconds since 1970 by the database's clock.
        lock: lock the row for writing.

    Raises:
        NotFound: there is none.
    """
    query = select(Upload).where(
        Upload.id == upload, actor.build_visible_condition(Upload.owner_id), Upload.expires_at > now
    )
    row = (
        session.scalars(query.with_for_update() if lock else query).first()
        if is_id(upload, "upl")
        else None
    )
    if row is None:
        raise _make_missing_upload_error(upload)
    return row


def build_upload_response(row: Upload) -> UploadOut:
    """Return a resumable upload as responses show it."""
    return {
        "id": row.id,
        "filename": _extract_filename_from_upload_metadata(row.details),
        "length": row.length,
        "offset": row.offset,
        "expires_at": format_rfc3339(row.expires_at),
        "created_at": format_rfc3339(row.created_at),
    }


def _extract_filename_from_upload_metadata(details: str | None) -> str | None:
    """Return the file name in an upload's metadata, with � for characters that cannot be printed.

    The metadata was checked when the upload began.
    """
    for pair in (details or "").split(","):
        name, _, value = pair.strip().partition(" ")
        if name == "filename":
            text = base64.b64decode(value).decode("utf-8", "replace")[:_FILENAME]
            return "".join(c if c.isprintable() else "\ufffd" for c in text) or None
    return None


def _build_upload_progress(row: Upload) -> UploadProgress:
    return UploadProgress(row.id, row.owner_id, row.offset, row.length, row.details, row.expires_at)


def _build_lease_conditions(writing: LeasedUpload) -> tuple[Any, ...]:
    """Return the SQL conditions that select an upload while this request has its lease."""
    return Upload.id == writing.id, Upload.fence == writing.fence


def _require_open_uploads_within_limit(
    session: Session, row: Upload, max_uploads: int, now: float
) -> None:
    """Check that an upload added by this transaction is within the limit of its owner's open
    uploads.

    Call this last in the transaction, since it locks the owner's row.
    """
    # Weaker than FOR UPDATE, with which transactions that have added rows of this owner would
    # deadlock.
    session.execute(
        select(Owner.id).where(Owner.id == row.owner_id).with_for_update(key_share=True)
    )
    # Expired uploads do not count, although the sweep may not have removed them yet.
    mine = (Upload.owner_id == row.owner_id, Upload.expires_at > now, Upload.id != row.id)
    if (session.scalar(select(func.count()).where(*mine)) or 0) < max_uploads:
        return
    oldest = list(
        session.scalars(select(Upload.id).where(*mine).order_by(Upload.id).limit(_LISTED))
    )
    raise TooManyRequests(
        f"You have {max_uploads} uploads that are neither submitted nor removed, the most that one owner "
        f"may have: submit some, or DELETE them at /v1/uploads/{{id}}; GET /v1/uploads lists all. "
        f"The oldest are {', '.join(oldest)}.",
        extra={"uploads": oldest},
    )


def _require_piece_count_below_limit(session: Session, row: Upload) -> None:
    """Check that an upload may have another piece within the limit on pieces."""
    max_pieces = SPARE_PIECES + row.length // LEAST_BYTES
    if (
        session.scalar(select(func.count()).where(StoredUploadPiece.upload_id == row.id)) or 0
    ) >= max_pieces:
        raise Invalid(
            f"{row.id} has {max_pieces} pieces, the most for its length: DELETE it, and begin again "
            f"with pieces of {LEAST_BYTES} bytes or more."
        )


def _make_upload_offset_error(row: Upload, offset: int) -> OffsetMismatch:
    return OffsetMismatch(
        f"Upload-Offset is {offset}, and {row.offset} of {row.length} bytes of {row.id} are here: "
        f"go on there.",
        extra={"offset": row.offset, "length": row.length},
    )


def _make_missing_upload_error(upload: str) -> NotFound:
    return NotFound(
        f"There is no upload {upload[:60]!r}: it never was, was submitted or removed, or has "
        "expired. Begin one by POST /v1/uploads."
    )
