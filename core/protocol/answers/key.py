"""Access keys."""

from typing_extensions import TypedDict


class KeyOut(TypedDict):
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


class KeyPage(TypedDict):
    """A page of keys."""

    items: list[KeyOut]
    next_cursor: str | None
