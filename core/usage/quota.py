"""Limits on an owner's stored bytes (`PERENNIAL_MAX_OWNER_BYTES`) and open jobs.

Both are checked before an upload is read, by its declared length. They are checked again in the
transaction that accepts it, so that concurrent uploads cannot exceed the limit together. A refusal
relies on a sum that is at most `FRESH_S` old and not older than the last deletion, so that deleting
helps at once. Published versions and exports count but are never refused: a full store does not
cost anyone a version or a download.
"""

from sqlalchemy import Select, SQLColumnExpression, func, select
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.states import UNFINISHED
from core.database.tables import Job, Owner
from core.errors import BodyTooLarge, StorageQuotaReached, TooManyRequests
from core.usage import stored_bytes

FRESH_S = 10.0
RETRY_S = 60


def require_storage_room(db: Database, owner_id: str, limit: int, size: int | None) -> None:
    """Check that an owner has storage left for an upload of `size` bytes (None if not known yet).

    Args:
        limit: bytes allowed; 0 for no limit.

    Raises:
        BodyTooLarge: the upload alone exceeds the limit.
        StorageQuotaReached: the upload does not fit beside the owner's stored bytes.
    """
    if not limit:
        return
    # At least one byte, so that a full owner is refused even while the size is unknown.
    size = max(1, size or 0)
    if size > limit:
        raise BodyTooLarge(f"One owner may store {limit} bytes; this upload alone has {size}.")
    with db.read() as session:
        used_bytes, at = stored_bytes.read_measured_owner_bytes(session, owner_id)
        now = db.now(session)
    # A measurement in the future means that the clock was set back since.
    if used_bytes is None or (
        used_bytes + size > limit and (at is None or not 0 <= now - at <= FRESH_S)
    ):
        used_bytes = stored_bytes.measure_and_store_owner_bytes(db, owner_id)
    if used_bytes + size > limit:
        raise _make_storage_full_error(used_bytes, limit, size)


def add_upload_bytes_or_raise_if_full(
    session: Session, owner_id: str, limit: int, size: int
) -> None:
    """Add an upload's bytes to its owner's stored bytes, in the transaction that accepts it.

    Call `require_storage_room` before the transaction, and this last in it.

    Raises:
        StorageQuotaReached: another upload took the room meanwhile.
    """
    if not limit:
        stored_bytes.add_stored_bytes(session, owner_id, size)
    elif not stored_bytes.try_add_stored_bytes_within_limit(session, owner_id, size, limit):
        raise _make_storage_full_error(
            stored_bytes.read_measured_owner_bytes(session, owner_id)[0] or 0, limit, size
        )


def require_open_jobs_below_limit(open_jobs: int, limit: int) -> None:
    """Check that an owner has fewer than `limit` unfinished jobs, so that another may be added.

    Args:
        open_jobs: number of the owner's unfinished jobs, see `build_open_job_count_query`.

    Raises:
        TooManyRequests: the owner has as many already.
    """
    if open_jobs >= limit:
        raise _build_job_limit_error(limit)


def require_added_job_within_limit(
    session: Session, owner_id: str, limit: int, *, is_locked: bool = False
) -> None:
    """Check that a job added by this transaction does not exceed its owner's limit of unfinished
    jobs.

    Call this last in the transaction, since it locks the owner's row.

    Args:
        limit: jobs allowed; 0 for no limit.
        is_locked: True if this transaction already holds the owner's row because it has changed it.

    Raises:
        TooManyRequests: concurrent requests have added jobs up to the limit.
    """
    if not limit:
        return
    if not is_locked:
        # Weaker than FOR UPDATE, with which transactions that have added rows of this owner would
        # deadlock.
        session.execute(
            select(Owner.id).where(Owner.id == owner_id).with_for_update(key_share=True)
        )
    # The job of this transaction is counted already, so as many as `limit` are allowed.
    # A statement of its own: one that waits for the owner's row would not see the jobs that were
    # committed meanwhile.
    if (session.scalar(build_open_job_count_query(owner_id)) or 0) > limit:
        raise _build_job_limit_error(limit)


def build_open_job_count_query(owner_id: str | SQLColumnExpression[str]) -> Select[int]:
    """Return the query that counts an owner's unfinished jobs."""
    return select(func.count()).where(Job.owner_id == owner_id, Job.state.in_(sorted(UNFINISHED)))


def _build_job_limit_error(limit: int) -> TooManyRequests:
    return TooManyRequests(
        f"There are {limit} unfinished jobs, the most that one owner may have:"
        " wait for some to finish, or cancel some.",
        retry_after_s=RETRY_S,
    )


def _make_storage_full_error(used_bytes: int, limit: int, size: int) -> StorageQuotaReached:
    return StorageQuotaReached(
        f"{used_bytes} of the {limit} bytes that one owner may store are taken"
        f", and this upload has {size if size > 1 else 'more'}. Delete models, a task's data, a "
        "model's memory or open uploads (GET /v1/uploads), or ask for a higher limit.",
        extra={"used": used_bytes, "limit": limit},
        retry_after_s=RETRY_S,
    )
