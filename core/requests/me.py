"""The caller's key, owner, scope and limits, and the facts about the service."""

from typing import Any, cast

from sqlalchemy import select

from core.db.session import Database
from core.db.tables import Key, Owner
from core.export.registry import FORMATS
from core.ingest.readers.registry import UPLOAD_TYPES
from core.protocol.answers.me import MeOut, OwnerLimits, ServiceOut
from core.requests.actor import Actor
from core.requests.times import format_rfc3339
from core.settings import Settings


def describe_caller(db: Database, settings: Settings, actor: Actor, version: str) -> MeOut:
    """Return the caller's key, owner, scope and limits, and the facts about the service.

    Args:
        version: version of the service.
    """
    with db.read() as session:
        # An outer join, since there is no key while authentication is off.
        query = select(Owner.name, Key.expires_at).outerjoin(Key, Key.id == actor.key_id)
        owner, expires_at = session.execute(query.where(Owner.id == actor.owner_id)).one()
    return {
        "key": actor.key_id,
        "owner": owner,
        "scope": cast(Any, actor.scope),
        "expires_at": format_rfc3339(expires_at),
        "limits": _list_limits(settings),
        "service": _describe_service(settings, version),
    }


def _list_limits(settings: Settings) -> OwnerLimits:
    return {
        "max_body_bytes": settings.max_body_bytes,
        "max_uploads": settings.max_uploads,
        "max_open_jobs": settings.max_open_jobs,
        "max_owner_bytes": settings.max_owner_bytes or None,
        "max_requests_per_s": settings.max_requests_per_s or None,
    }


def _describe_service(settings: Settings, version: str) -> ServiceOut:
    return {
        "version": version,
        "formats": {"uploads": list(UPLOAD_TYPES), "downloads": list(FORMATS)},
        "auth": settings.auth,
    }
