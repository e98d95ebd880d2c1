"""Uploads that have begun and are neither submitted nor removed."""

from __future__ import annotations

from perennial import types
from perennial._sync.http import Ask, Http
from perennial._sync.pages import Pages
from perennial.guard import api_path


class Uploads:
    """Open uploads of `tasks.submit` for large batches, or of other tus clients.

    Their received bytes count towards the quota.
    """

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, *, limit: int | None = None) -> Pages[types.Upload]:
        """List open uploads, newest first, with received bytes (`offset`) and expiry."""
        return self._http.pages(types.Upload, "/v1/uploads", {"limit": limit})

    def delete(self, upload: str) -> None:
        """Remove an upload and its received bytes."""
        self._http.send(Ask("DELETE", api_path("uploads", upload)))
