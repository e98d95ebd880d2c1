"""Uploads that were begun and are neither submitted nor removed."""

from __future__ import annotations

from perennial import types
from perennial._sync.http import Ask, Http
from perennial._sync.pages import Pages
from perennial.guard import path


class Uploads:
    """What `tasks.submit` has begun for large batches, and other clients of tus: what of it has come counts
    to the quota."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, *, limit: int | None = None) -> Pages[types.Upload]:
        """Open uploads, newest first: whose bytes have come up to `offset`, and when each expires."""
        return self._http.pages(types.Upload, "/v1/uploads", {"limit": limit})

    def delete(self, upload: str) -> None:
        """Remove one, with what has come of it."""
        self._http.send(Ask("DELETE", path("uploads", upload)))
