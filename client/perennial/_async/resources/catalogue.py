"""The catalogue of methods and architectures."""

from __future__ import annotations

from perennial import types
from perennial._async.http import AsyncHttp
from perennial._async.pages import AsyncPages
from perennial.guard import api_path


class AsyncMethods:
    """Continual-learning methods, optimizers and presets."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self) -> types.MethodList:
        """List all methods, with the JSON Schemas of their hyper-parameters."""
        # The largest page, which has room for every method: the response is returned as it is.
        return await self._http.get(types.MethodList, "/v1/methods", {"limit": 200})

    async def retrieve(self, name: str) -> types.Method:
        """Return one method."""
        return await self._http.get(types.Method, api_path("methods", name))


class AsyncArchitectures:
    """Network architectures."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    def list(self, *, limit: int | None = None) -> AsyncPages[types.Architecture]:
        """List all architectures, with the JSON Schemas of their hyper-parameters."""
        return self._http.pages(types.Architecture, "/v1/architectures", {"limit": limit})
