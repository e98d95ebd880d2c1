"""Access keys."""

from typing_extensions import TypedDict


class KeyBound(TypedDict):
    """Model, alias and daily limits of an access key of scope predict.

    - `model`: current name of its model.
    - `alias`: the only alias that it may use.
    - `requests_per_s`: average, with a burst of two seconds' worth.
    - `images_per_day`: from midnight to midnight (UTC).
    - `images_today`: images sent since midnight.
    """

    model: str
    model_id: str
    alias: str
    requests_per_s: float
    images_per_day: int
    images_today: int


class KeyOut(TypedDict):
    """An access key without its secret. `bound`: null unless its scope is predict."""

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
    """A new access key with its secret, which is shown only once."""

    secret: str


class KeyPage(TypedDict):
    """A page of access keys, without secrets."""

    items: list[KeyOut]
    next_cursor: str | None
