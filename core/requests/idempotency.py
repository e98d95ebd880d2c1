"""Idempotency keys: a repeated request does its work only once.

The response to a finished request is stored for 24 h under (owner, route, key). While the first
request of a stream is under way, its row has no status and is renewed regularly. A row left behind
by a process that died is taken over after `STALE_S`.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, case, delete, null, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from core.database.session import Database, build_database_time_expression
from core.database.tables import IdempotencyRecord
from core.errors import IdempotencyInFlight, IdempotencyMismatch, Invalid
from core.requests.actor import Actor

STALE_S = 15.0
"""Seconds without renewal after which an in-flight row counts as abandoned."""
# Three renewals fit into `STALE_S`, so that one may come late.
RENEW_S = 4.0
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
# No header's name contains a colon, so these keys of `headers` cannot collide with one.
_TOKEN = ":token"
_REQUEST = ":request"


@dataclass(frozen=True)
class IdempotentRequestIdentity:
    """Identity of a request with an idempotency key; equal values mean the same request.

    Attributes:
        route: method and path template, such as `POST /v1/models`.
        key: key that the client sent.
        fingerprint: digest of everything that must be equal; "" for a stream that is not read yet.
        request: digest of the parts known before a stream is read (path, query, headers).
        content_sha256: digest of the body as sent.
        token: random mark of the row that belongs to this request.
    """

    route: str
    key: str
    fingerprint: str
    request: str = ""
    content_sha256: str | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True)
class IdempotentResponse:
    """Response that every repetition of a request with the same idempotency key gets."""

    status: int
    headers: dict[str, str]
    body: object


@dataclass(frozen=True)
class ReplayedResponse:
    """Earlier response to a request with an idempotency key, to be sent again."""

    status: int
    headers: dict[str, str]
    body: object
    fingerprint: str
    content_sha256: str | None
    request: str


def check_idempotency_key_form(key: str | None) -> str | None:
    """Return the client's idempotency key after checking its form.

    Raises:
        Invalid: the key is not 1 to 255 visible ASCII characters.
    """
    if key is not None and not _KEY.fullmatch(key):
        raise Invalid(
            "Idempotency-Key must be 1 to 255 visible ASCII characters.",
            fields=[
                {"field": "Idempotency-Key", "message": "not 1 to 255 visible ASCII characters"}
            ],
        )
    return key


def digest_request_for_idempotency(*parts: str | None) -> str:
    """Compute a digest of a request's parts; their boundaries are part of it."""
    digest = hashlib.sha256()
    for part in parts:
        data = b"" if part is None else part.encode("utf-8", "surrogatepass")
        # Lengths mark the boundaries: otherwise ("ab", "c") and ("a", "bc") would be equal.
        digest.update(b"-" if part is None else f"{len(data)}:".encode() + data)
    return digest.hexdigest()


def make_reused_idempotency_key_error() -> IdempotencyMismatch:
    """Return the error for an idempotency key that was already used with another request."""
    return IdempotencyMismatch(
        "This Idempotency-Key was used with another request: take a new key for a new request."
    )


def build_request_in_progress_error() -> IdempotencyInFlight:
    """Return the error for a repeated request whose first one is still in progress."""
    return IdempotencyInFlight(
        "The first request with this Idempotency-Key has not been answered yet: try again shortly.",
        retry_after_s=2,
    )


def find_earlier_response(
    session: Session, actor: Actor, request: IdempotentRequestIdentity | None
) -> ReplayedResponse | None:
    """Return the response to an earlier request with the same idempotency key, or None.

    Raises:
        IdempotencyMismatch: the key belongs to another request.
        IdempotencyInFlight: the first request is still under way.
    """
    if request is None:
        return None
    row = _find_record_or_delete_expired(session, actor, request)
    if row is None:
        return None
    if row.status is None:
        # `begin_idempotent_request` has added this row for the very same request.
        if row.headers.get(_TOKEN) == request.token:
            return None
        raise build_request_in_progress_error()
    if row.fingerprint != request.fingerprint:
        raise make_reused_idempotency_key_error()
    return _build_replayed_response(row)


def store_idempotent_response(
    session: Session,
    actor: Actor,
    request: IdempotentRequestIdentity | None,
    response: IdempotentResponse,
    now: float,
) -> None:
    """Store the response for an idempotency key, in the transaction of the work itself.

    It does nothing for a request without a key.

    Raises:
        IdempotencyInFlight: another request has the key: it took over a row that seemed abandoned,
            or it came at the same moment and was first.
    """
    if request is None:
        return
    values = {
        "fingerprint": request.fingerprint,
        "content_sha256": request.content_sha256,
        "status": response.status,
        "headers": {**response.headers, _REQUEST: request.request},
        "body": null() if response.body is None else response.body,
        "created_at": now,
    }
    # A row without a token has a response already; it is not equal to any token.
    is_own = IdempotencyRecord.headers[_TOKEN].as_string() == request.token
    if not _write_idempotency_row(session, actor, request, values, is_own):
        raise build_request_in_progress_error()


def begin_idempotent_request(
    db: Database, actor: Actor, request: IdempotentRequestIdentity
) -> ReplayedResponse | None:
    """Mark an idempotency key as in progress before a body is read, or return the earlier response.

    Raises:
        IdempotencyInFlight: a request with this key is under way.
    """
    with db.write() as session:
        now = build_database_time_expression(session)
        values = {
            "fingerprint": "",
            "content_sha256": None,
            "status": None,
            "headers": {_TOKEN: request.token},
            "body": null(),
            "created_at": now,
        }
        # One statement, since nearly every upload has a new key. Of two requests at once, the
        # second waits here until the first has committed its row.
        if _write_idempotency_row(
            session, actor, request, values, _build_free_idempotency_key_condition(now)
        ):
            return None
        row = _find_record_or_delete_expired(session, actor, request)
        if row is None or row.status is None:
            raise build_request_in_progress_error()
        return _build_replayed_response(row)


def renew_idempotent_request(
    db: Database, actor: Actor, request: IdempotentRequestIdentity
) -> None:
    """Mark a request with an idempotency key as still in progress; call this every `RENEW_S`
    seconds.
    """
    with db.write() as session:
        now = db.now(session)
        session.execute(
            update(IdempotencyRecord)
            # Once the response is stored, its 24 h run: a late renewal must not begin them again.
            .where(
                *_build_idempotency_key_conditions(actor, request),
                IdempotencyRecord.status.is_(None),
            )
            .values(created_at=now)
        )


def release_idempotency_key(db: Database, actor: Actor, request: IdempotentRequestIdentity) -> None:
    """Release the idempotency key of a request that failed, so that it can be used again."""
    with db.write() as session:
        row = session.get(IdempotencyRecord, (actor.owner_id, request.route, request.key))
        # Another request may have taken over the row, and its work goes on.
        if row is not None and row.status is None and row.headers.get(_TOKEN) == request.token:
            session.delete(row)


def _build_idempotency_key_conditions(
    actor: Actor, request: IdempotentRequestIdentity
) -> tuple[Any, ...]:
    return (
        IdempotencyRecord.owner_id == actor.owner_id,
        IdempotencyRecord.route == request.route,
        IdempotencyRecord.key == request.key,
    )


def _build_free_idempotency_key_condition(now: ColumnElement[float]) -> ColumnElement[bool]:
    """Return the condition that an idempotency key is free again: its request was abandoned, or its
    response expired.
    """
    kept_s = case((IdempotencyRecord.status.is_(None), STALE_S), else_=IdempotencyRecord.KEPT_S)
    return now - IdempotencyRecord.created_at > kept_s


def _write_idempotency_row(
    session: Session,
    actor: Actor,
    request: IdempotentRequestIdentity,
    values: dict[str, Any],
    replaces: ColumnElement[bool],
) -> bool:
    """Write the row of an idempotency key; return False if another row exists that `replaces` does
    not cover.
    """
    is_postgresql = session.get_bind().dialect.name == "postgresql"
    insert = (postgresql if is_postgresql else sqlite).insert(IdempotencyRecord)
    key = {"owner_id": actor.owner_id, "route": request.route, "key": request.key}
    new = insert.values(**key, **values)
    as_new = {name: new.excluded[name] for name in values}
    upsert = new.on_conflict_do_update(index_elements=list(key), set_=as_new, where=replaces)
    # By the returned row, since drivers do not report the number of inserted rows alike.
    return session.execute(upsert.returning(IdempotencyRecord.key)).first() is not None


def _find_record_or_delete_expired(
    session: Session, actor: Actor, request: IdempotentRequestIdentity
) -> IdempotencyRecord | None:
    """Return the unexpired record of an idempotency key; an expired one is deleted."""
    query = select(
        IdempotencyRecord,
        _build_free_idempotency_key_condition(build_database_time_expression(session)),
    ).where(*_build_idempotency_key_conditions(actor, request))
    # Locked, so that of two repetitions at once the second waits for the response of the first.
    query = query.with_for_update().execution_options(populate_existing=True)
    match = session.execute(query).one_or_none()
    if match is None:
        return None
    row, has_ended = match
    if has_ended:
        session.execute(
            delete(IdempotencyRecord).where(*_build_idempotency_key_conditions(actor, request))
        )
        # The row was deleted by SQL, so the session must not return it for the same key.
        session.expunge(row)
        return None
    return row


def _build_replayed_response(row: IdempotencyRecord) -> ReplayedResponse:
    headers = {k: v for k, v in row.headers.items() if not k.startswith(":")}
    return ReplayedResponse(
        row.status or 200,
        headers,
        row.body,
        row.fingerprint,
        row.content_sha256,
        row.headers.get(_REQUEST, ""),
    )
