"""Edits: labels, images and classes that a model was taught, changed by one job."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from perennial import types
from perennial._async.http import Ask, AsyncHttp
from perennial._async.job import AsyncJobHandle
from perennial._async.pages import AsyncPages
from perennial.errors import PerennialError, ServiceUnreachable, Unavailable
from perennial.guard import api_path, shell_word
from perennial.retry import IF_REPLAYABLE

Operations = Sequence[Mapping[str, Any]]
"""Operations such as `{"rename": {"from": "tshirt", "to": "T-shirt"}}`."""
LOOKED_AT = 20
"""Newest edits among which one is searched whose answer was lost."""


class AsyncEdits:
    """Edits of a model."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def plan(self, model: str, operations: Operations) -> types.EditPlan:
        """Check operations, and return what they would change; nothing is changed.

        Raises:
            Conflict, Invalid, NotFound: see `create`.
        """
        ask = Ask(
            "POST",
            api_path("models", model, "edits"),
            {"validate": "only"},
            json={"operations": [*operations]},
        )
        return await self._http.send_and_read(types.EditPlan, ask)

    async def create(
        self, model: str, operations: Operations, *, reason: str | None = None
    ) -> types.Edit:
        """Edit a model: a job makes one new version, which passes the gate like any other.

        The request is sent once, since removed images change the numbers of those behind them. If
        the answer is lost, the model's newer edits are read. The only one with this reason, and
        with as many operations, is returned.

        Args:
            operations: up to 10,000. Each has one field that names it: `{"relabel": {"task": 2,
                "image": 17, "label": "cap"}}`, `{"remove": {"task": 2, "image": 17}}`, `{"remove":
                {"name": "photos/anna*"}}`, `{"remove": {"task": 2}}` for all images of a task,
                `{"rename": {"from": …, "to": …}}`, `{"merge": {"from": […], "into": …}}` or
                `{"drop": {"class": …}}`. An image is one of the part `"train"`, or of the `"part"`
                that is given.
            reason: stored with the edit and in the audit trail.

        Raises:
            Conflict: another edit is open, the lineage is stopped, or neither images nor features
                are kept that it needs.
            Invalid: the operations contradict each other, or the model cannot take them.
            NotFound: there is no such model, task, image or class.
            ServiceUnreachable, Unavailable: there was no answer; a note says if the edit came in.
        """
        newest = await self._find_newest(model)
        body: dict[str, Any] = {"operations": [*operations]}
        if reason is not None:
            body["reason"] = reason
        ask = Ask("POST", api_path("models", model, "edits"), json=body, is_replayable=False)
        try:
            return await self._http.send_and_read(types.Edit, ask)
        except (ServiceUnreachable, Unavailable) as error:
            if not _may_be_done(error):
                raise
            edit = await self._find_sent(model, newest, operations, reason, error)
            if edit is None:
                raise
            return edit

    def list(self, model: str, *, limit: int | None = None) -> AsyncPages[types.Edit]:
        """List the model's edits, newest first."""
        return self._http.pages(types.Edit, api_path("models", model, "edits"), {"limit": limit})

    async def retrieve(self, model: str, edit: int) -> types.Edit:
        """Return one edit by its number; `client.job(edit.job)` follows its job."""
        return await self._http.get(types.Edit, api_path("models", model, "edits", edit))

    async def wait(
        self, model: str, edit: int, timeout: float | None = None, *, progress: bool = False
    ) -> types.Edit:
        """Wait until an edit has its version, and return it: see `JobHandle.wait`."""
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
        where = api_path("models", model, "edits", edit, "undo")
        return await self._http.send_and_read(
            types.Edit, Ask("POST", where, json={"reason": reason})
        )

    async def purge(self, model: str, edit: int) -> types.Edit:
        """Delete from older versions what they hold of images that an edit removed.

        These versions go on predicting. Repeating the call changes nothing.

        Raises:
            Conflict: it has no version, or the lineage does not go on from it.
        """
        where = api_path("models", model, "edits", edit, "purge")
        return await self._http.send_and_read(types.Edit, Ask("POST", where))

    async def _find_newest(self, model: str) -> int:
        edits = (await self.list(model, limit=1)).data
        return edits[0].number if edits else 0

    async def _find_sent(
        self,
        model: str,
        newest: int,
        operations: Operations,
        reason: str | None,
        error: PerennialError,
    ) -> types.Edit | None:
        """Return the edit that a request made whose answer was lost, or None with a note.

        Args:
            newest: number of the newest edit before the request.
            error: gets the note.
        """
        try:
            edits = (await self.list(model, limit=LOOKED_AT)).data
        except (ServiceUnreachable, Unavailable):
            error.add_note(f"Look if it came in: perennial edits list {shell_word(model)}")
            return None
        # A pattern becomes as many operations as it matches images.
        is_counted = not any("name" in (one.get("remove") or {}) for one in operations)
        later = [
            edit
            for edit in edits
            if edit.number > newest
            and edit.reason == reason
            and (edit.operations == len(operations) or not is_counted)
        ]
        if len(later) == 1:
            return later[0]
        seen = ", ".join(str(edit.number) for edit in later)
        error.add_note(
            f"Edits {seen} may be this one."
            if later
            else "The model has no such edit. Before you send it again, look a little later: "
            f"perennial edits list {shell_word(model)}"
        )
        return None


class AsyncClassAliases:
    """Former names of classes, which batches may still use."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def list(self, model: str) -> builtins.list[types.ClassAlias]:
        """List a model's former class names, with the classes that they stand for."""
        where = api_path("models", model, "class-aliases")
        return (await self._http.get(types.ClassAliasPage, where)).items

    async def delete(self, model: str, name: str) -> None:
        """Remove a former class name: a batch that uses it brings a new class."""
        where = api_path("models", model, "class-aliases")
        await self._http.send(Ask("DELETE", where, {"name": name}))


def _may_be_done(error: ServiceUnreachable | Unavailable) -> bool:
    """Return True if the service may have done a request in spite of the error."""
    if isinstance(error, ServiceUnreachable):
        return error.is_sent
    return error.status in IF_REPLAYABLE
