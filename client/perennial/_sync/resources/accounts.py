"""Keys, the audit trail and usage: what administrators see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from perennial import types
from perennial._sync.http import Ask, Http
from perennial.guard import path

Scope = Literal["read", "write", "admin", "scrape"]


class Keys:
    """Access keys."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> Iterator[types.Key]:
        """All keys, without their secrets."""
        return self._http.pages(types.Key, "/v1/keys")

    def create(
        self, name: str, *, scope: Scope = "write", owner: str | None = None, expires_at: str | None = None
    ) -> types.NewKey:
        """Make a key; its `secret` is shown this once. A new owner's name makes a new owner."""
        body = {"name": name, "scope": scope, "owner": owner, "expires_at": expires_at}
        said = {key: value for key, value in body.items() if value is not None}
        return self._http.call(types.NewKey, Ask("POST", "/v1/keys", json=said, is_replayable=False))

    def delete(self, key: str) -> None:
        """Revoke it."""
        self._http.send(Ask("DELETE", path("keys", key)))


class Audit:
    """Who changed what."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self,
        *,
        order: Literal["asc", "desc"] | None = None,
        model: str | None = None,
        action: str | None = None,
        since: str | None = None,
    ) -> Iterator[types.Audit]:
        """Changes, oldest first."""
        params = {"order": order, "model": model, "action": action, "since": since}
        return self._http.pages(types.Audit, "/v1/audit", params)


class Usage:
    """Bytes and jobs."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def by_model(self) -> Iterator[types.ModelUsage]:
        """One item per model."""
        return self._http.pages(types.ModelUsage, "/v1/usage", {"by": "model"})

    def by_owner(self) -> Iterator[types.OwnerUsage]:
        """One item per owner."""
        return self._http.pages(types.OwnerUsage, "/v1/usage", {"by": "owner"})
