"""Aliases: movable names for versions, above all `production`."""

from __future__ import annotations

from perennial import types
from perennial._async.http import ApiRequest, AsyncHttp
from perennial._async.pages import AsyncPages
from perennial.guard import build_api_path


class AsyncAliases:
    """Aliases and their moves."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def set(
        self, model: str, alias: str, version: int, *, reason: str | None = None
    ) -> types.Alias:
        """Point an alias at a version; a held version requires a reason."""
        ask = ApiRequest(
            "PUT",
            build_api_path("models", model, "aliases", alias),
            json={"version": version, "reason": reason},
        )
        return await self._http.send_and_read(types.Alias, ask)

    async def promote(self, model: str, version: int, *, reason: str | None = None) -> types.Alias:
        """Point `production` at a version."""
        return await self.set(model, "production", version, reason=reason)

    def history(
        self, model: str, alias: str = "production", *, limit: int | None = None
    ) -> AsyncPages[types.AliasMove]:
        """List an alias's moves, oldest first."""
        return self._http.pages(
            types.AliasMove,
            build_api_path("models", model, "aliases", alias, "history"),
            {"limit": limit},
        )

    async def delete(self, model: str, alias: str) -> None:
        """Remove an alias that you created."""
        await self._http.send(
            ApiRequest("DELETE", build_api_path("models", model, "aliases", alias))
        )

    async def rollback(
        self,
        model: str,
        version: int | None = None,
        *,
        alias: str = "production",
        reason: str | None = None,
    ) -> types.Alias:
        """Return to an earlier version, by default the previous target that passed its gate.

        `lost_tasks` of the result names the tasks that this version has not learned.
        """
        # Not replayable, because a repeated rollback would go back a second time.
        where, body = (
            build_api_path("models", model, "aliases", alias, "rollback"),
            {"version": version, "reason": reason},
        )
        return await self._http.send_and_read(
            types.Alias, ApiRequest("POST", where, json=body, is_replayable=False)
        )

    async def follow(self, model: str, alias: str = "production") -> types.Alias:
        """Let production follow the lineage again after a rollback."""
        return await self._http.send_and_read(
            types.Alias,
            ApiRequest("POST", build_api_path("models", model, "aliases", alias, "follow")),
        )
