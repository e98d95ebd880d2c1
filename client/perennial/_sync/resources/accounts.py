"""Keys, the audit trail and usage, for administrators."""

from __future__ import annotations

from typing import Literal

from perennial import types
from perennial._sync.http import ApiRequest, Http
from perennial._sync.pages import Pages
from perennial.guard import build_api_path

Scope = Literal["read", "write", "admin", "scrape", "predict"]


class Keys:
    """Access keys of the service."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, *, limit: int | None = None) -> Pages[types.Key]:
        """List all keys, without their secrets."""
        return self._http.pages(types.Key, "/v1/keys", {"limit": limit})

    def create(
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
        """Create a key; its `secret` is only in this response. An unknown owner name creates an
        owner.

        Args:
            name: the person or purpose that the key is for.
            scope: "predict" allows only predictions by `alias` of `model`; such a key may be
                public.
            owner: defaults to the caller's owner; for scope predict, the model's owner.
            expires_at: such as 2027-01-31T00:00:00Z. For scope predict within 366 days and
                required; else None: never.
            model: id or name; with `alias`, only for scope predict.
            alias: such as production.
            requests_per_s: average limit, only for scope predict; 5 when None.
            images_per_day: limit from midnight to midnight (UTC), only for scope predict; 1000 when
                None.
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
        given_fields = {key: value for key, value in body.items() if value is not None}
        # The service has no Idempotency-Key for keys: a repeated request would create a second one.
        return self._http.send_and_read(
            types.NewKey, ApiRequest("POST", "/v1/keys", json=given_fields, is_replayable=False)
        )

    def delete(self, key: str) -> None:
        """Revoke a key."""
        self._http.send(ApiRequest("DELETE", build_api_path("keys", key)))


class Audit:
    """The audit trail: changes, and the keys that made them."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self,
        *,
        order: Literal["asc", "desc"] | None = None,
        model: str | None = None,
        action: str | None = None,
        since: str | None = None,
        limit: int | None = None,
    ) -> Pages[types.Audit]:
        """List changes, oldest first unless `order` is "desc"."""
        params = {"order": order, "model": model, "action": action, "since": since, "limit": limit}
        return self._http.pages(types.Audit, "/v1/audit", params)


class Usage:
    """Usage of storage and jobs."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def by_model(self, *, limit: int | None = None) -> Pages[types.ModelUsage]:
        """List usage, one item per model."""
        return self._http.pages(types.ModelUsage, "/v1/usage", {"by": "model", "limit": limit})

    def by_owner(self, *, limit: int | None = None) -> Pages[types.OwnerUsage]:
        """List usage, one item per owner."""
        return self._http.pages(types.OwnerUsage, "/v1/usage", {"by": "owner", "limit": limit})
