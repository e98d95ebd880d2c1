"""Sessions of the pages: who logs in with a key has one, and its token stands for the key.

The token is 32 random bytes that the browser alone keeps; here is its sha256, together with the host and port at which
it was given: it stands for nobody at another. A session ends after 12 hours, after two without a request, when it is
ended, and with its key.
"""

import hashlib
import secrets

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Key, UserSession
from core.errors import NotAllowed, NotAuthenticated
from core.requests import keys
from core.requests.actor import Actor
from core.requests.audit import LOG_OUT, record

LIFE_S = 12 * 3600.0
IDLE_S = 2 * 3600.0
MOST = 20
"""Sessions of one key: one more ends the oldest."""


def at(token: str, place: str) -> str:
    """A token with the place at which it counts: `digest` and `end` take it so.

    Args:
        place: host and port, as the browser names them in `Host`.
    """
    return f"{token} {place.lower()}"


def digest(token: str) -> str:
    """Return what is stored of a token with its place: its sha256, in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def begin(db: Database, secret: str, place: str) -> str:
    """Log in with a key. Returns the token without its place, which is never shown again.

    Args:
        place: host and port at which the session counts.

    Raises:
        NotAuthenticated: the key is unknown, revoked or expired.
        NotAllowed: it opens no page.
    """
    prefix = keys.prefix_of(secret)
    if prefix is None:
        raise NotAuthenticated("This is no Perennial key: it begins with pk_ and has 59 characters.")
    with db.read() as session:  # a guess takes no lock
        _require(session, prefix, secret, db.now(session))
    token = secrets.token_urlsafe(32)
    with db.write() as session:
        now = db.now(session)
        key = _require(session, prefix, secret, now)
        session.execute(delete(UserSession).where(UserSession.expires_at <= now))
        newest = (
            select(UserSession.hash)
            .where(UserSession.key_id == key.id)
            .order_by(UserSession.created_at.desc(), UserSession.hash)
        )
        too_many = session.scalars(newest.offset(MOST - 1)).all()
        session.execute(delete(UserSession).where(UserSession.hash.in_(too_many)))
        session.add(
            UserSession(
                hash=digest(at(token, place)),
                key_id=key.id,
                created_at=now,
                seen_at=now,
                expires_at=now + LIFE_S,
            )
        )
        actor = Actor(key.owner_id, key.id, key.scope)
        record(session, actor, "session.begin", key.id, {"name": key.name}, now=now)
    return token


def end(db: Database, token: str) -> None:
    """Log out. A token (with its place) that stands for nothing changes nothing."""
    with db.write() as session:
        row = session.get(UserSession, digest(token))
        if row is None:
            return
        key = session.get_one(Key, row.key_id)
        session.delete(row)
        actor = Actor(key.owner_id, key.id, key.scope)
        record(session, actor, LOG_OUT, key.id, {"name": key.name}, now=db.now(session))


def _require(session: Session, prefix: str, secret: str, now: float) -> Key:
    """The key of that text. One answer for unknown, wrong, revoked and expired: a guesser learns nothing."""
    key = session.scalars(select(Key).where(Key.prefix == prefix)).first()
    right = keys.matches(secret, "0" * 64 if key is None else key.hash)
    if key is None or not right or key.revoked_at is not None or (key.expires_at or now + 1) <= now:
        raise NotAuthenticated("The key is unknown, revoked or expired.")
    if key.scope == "scrape":
        raise NotAllowed("A key of scope scrape reads the figures at /metrics, and opens no page.")
    if key.scope == "predict":
        raise NotAllowed("A key of scope predict asks one alias of one model, and opens no page.")
    return key
