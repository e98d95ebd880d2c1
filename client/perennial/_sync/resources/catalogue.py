"""The catalogue of methods and architectures."""

from __future__ import annotations

from perennial import types
from perennial._sync.http import Http
from perennial._sync.pages import Pages
from perennial.guard import api_path


class Methods:
    """Continual-learning methods, optimizers and presets."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> types.MethodList:
        """List all methods, with the JSON Schemas of their hyper-parameters."""
        # The largest page, which has room for every method: the response is returned as it is.
        return self._http.get(types.MethodList, "/v1/methods", {"limit": 200})

    def retrieve(self, name: str) -> types.Method:
        """Return one method."""
        return self._http.get(types.Method, api_path("methods", name))


class Architectures:
    """Network architectures."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, *, limit: int | None = None) -> Pages[types.Architecture]:
        """List all architectures, with the JSON Schemas of their hyper-parameters."""
        return self._http.pages(types.Architecture, "/v1/architectures", {"limit": limit})
