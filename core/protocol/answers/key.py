"""Access keys."""

from typing_extensions import TypedDict


class KeyBound(TypedDict):
    """Limits of a key of scope predict: what it may ask, and how often.

    `model`: its present name; `alias`: the only one that is answered; `requests_per_s`: on average, with those of two
    seconds at once; `images_per_day`: from midnight to midnight (UTC); `images_today`: sent since midnight.
    """

    model: str
    model_id: str
    alias: str
    requests_per_s: float
    images_per_day: int
    images_today: int


class KeyOut(TypedDict):
    """A key, without its secret. `bound`: null unless its scope is predict."""

    id: str
    name: str
    owner: str
    scope: str
    prefix: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str
    bound: KeyBound | None


class NewKey(KeyOut):
    """A key with its secret, shown this once."""

    secret: str


class KeyPage(TypedDict):
    """A page of keys."""

    items: list[KeyOut]
    next_cursor: str | None
