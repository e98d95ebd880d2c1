"""Shapes of bases, keys, the audit trail and usage."""

from typing import Annotated

from pydantic import StringConstraints

from api.schemas.common import Body, FreeName, Json, Shape
from core.ids import NAME_PATTERN
from core.requests.actor import Scope


class BaseOut(Shape):
    """An uploaded base."""

    id: str
    sha256: str
    bytes: int
    architecture: Json
    image: Json | None
    created_at: str


class KeyIn(Body):
    """A new key. Without `owner` it belongs to the caller's owner; a new name makes a new owner.

    `scope`: each covers those before it, except `scrape`, which opens `/metrics` alone.
    """

    name: FreeName
    owner: Annotated[str, StringConstraints(pattern=NAME_PATTERN)] | None = None
    scope: Scope = "write"
    expires_at: Annotated[str, StringConstraints(max_length=40)] | None = None


class KeyOut(Shape):
    """A key, without its secret."""

    id: str
    name: str
    owner: str
    scope: str
    prefix: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str


class NewKey(KeyOut):
    """A key with its secret, shown this once."""

    secret: str


class KeyPage(Shape):
    """A page of keys."""

    items: list[KeyOut]
    next_cursor: str | None


class AuditOut(Shape):
    """One change; `key` null: a worker."""

    id: int
    at: str
    owner: str
    key: str | None
    action: str
    object: str
    data: Json


class AuditPage(Shape):
    """A page of the audit trail, oldest first."""

    items: list[AuditOut]
    next_cursor: str | None


class UsagePage(Shape):
    """A page of usage, by model or by owner."""

    items: list[Json]
    next_cursor: str | None
