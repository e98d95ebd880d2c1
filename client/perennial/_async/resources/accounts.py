"""Keys, the audit trail and usage: what administrators see."""

from __future__ import annotations

from typing import Literal

from perennial import types
from perennial._async.http import Ask, AsyncHttp
from perennial._async.pages import AsyncPages
from perennial.guard import path

Scope = Literal["read", "write", "admin", "scrape", "predict"]


class AsyncKeys:
    """Access keys."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    def list(self, *, limit: int | None = None) -> AsyncPages[types.Key]:
        """All keys, without their secrets."""
        return self._http.pages(types.Key, "/v1/keys", {"limit": limit})

    async def create(
        self,
        name: str,
        *,
        scope: Scope = "write",
        owner: str | None = None,
        expires_at: str | None = None,
        model: str | None = None,
        alias: str | None = None,
        requests_per_s: float | None = None,
        images_per_day: int | None = None,
    ) -> types.NewKey:
        """Make a key; its `secret` is shown this once. A new owner's name makes a new owner.

        Args:
            name: for whom or what it is.
            scope: "predict": it asks `alias` of `model` alone, and may stand in a web page.
            owner: the caller's own when None; of scope predict, that of the model.
            expires_at: such as 2027-01-31T00:00:00Z; of scope predict within 366 days, else None: never.
            model: id or name; with `alias`, only of scope predict.
            alias: such as production.
            requests_per_s: only of scope predict, on average; 5 when None.
            images_per_day: likewise, from midnight to midnight (UTC); 1000 when None.
        """
        body: dict[str, str | float | None] = {
            "name": name,
            "scope": scope,
            "owner": owner,
            "expires_at": expires_at,
            "model": model,
            "alias": alias,
            "requests_per_s": requests_per_s,
            "images_per_day": images_per_day,
        }
        said = {key: value for key, value in body.items() if value is not None}
        return await self._http.call(types.NewKey, Ask("POST", "/v1/keys", json=said, is_replayable=False))

    async def delete(self, key: str) -> None:
        """Revoke it."""
        await self._http.send(Ask("DELETE", path("keys", key)))


class AsyncAudit:
    """Who changed what."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    def list(
        self,
        *,
        order: Literal["asc", "desc"] | None = None,
        model: str | None = None,
        action: str | None = None,
        since: str | None = None,
        limit: int | None = None,
    ) -> AsyncPages[types.Audit]:
        """Changes, oldest first."""
        params = {"order": order, "model": model, "action": action, "since": since, "limit": limit}
        return self._http.pages(types.Audit, "/v1/audit", params)


class AsyncUsage:
    """Bytes and jobs."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    def by_model(self, *, limit: int | None = None) -> AsyncPages[types.ModelUsage]:
        """One item per model."""
        return self._http.pages(types.ModelUsage, "/v1/usage", {"by": "model", "limit": limit})

    def by_owner(self, *, limit: int | None = None) -> AsyncPages[types.OwnerUsage]:
        """One item per owner."""
        return self._http.pages(types.OwnerUsage, "/v1/usage", {"by": "owner", "limit": limit})
