"""Sessions of the web pages: a person logs in with a key, and a token then stands for it.

The token is 32 random bytes that only the browser keeps. The database has the SHA-256 of the token
and of the host and port where it was issued; it is not valid elsewhere. A session ends after 12
hours, after two hours without a request, on logout, and together with its key.
"""

import hashlib
import secrets

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.tables import AccessKey, UserSession
from core.errors import InsufficientKeyScope, NotAuthenticated
from core.keys import keys
from core.requests.actor import Actor
from core.requests.audit import LOG_OUT, AuditedChange, record_audit_entry

LIFE_S = 12 * 3600.0
IDLE_S = 2 * 3600.0
MOST = 20
"""Maximum number of sessions of one key; another one ends the oldest."""


def combine_session_token_and_host(token: str, host_and_port: str) -> str:
    """Combine a session token with the host and port where it is valid, as `digest_session_token`
    and `end_browser_session` expect it.

    Args:
        host_and_port: host and port, as the browser sends them in `Host`.
    """
    # Names of hosts are the same in upper and lower case.
    return f"{token} {host_and_port.lower()}"


def digest_session_token(token: str) -> str:
    """Return the SHA-256 of a session token in hexadecimal, which is stored in place of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


def begin_browser_session(db: Database, secret: str, host_and_port: str) -> str:
    """Log in on the web pages with an access key; return the session token, which is never shown
    again.

    Args:
        host_and_port: host and port where the session is valid.

    Raises:
        NotAuthenticated: the key is unknown, revoked or expired.
        InsufficientKeyScope: a key of this scope opens no pages.
    """
    prefix = keys.parse_access_key_prefix(secret)
    if prefix is None:
        raise NotAuthenticated(
            "This is no Perennial key: it begins with pk_ and has 59 characters."
        )
    with db.read() as session:  # a wrong guess takes no write lock
        _require_valid_access_key(session, prefix, secret, db.now(session))
    token = secrets.token_urlsafe(32)
    with db.write() as session:
        now = db.now(session)
        # Again, since the key may have been revoked after the read above.
        key = _require_valid_access_key(session, prefix, secret, now)
        session.execute(delete(UserSession).where(UserSession.expires_at <= now))
        newest = (
            select(UserSession.hash)
            .where(UserSession.key_id == key.id)
            .order_by(UserSession.created_at.desc(), UserSession.hash)
        )
        # One fewer than MOST stay, to make room for the new session.
        too_many = session.scalars(newest.offset(MOST - 1)).all()
        session.execute(delete(UserSession).where(UserSession.hash.in_(too_many)))
        session.add(
            UserSession(
                hash=digest_session_token(combine_session_token_and_host(token, host_and_port)),
                key_id=key.id,
                created_at=now,
                seen_at=now,
                expires_at=now + LIFE_S,
            )
        )
        actor = Actor(key.owner_id, key.id, key.scope)
        record_audit_entry(
            session, actor, AuditedChange("session.begin", key.id, {"name": key.name}), now
        )
    return token


def end_browser_session(db: Database, token: str) -> None:
    """Log out of the web pages; an unknown token changes nothing."""
    with db.write() as session:
        row = session.get(UserSession, digest_session_token(token))
        if row is None:
            return
        key = session.get_one(AccessKey, row.key_id)
        session.delete(row)
        actor = Actor(key.owner_id, key.id, key.scope)
        record_audit_entry(
            session, actor, AuditedChange(LOG_OUT, key.id, {"name": key.name}), db.now(session)
        )


def _require_valid_access_key(session: Session, prefix: str, secret: str, now: float) -> AccessKey:
    """Return the access key of that text, if it is valid.

    Unknown, wrong, revoked and expired keys get the same response, so that guessing reveals
    nothing.
    """
    key = session.scalars(select(AccessKey).where(AccessKey.prefix == prefix)).first()
    # Always compare, so that an unknown prefix takes as long as a wrong secret.
    right = keys.does_access_key_match_digest(secret, "0" * 64 if key is None else key.hash)
    if key is None or not right or key.revoked_at is not None or (key.expires_at or now + 1) <= now:
        raise NotAuthenticated("The key is unknown, revoked or expired.")
    if key.scope == "scrape":
        raise InsufficientKeyScope(
            "A key of scope scrape reads the figures at /metrics, and opens no page."
        )
    if key.scope == "predict":
        raise InsufficientKeyScope(
            "A key of scope predict asks one alias of one model, and opens no page."
        )
    return key
