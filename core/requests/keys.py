"""Access keys: made once, shown once, kept only as a digest.

A key reads `pk_<prefix>_<secret>`: the prefix (12 characters) finds the row, the secret carries 256 random
bits. Only the sha256 of the whole text is stored, and comparison takes the same time for every wrong key.
"""

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Key, Owner, UserSession
from core.errors import Invalid, NotFound, WrongState
from core.ids import NAME_PATTERN, is_plain_name, new_id
from core.protocol.answers.audit import AuditData
from core.protocol.answers.key import KeyBound, KeyOut, KeyPage, NewKey
from core.requests import predict_keys
from core.requests.actor import COVERS, Actor
from core.requests.audit import record
from core.requests.pages import page
from core.requests.times import rfc3339, seconds

SCOPES = tuple(COVERS)
ADMIN_OWNER = "admin"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_PREFIX_LENGTH = 12
_KEY = re.compile(rf"pk_([a-z0-9]{{{_PREFIX_LENGTH}}})_[A-Za-z0-9_-]{{43}}")


def prefix_of(secret: str) -> str | None:
    """The public prefix of a key's text, or None when it does not look like a key."""
    match = _KEY.fullmatch(secret)
    return match.group(1) if match else None


def digest(secret: str) -> str:
    """What is stored of a key: the sha256 of its text, in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


def matches(secret: str, stored_hash: str) -> bool:
    """Whether a key's text belongs to a stored digest; takes constant time."""
    return hmac.compare_digest(digest(secret), stored_hash)


def new_secret() -> tuple[str, str]:
    """Return (text of a fresh key, its prefix)."""
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(_PREFIX_LENGTH))
    return f"pk_{prefix}_{secrets.token_urlsafe(32)}", prefix


def create(
    db: Database,
    actor: Actor,
    *,
    name: str,
    owner: str | None,
    scope: str,
    expires_at: str | None,
    wanted: predict_keys.Wanted = predict_keys.NOTHING,
) -> NewKey:
    """Make a key for the owner of that name (made at first mention; default: the caller's own).

    A key of scope predict is always of its model's owner.

    Args:
        wanted: what a key of scope predict is to ask.

    Returns the key with `secret`, which is never shown again.

    Raises:
        Invalid: an unknown scope, a bad owner name, or an expiry in the past; or as `predict_keys.check`.
        NameAmbiguous: as `predict_keys.find_bound`.
    """
    if scope not in SCOPES:
        raise Invalid(f"Unknown scope {scope!r}: use one of {', '.join(SCOPES)}.")
    if owner is not None and not is_plain_name(owner):
        raise Invalid(
            f"An owner's name must match {NAME_PATTERN}.", fields=[{"field": "owner", "message": "bad name"}]
        )
    with db.write() as session:
        now = db.now(session)
        expires = seconds(expires_at) if expires_at is not None else None
        if expires is not None and expires <= now:
            raise Invalid(
                "The key would be expired from the start: expires_at must be in the future.",
                fields=[{"field": "expires_at", "message": "is in the past"}],
            )
        predict_keys.check(scope, wanted, expires, now)
        model = None
        if scope == "predict":
            row, model = predict_keys.find_bound(session, actor, owner, wanted)
        else:
            row = session.get_one(Owner, actor.owner_id) if owner is None else _owner(session, owner, now)
        key, secret = _make(session, row, name=name, scope=scope, expires=expires, now=now)
        data: AuditData = {"owner": row.name, "scope": scope, "name": name}
        bound: KeyBound | None = None
        if model is not None:
            bound = predict_keys.shown(predict_keys.bind(session, key, model, wanted), model.name, now)
            data |= {"model": model.id, "alias": bound["alias"]}
        record(session, actor, "key.create", key.id, data, now=now)
        return {**_to_json(key, row.name, bound), "secret": secret}


def list_keys(
    db: Database, actor: Actor, *, limit: int, cursor: str | None, newest_first: bool = False
) -> KeyPage:
    """All keys, newest last; revoked ones too (`revoked_at`), never a secret."""
    del actor  # the route admits administrators only, and they see all
    with db.read() as session:
        query: Any = select(Key, Owner.name).join(Owner, Owner.id == Key.owner_id)
        found = page(session, query, Key.id, limit, cursor, descending=newest_first)
        bounds = predict_keys.bounds(session, [row.Key.id for row in found.rows], db.now(session))
        items = [_to_json(row.Key, row.name, bounds.get(row.Key.id)) for row in found.rows]
        return {"items": items, "next_cursor": found.next_cursor}


def revoke(db: Database, actor: Actor, key_id: str) -> None:
    """End a key at once, and who has logged in with it. A second call changes nothing.

    Raises:
        NotFound: no such key.
        WrongState: it is the key of this very request: nobody is to lock himself out by mistake.
    """
    if key_id == actor.key_id:
        raise WrongState("A key cannot revoke itself: use another admin key.", extra={"state": "in-use"})
    with db.write() as session:
        key = session.get(Key, key_id)
        if key is None:
            raise NotFound(f"There is no key {key_id!r}.")
        if key.revoked_at is None:
            now = db.now(session)
            key.revoked_at = now
            session.execute(delete(UserSession).where(UserSession.key_id == key.id))
            record(session, actor, "key.revoke", key.id, {"name": key.name}, now=now)


def ensure_admin_key(db: Database, data_dir: Path) -> str | None:
    """Make the first admin key when no admin key exists, and leave it in `<data dir>/admin-key` (0600).

    Returns the key's text, or None when there was one already. Safe in several processes at once: the
    database decides who is first, and the file is complete before the key is valid.
    """
    with db.write() as session:
        now = db.now(session)
        owner = _owner(session, ADMIN_OWNER, now)  # one process at a time from here
        valid = select(Key.id).where(
            Key.scope == "admin",
            Key.revoked_at.is_(None),
            (Key.expires_at.is_(None)) | (Key.expires_at > now),
        )
        if session.execute(valid.limit(1)).first() is not None:
            return None
        _, secret = _make(session, owner, name="first admin key", scope="admin", expires=None, now=now)
        _write_private(data_dir / "admin-key", secret + "\n")
        return secret


def _owner(session: Session, name: str, now: float) -> Owner:
    """The owner of that name, made when new; its row stays locked until the transaction ends."""
    values = {"id": new_id("own"), "name": name, "created_at": now}
    if session.get_bind().dialect.name == "postgresql":
        session.execute(postgresql.insert(Owner).values(values).on_conflict_do_nothing())
    else:
        session.execute(sqlite.insert(Owner).values(values).on_conflict_do_nothing())
    return session.scalars(select(Owner).where(Owner.name == name).with_for_update()).one()


def _make(
    session: Session, owner: Owner, *, name: str, scope: str, expires: float | None, now: float
) -> tuple[Key, str]:
    secret, prefix = new_secret()
    key = Key(
        id=new_id("key"),
        owner_id=owner.id,
        name=name,
        prefix=prefix,
        hash=digest(secret),
        scope=scope,
        expires_at=expires,
        revoked_at=None,
        last_used_at=None,
        created_at=now,
    )
    session.add(key)
    session.flush()
    return key, secret


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _to_json(key: Key, owner: str, bound: KeyBound | None) -> KeyOut:
    return {
        "id": key.id,
        "name": key.name,
        "owner": owner,
        "scope": key.scope,
        "prefix": key.prefix,
        "expires_at": rfc3339(key.expires_at),
        "revoked_at": rfc3339(key.revoked_at),
        "last_used_at": rfc3339(key.last_used_at),
        "created_at": rfc3339(key.created_at),
        "bound": bound,
    }
