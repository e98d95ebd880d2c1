"""Bodies of requests about keys."""

from typing import Annotated

from pydantic import StringConstraints

from api.schemas.common import Body, FreeName
from core.ids import NAME_PATTERN
from core.requests.actor import Scope


class KeyIn(Body):
    """A new key. Without `owner` it belongs to the caller's owner; a new name makes a new owner.

    `scope`: each covers those before it, except `scrape`, which opens `/metrics` alone.
    """

    name: FreeName
    owner: Annotated[str, StringConstraints(pattern=NAME_PATTERN)] | None = None
    scope: Scope = "write"
    expires_at: Annotated[str, StringConstraints(max_length=40)] | None = None
