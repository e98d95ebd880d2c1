"""Edits: labels, images and classes that a model was taught, changed by one job."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from perennial import types
from perennial._async.http import ApiRequest, AsyncHttp
from perennial._async.job import AsyncJobHandle
from perennial._async.pages import AsyncPages
from perennial.guard import build_api_path

Operations = Sequence[Mapping[str, Any]]
"""Operations such as `{"rename": {"from": "tshirt", "to": "T-shirt"}}`."""


class AsyncEdits:
    """Edits of a model's labels, images and classes."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def plan(self, model: str, operations: Operations) -> types.EditPlan:
        """Check operations, and return what they would change; nothing is changed.

        Raises:
            Conflict, Invalid, NotFound: see `create`.
        """
        ask = ApiRequest(
            "POST",
            build_api_path("models", model, "edits"),
            {"validate": "only"},
            json={"operations": [*operations]},
        )
        return await self._http.send_and_read(types.EditPlan, ask)

    async def create(
        self,
        model: str,
        operations: Operations,
        *,
        reason: str | None = None,
        parent: int | None = None,
    ) -> types.Edit:
        """Edit a model: a job makes one new version, which passes the gate like any other.

        Args:
            operations: up to 10,000. Each has one field that names it: `{"relabel": {"task": 2,
                "image": 17, "label": "cap"}}`, `{"remove": {"task": 2, "image": 17}}`, `{"remove":
                {"name": "photos/anna*"}}`, `{"remove": {"task": 2}}` for all images of a task,
                `{"rename": {"from": …, "to": …}}`, `{"merge": {"from": […], "into": …}}` or
                `{"drop": {"class": …}}`. An image is one of the part `"train"`, or of the `"part"`
                that is given.
            reason: stored with the edit and in the audit trail.
            parent: version that the numbers of images refer to, as `plan` returns it. The edit is
                refused if the model continues from another one.

        Raises:
            Conflict: another edit is open, the lineage is stopped or continues from another version,
                or neither images nor features are kept that it needs.
            Invalid: the operations contradict each other, or the model cannot take them.
            NotFound: there is no such model, task, image or class.
        """
        body: dict[str, Any] = {"operations": [*operations]}
        if reason is not None:
            body["reason"] = reason
        if parent is not None:
            body["parent"] = parent
        ask = ApiRequest("POST", build_api_path("models", model, "edits"), json=body)
        return await self._http.send_and_read(types.Edit, ask)

    def list(self, model: str, *, limit: int | None = None) -> AsyncPages[types.Edit]:
        """List the model's edits, newest first."""
        return self._http.pages(
            types.Edit, build_api_path("models", model, "edits"), {"limit": limit}
        )

    async def retrieve(self, model: str, edit: int) -> types.Edit:
        """Return one edit by its number; `client.job(edit.job)` follows its job."""
        return await self._http.get(types.Edit, build_api_path("models", model, "edits", edit))

    async def wait(
        self, model: str, edit: int, timeout: float | None = None, *, progress: bool = False
    ) -> types.Edit:
        """Wait until the job of an edit has ended, and return the edit. Options: `JobHandle.wait`."""
        job = (await self.retrieve(model, edit)).job
        await AsyncJobHandle(self._http, job).wait(timeout, progress=progress)
        return await self.retrieve(model, edit)

    async def undo(self, model: str, edit: int, *, reason: str | None = None) -> types.Edit:
        """Go back to the version before an edit, and restore its labels.

        Repeating the call changes nothing.

        Raises:
            APIError: with status 410, its time is over, or it removed images.
            Conflict: it has no version yet, or a later edit or task stands on it.
        """
        where = build_api_path("models", model, "edits", edit, "undo")
        return await self._http.send_and_read(
            types.Edit, ApiRequest("POST", where, json={"reason": reason})
        )

    async def purge(self, model: str, edit: int) -> types.Edit:
        """Delete from older versions what they hold of images that an edit removed.

        These versions go on predicting. Repeating the call changes nothing.

        Raises:
            Conflict: it has no version, or the lineage does not go on from it.
        """
        where = build_api_path("models", model, "edits", edit, "purge")
        return await self._http.send_and_read(types.Edit, ApiRequest("POST", where))


class AsyncClassAliases:
    """Former names of classes, which batches may still use."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self, model: str) -> builtins.list[types.ClassAlias]:
        """List a model's former class names, with the classes that they stand for."""
        where = build_api_path("models", model, "class-aliases")
        return (await self._http.get(types.ClassAliasPage, where)).items

    async def delete(self, model: str, name: str) -> None:
        """Remove a former class name: a batch that uses it brings a new class."""
        where = build_api_path("models", model, "class-aliases")
        await self._http.send(ApiRequest("DELETE", where, {"name": name}))
