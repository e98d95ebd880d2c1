"""Models, and the images that they keep for replay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Unpack

from perennial import types
from perennial._async.http import Ask, AsyncHttp
from perennial.errors import Conflict
from perennial.fields import ModelChanges, NewModel
from perennial.guard import path


class AsyncModels:
    """Named lines of versions."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def create(
        self,
        name: str,
        scenario: Literal["data", "task", "class"] = "class",
        *,
        exist_ok: bool = False,
        **fields: Unpack[NewModel],
    ) -> types.Model:
        """Make a model.

        Args:
            exist_ok: where there is one of this name already, return it as it is.
            fields: see `perennial.fields.NewModel`; what is left out, or None, is as the service has it.

        Raises:
            Conflict: the name is taken.
            Invalid: `errors` names the wrong fields.
        """
        said = {key: value for key, value in fields.items() if value is not None}
        try:
            ask = Ask("POST", "/v1/models", json={"name": name, "scenario": scenario, **said})
            return await self._http.call(types.Model, ask)
        except Conflict as error:
            if not exist_ok or error.code != "name-taken":
                raise
            return await self.retrieve(name)

    def list(self, *, query: str | None = None, summary: bool = False) -> AsyncIterator[types.ListedModel]:
        """All models, page by page. `query`: in their names; `summary`: with the figures of each."""
        params = {"q": query, "include": "summary" if summary else None}
        return self._http.pages(types.ListedModel, "/v1/models", params)

    async def retrieve(self, model: str) -> types.Model:
        """One model, by name or id; look at `attention` first."""
        return await self._http.get(types.Model, path("models", model))

    async def update(self, model: str, **changes: Unpack[ModelChanges]) -> types.Model:
        """Change fields: see `perennial.fields.ModelChanges`."""
        return await self._http.call(types.Model, Ask("PATCH", path("models", model), json=changes))

    async def delete(self, model: str) -> None:
        """Delete it with all that is stored of it."""
        await self._http.send(Ask("DELETE", path("models", model)))

    async def rebase(
        self, model: str, base: str | Mapping[str, Any], *, name: str | None = None
    ) -> types.Rebase:
        """Begin to move a model to another base: a new model beside it, which `finish_rebase` puts in its place.

        The answer names the batches to send to the new model again.

        Args:
            base: as of a new model.
            name: of the new model; None: the old one's with `-rebased`.

        Raises:
            Conflict: nothing is learned yet, a rebase of the model is open, or the name is taken.
            Invalid: there is no such base, or the model starts from it already.
        """
        said = {"base": base} if name is None else {"base": base, "name": name}
        return await self._http.call(types.Rebase, Ask("POST", path("models", model, "rebase"), json=said))

    async def rebase_status(self, model: str) -> types.Rebase:
        """Return what has arrived in the new model, and both on the same held-out images. `model`: either of both."""
        return await self._http.get(types.Rebase, path("models", model, "rebase"))

    async def finish_rebase(
        self, model: str, *, reason: str | None = None, missing: Literal["refuse", "allow"] = "refuse"
    ) -> types.Rebase:
        """Let production move: the new model takes the old one's name. Of the old model: take the name back.

        Raises:
            Conflict: something is missing (`problem["missing"]`), and `missing` does not allow it.
        """
        where = path("models", model, "rebase", "finish")
        said = {"reason": reason, "missing": missing}
        return await self._http.call(types.Rebase, Ask("POST", where, json=said, is_replayable=False))


class AsyncMemory:
    """Images that a model keeps for replay."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def retrieve(self, model: str) -> types.Memory:
        """How many, of which classes, and their bytes."""
        return await self._http.get(types.Memory, path("models", model, "memory"))

    async def delete(self, model: str) -> None:
        """Remove them all."""
        await self._http.send(Ask("DELETE", path("models", model, "memory")))
