"""Access keys: created once, shown once, and stored only as a digest.

A key reads `pk_<prefix>_<secret>`: the prefix (12 characters) finds the row, and the secret carries
256 random bits. Only the SHA-256 digest of the whole text is stored, and a comparison takes the
same time for every wrong key.
"""

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from core.contract.responses.audit import AuditData
from core.contract.responses.key import KeyBound, KeyOut, KeyPage, NewKey
from core.contract.responses.me import MeOut, OwnerLimits, ServiceOut
from core.database.session import Database
from core.database.tables import AccessKey, Owner, UserSession
from core.errors import Invalid, NotFound, WrongState
from core.export.registry import FORMATS
from core.ids import NAME_PATTERN, has_name_form, new_id
from core.ingest.readers.registry import UPLOAD_TYPES
from core.keys import predict_keys
from core.requests.actor import COVERS, Actor
from core.requests.audit import AuditedChange, record_audit_entry
from core.requests.pages import read_query_page
from core.requests.timestamps import format_rfc3339, parse_rfc3339
from core.settings import Settings

SCOPES = tuple(COVERS)
ADMIN_OWNER = "admin"
# Without "_", which separates the parts of a key.
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_PREFIX_LENGTH = 12
_KEY = re.compile(rf"pk_([a-z0-9]{{{_PREFIX_LENGTH}}})_[A-Za-z0-9_-]{{43}}")


def parse_access_key_prefix(secret: str) -> str | None:
    """Return the public prefix of an access key's text, or None if it does not look like a key."""
    match = _KEY.fullmatch(secret)
    return match.group(1) if match else None


def digest_access_key(secret: str) -> str:
    """Return the digest of an access key that is stored: the SHA-256 of its text, in hexadecimal."""
    # A slow hash is not needed: 256 random bits cannot be guessed, and each request computes this.
    return hashlib.sha256(secret.encode()).hexdigest()


def does_access_key_match_digest(secret: str, stored_hash: str) -> bool:
    """Return True if an access key's text belongs to a stored digest; takes constant time."""
    return hmac.compare_digest(digest_access_key(secret), stored_hash)


def generate_access_key() -> tuple[str, str]:
    """Generate the text of a new random access key; return it with its prefix."""
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(_PREFIX_LENGTH))
    return f"pk_{prefix}_{secrets.token_urlsafe(32)}", prefix


@dataclass(frozen=True)
class RequestedKey:
    """Request for a new access key: name, scope, owner and expiry.

    Attributes:
        owner: name of the owner; None for the caller's own.
        expires_at: time in RFC 3339; None for a key that does not expire.
        wanted: model and alias that a key of scope predict may ask.
    """

    name: str
    scope: str
    owner: str | None = None
    expires_at: str | None = None
    wanted: predict_keys.RequestedKeyModelAndLimits = predict_keys.NOTHING


def create_key(db: Database, actor: Actor, requested: RequestedKey) -> NewKey:
    """Create an access key for the owner of that name.

    A name that is new creates its owner. A key of scope predict always belongs to the owner of its
    model.

    Returns:
        The key with its `secret`, which is never shown again.

    Raises:
        Invalid: the scope is unknown, the owner's name is not allowed, or the expiry is in the
            past; see also `predict_keys.check_requested_key_settings`.
        NameAmbiguous: see `predict_keys.find_model_of_new_predict_key`.
    """
    name, scope, owner = requested.name, requested.scope, requested.owner
    binding = requested.wanted
    if scope not in SCOPES:
        raise Invalid(f"Unknown scope {scope!r}: use one of {', '.join(SCOPES)}.")
    if owner is not None and not has_name_form(owner):
        raise Invalid(
            f"An owner's name must match {NAME_PATTERN}.",
            fields=[{"field": "owner", "message": "bad name"}],
        )
    with db.write() as session:
        now = db.now(session)
        expires = None if requested.expires_at is None else parse_rfc3339(requested.expires_at)
        if expires is not None and expires <= now:
            raise Invalid(
                "The key would be expired from the start: expires_at must be in the future.",
                fields=[{"field": "expires_at", "message": "is in the past"}],
            )
        predict_keys.check_requested_key_settings(scope, binding, expires, now)
        model = None
        if scope == "predict":
            row, model = predict_keys.find_model_of_new_predict_key(session, actor, owner, binding)
        else:
            row = (
                session.get_one(Owner, actor.owner_id)
                if owner is None
                else _find_or_add_owner(session, owner, now)
            )
        key, secret = _add_access_key(
            session, row, name=name, scope=scope, expires=expires, now=now
        )
        data: AuditData = {"owner": row.name, "scope": scope, "name": name}
        bound: KeyBound | None = None
        if model is not None:
            bound = predict_keys.build_key_model_and_limits_response(
                predict_keys.bind_predict_key(session, key, model, binding), model.name, now
            )
            data |= {"model": model.id, "alias": bound["alias"]}
        record_audit_entry(session, actor, AuditedChange("key.create", key.id, data), now)
        return {**_access_key_to_json(key, row.name, bound), "secret": secret}


def list_keys(
    db: Database, actor: Actor, *, limit: int, cursor: str | None, newest_first: bool = False
) -> KeyPage:
    """Return a page of all access keys, including revoked ones (`revoked_at`), without secrets."""
    del actor  # the route admits only administrators, and they see all keys
    with db.read() as session:
        query: Any = select(AccessKey, Owner.name).join(Owner, Owner.id == AccessKey.owner_id)
        rows = read_query_page(session, query, AccessKey.id, limit, cursor, descending=newest_first)
        bounds = predict_keys.find_models_bound_to_predict_scope_keys(
            session, [row.AccessKey.id for row in rows.rows], db.now(session)
        )
        items = [
            _access_key_to_json(row.AccessKey, row.name, bounds.get(row.AccessKey.id))
            for row in rows.rows
        ]
        return {"items": items, "next_cursor": rows.next_cursor}


def revoke_key(db: Database, actor: Actor, key_id: str) -> None:
    """Revoke an access key at once, and end the sessions that were opened with it.

    Repeating the call changes nothing.

    Raises:
        NotFound: there is no such key.
        WrongState: it is the key of this request; this keeps administrators from locking themselves
            out.
    """
    if key_id == actor.key_id:
        raise WrongState(
            "A key cannot revoke itself: use another admin key.", extra={"state": "in-use"}
        )
    with db.write() as session:
        key = session.get(AccessKey, key_id)
        if key is None:
            raise NotFound(f"There is no key {key_id!r}.")
        if key.revoked_at is None:
            now = db.now(session)
            key.revoked_at = now
            session.execute(delete(UserSession).where(UserSession.key_id == key.id))
            record_audit_entry(
                session, actor, AuditedChange("key.revoke", key.id, {"name": key.name}), now
            )


def ensure_admin_key_and_write_file(db: Database, data_dir: Path) -> str | None:
    """Create the first admin access key if needed, and write it to `<data dir>/admin-key` (mode
    0600).

    Several processes may call this at once: the database decides which one is first, and the file
    is complete before the key becomes valid.

    Returns:
        The text of the key, or None if there was a valid one already.
    """
    with db.write() as session:
        now = db.now(session)
        # the lock on this row lets one process at a time continue
        owner = _find_or_add_owner(session, ADMIN_OWNER, now)
        valid = select(AccessKey.id).where(
            AccessKey.scope == "admin",
            AccessKey.revoked_at.is_(None),
            # With expired admin keys alone, nobody could create a key any more.
            (AccessKey.expires_at.is_(None)) | (AccessKey.expires_at > now),
        )
        if session.execute(valid.limit(1)).first() is not None:
            return None
        _, secret = _add_access_key(
            session, owner, name="first admin key", scope="admin", expires=None, now=now
        )
        # Before the commit, so that there is never a valid key whose text is lost.
        _write_private_file(data_dir / "admin-key", secret + "\n")
        return secret


def _find_or_add_owner(session: Session, name: str, now: float) -> Owner:
    """Return the owner of that name, added to the database if new.

    Its row stays locked until the transaction ends.
    """
    # Inserted before it is read: of two transactions with a new name, one waits for the other here.
    values = {"id": new_id("own"), "name": name, "created_at": now}
    # By dialect, since SQLAlchemy's common INSERT has no ON CONFLICT.
    if session.get_bind().dialect.name == "postgresql":
        session.execute(postgresql.insert(Owner).values(values).on_conflict_do_nothing())
    else:
        session.execute(sqlite.insert(Owner).values(values).on_conflict_do_nothing())
    return session.scalars(select(Owner).where(Owner.name == name).with_for_update()).one()


def _add_access_key(
    session: Session, owner: Owner, *, name: str, scope: str, expires: float | None, now: float
) -> tuple[AccessKey, str]:
    """Add a new access key to the database; return it with its secret text."""
    secret, prefix = generate_access_key()
    key = AccessKey(
        id=new_id("key"),
        owner_id=owner.id,
        name=name,
        prefix=prefix,
        hash=digest_access_key(secret),
        scope=scope,
        expires_at=expires,
        revoked_at=None,
        last_used_at=None,
        created_at=now,
    )
    session.add(key)
    # The binding of a key of scope predict refers to this row.
    session.flush()
    return key, secret


def _write_private_file(path: Path, text: str) -> None:
    """Write a file that only its owner may read, either completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    # Created with its final mode: with a later chmod, others could open it in between.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            # On disk before the rename: after a crash, the file must not be there and empty.
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _access_key_to_json(key: AccessKey, owner: str, bound: KeyBound | None) -> KeyOut:
    return {
        "id": key.id,
        "name": key.name,
        "owner": owner,
        "scope": key.scope,
        "prefix": key.prefix,
        "expires_at": format_rfc3339(key.expires_at),
        "revoked_at": format_rfc3339(key.revoked_at),
        "last_used_at": format_rfc3339(key.last_used_at),
        "created_at": format_rfc3339(key.created_at),
        "bound": bound,
    }


def build_caller_response(db: Database, settings: Settings, actor: Actor, version: str) -> MeOut:
    """Return the caller's key, owner, scope and limits, and facts about the service.

    Args:
        version: version of the service.
    """
    with db.read() as session:
        # An outer join, since there is no key while authentication is off.
        query = select(Owner.name, AccessKey.expires_at).outerjoin(
            AccessKey, AccessKey.id == actor.key_id
        )
        owner, expires_at = session.execute(query.where(Owner.id == actor.owner_id)).one()
    return {
        "key": actor.key_id,
        "owner": owner,
        "scope": cast(Any, actor.scope),
        "expires_at": format_rfc3339(expires_at),
        "limits": _build_owner_limits(settings),
        "service": _build_service_response(settings, version),
    }


def _build_owner_limits(settings: Settings) -> OwnerLimits:
    return {
        "max_body_bytes": settings.max_body_bytes,
        "max_uploads": settings.max_uploads,
        "max_open_jobs": settings.max_open_jobs,
        "max_owner_bytes": settings.max_owner_bytes or None,
        "max_requests_per_s": settings.max_requests_per_s or None,
    }


def _build_service_response(settings: Settings, version: str) -> ServiceOut:
    return {
        "version": version,
        "formats": {"uploads": list(UPLOAD_TYPES), "downloads": list(FORMATS)},
        "auth": settings.auth,
    }
