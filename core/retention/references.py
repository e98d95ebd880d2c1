"""Blobs in use, and the lock that keeps a blob from being deleted while a new row refers to it.

Blobs are shared by digest, so a deletion must not race with a transaction that is about to refer to
the blob. A transaction that writes a reference holds the lock shared, and checks that the blob is
still there. A transaction that deletes holds the lock exclusively and deletes inside the
transaction. SQLite has one writer at a time, which has the same effect.
"""

from typing import Any

from sqlalchemy import ColumnElement, Select, String, column, or_, select, text, values
from sqlalchemy.orm import InstrumentedAttribute, Session

from core.database.tables import (
    ExportedDownload,
    Model,
    Task,
    TaskFileBeforeEdit,
    TrialFile,
    UploadedBase,
    VersionPart,
    VersionTaskResult,
)

_LOCK = 0x7065_7265_626C  # an arbitrary constant of ours: "perebl"


def lock_blob_references_against_deletion(session: Session) -> None:
    """Lock references to blobs, so that no blob is deleted until the transaction ends."""
    _take_blob_references_lock(session, "pg_advisory_xact_lock_shared")


def lock_blob_references_exclusively(session: Session) -> None:
    """Lock references to blobs, so that nobody else writes references or deletes blobs until the
    transaction ends.
    """
    _take_blob_references_lock(session, "pg_advisory_xact_lock")


def _take_blob_references_lock(session: Session, function: str) -> None:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SELECT {function}(:key)"), {"key": _LOCK})


def _build_digest_reference_queries() -> list[Select[Any]]:
    """Return, for each kind of reference, a query for the blob digests in use."""
    return [
        select(VersionPart.sha256).where(VersionPart.deleted_at.is_(None)),
        select(ExportedDownload.sha256),
        select(UploadedBase.sha256),
        select(Model.totals_sha256).where(Model.totals_sha256.is_not(None)),
        select(Task.train_sha256).where(
            Task.train_sha256.is_not(None), Task.train_deleted_at.is_(None)
        ),
        select(Task.held_out_sha256).where(
            Task.held_out_sha256.is_not(None), Task.held_out_deleted_at.is_(None)
        ),
        select(VersionTaskResult.answers).where(VersionTaskResult.answers.is_not(None)),
        select(Task.traces_sha256).where(
            Task.traces_sha256.is_not(None), Task.held_out_deleted_at.is_(None)
        ),
        select(TaskFileBeforeEdit.sha256),
        select(TrialFile.sha256),
        select(Task.features_sha256).where(
            Task.features_sha256.is_not(None), Task.held_out_deleted_at.is_(None)
        ),
        select(Task.selection_sha256).where(
            Task.selection_sha256.is_not(None), Task.held_out_deleted_at.is_(None)
        ),
    ]


def build_digest_expression_without_index(digest: InstrumentedAttribute[str]) -> ColumnElement[str]:
    """Return the SQL expression of a part's digest, so written that no index of digests is used.

    A base's blob may be part of versions of thousands of models, while the model's own versions are
    few.
    """
    return digest + ""


def find_digests_still_in_use(session: Session, digests: list[str]) -> set[str]:
    """Return which blob `digests` (at most some hundreds) rows still refer to.

    Each is looked up until its first use, because a base's blob may have a hundred thousand uses.
    """
    if not digests:
        return set()
    candidates = (
        values(column("sha256", String), name="asked")
        .data([(digest,) for digest in set(digests)])
        .cte()
    )
    # Not EXISTS: PostgreSQL may evaluate that by reading the whole table once.
    first = [
        query.where(query.selected_columns[0] == candidates.c.sha256).limit(1).scalar_subquery()
        for query in _build_digest_reference_queries()
    ]
    return set(
        session.execute(
            select(candidates.c.sha256).where(or_(*(one.is_not(None) for one in first)))
        ).scalars()
    )


def list_next_digests_in_use(session: Session, digest: str, limit: int) -> list[str]:
    """Return the next blob digests that rows refer to, after `digest`, in order."""
    digests: set[str] = set()
    for query in _build_digest_reference_queries():
        column_ = query.selected_columns[0]
        digests.update(
            session.scalars(query.where(column_ > digest).distinct().order_by(column_).limit(limit))
        )
    return sorted(digests)[:limit]
