"""Uploads that have begun and are neither submitted nor removed."""

from __future__ import annotations

from perennial import types
from perennial._async.http import Ask, AsyncHttp
from perennial._async.pages import AsyncPages
from perennial.guard import api_path


class AsyncUploads:
    """Open uploads of `tasks.submit` for large batches, or of other tus clients.

    Their received bytes count towards the quota.
    """

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    def list(self, *, limit: int | None = None) -> AsyncPages[types.Upload]:
        """List open uploads, newest first, with received bytes (`offset`) and expiry."""
        return self._http.pages(types.Upload, "/v1/uploads", {"limit": limit})

    async def delete(self, upload: str) -> None:
        """Remove an upload and its received bytes."""
        await self._http.send(Ask("DELETE", api_path("uploads", upload)))
