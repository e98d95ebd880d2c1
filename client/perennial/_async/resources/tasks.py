"""Tasks, the batches of a model, and unfinished uploads of batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from perennial import types
from perennial._async.http import ApiRequest, AsyncHttp
from perennial._async.job import AsyncJobHandle
from perennial._async.pages import AsyncPages
from perennial._async.upload import BatchToSubmit, send_batch
from perennial._async.waiting import run_in_thread
from perennial.bars import open_transfer_bar
from perennial.errors import ArchiveRejected, Invalid, UndecidedBatch
from perennial.fields import OpenBatchOptions
from perennial.guard import build_api_path
from perennial.shapes import convert_from_json
from perennial.transfer import BatchIn, Progress, open_batch_as_transfer_source

Name = str | None
Recipe = Mapping[str, Any] | None
Trials = Literal["auto"] | Sequence[Mapping[str, Any]] | None
Choose = Literal["best", "manual"] | None


def _format_trials_query_value(trials: Trials) -> str | None:
    """Return the text of the query parameter `trials`."""
    return trials if trials is None or isinstance(trials, str) else json.dumps(list(trials))


class AsyncTasks:
    """Batches: submitted, checked, and settled."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def submit(
        self,
        model: str,
        batch: BatchIn,
        *,
        name: Name = None,
        recipe: Recipe = None,
        drop_duplicates: bool = False,
        again: bool = False,
        keep_conflicts: bool = False,
        trials: Trials = None,
        choose: Choose = None,
        max_seconds: float | None = None,
        progress: bool | Progress = False,
        **options: Unpack[OpenBatchOptions],
    ) -> AsyncJobHandle:
        """Send a batch and return a handle for its job.

        A batch is an archive such as a zip, its bytes, images by class (`{"cat": [paths or
        bytes]}`), or a folder or data set, which is packed while it is sent
        (`perennial.pack.open_batch` opens one for inspection).

        From 64 MiB on it is sent in pieces. An interrupted upload is resumed, also by another run.
        If the model already has the same images under the same labels, the batch is not learned
        again. The result is then the job of that task, and `repeats` of the handle names the task.
        If that task is held, it is retried with a different `recipe`.

        Args:
            recipe: an override of the model's own, for this batch alone.
            drop_duplicates: keep only the first of equal images of one class.
            again: learn the batch as a new task even if the model has it; its images then weigh
                twice.
            keep_conflicts: learn images that have two labels; otherwise the batch is rejected.
            trials: recipes that the job compares, or "auto" for some that fit; the best result is
                published. `trials` of the handle shows them.
            choose: "manual": the job waits until `choose` of the handle names the best.
            max_seconds: seconds of the job after which no further trial begins.
            progress: True: a bar on standard error or in a notebook; or a function that is called
                with the bytes done and the total bytes.
            options: options for reading a folder or data set: see `perennial.fields.OpenBatchOptions`.

        Raises:
            ArchiveRejected: it cannot be used; the message names the file and the reason.
        """
        query = {
            "name": name,
            "duplicates_policy": "drop" if drop_duplicates else None,
            "again": "true" if again else None,
            "conflicts": "keep" if keep_conflicts else None,
            "trials": _format_trials_query_value(trials),
            "choose": choose,
            "max_seconds": None if max_seconds is None else str(max_seconds),
        }
        response = await self._prepare_and_send_batch(
            model, batch, query, recipe, progress, options
        )
        accepted = convert_from_json(types.Accepted, response)
        return AsyncJobHandle(
            self._http,
            accepted.job.id,
            accepted.job,
            accepted.task,
            expected_s=accepted.expected_s,
            repeats=accepted.repeats,
        )

    async def check(
        self,
        model: str,
        batch: BatchIn,
        *,
        recipe: Recipe = None,
        again: bool = False,
        trials: Trials = None,
        progress: bool | Progress = False,
        **options: Unpack[OpenBatchOptions],
    ) -> types.Report:
        """Check a batch by names and sizes, without submitting it; list the `trials` of it."""
        query = {
            "validate": "only",
            "again": "true" if again else None,
            "trials": _format_trials_query_value(trials),
        }
        response = await self._prepare_and_send_batch(
            model, batch, query, recipe, progress, options
        )
        return convert_from_json(types.Report, response)

    async def check_images(
        self,
        model: str,
        batch: BatchIn,
        *,
        recipe: Recipe = None,
        keep_conflicts: bool = False,
        progress: bool | Progress = False,
        **options: Unpack[OpenBatchOptions],
    ) -> AsyncJobHandle:
        """Check a batch with every image decoded, in a job whose `report` has the findings."""
        query = {"validate": "full", "conflicts": "keep" if keep_conflicts else None}
        response = await self._prepare_and_send_batch(
            model, batch, query, recipe, progress, options
        )
        job = convert_from_json(types.Job, response)
        return AsyncJobHandle(self._http, job.id, job)

    def list(self, model: str, *, limit: int | None = None) -> AsyncPages[types.Task]:
        """List the model's batches, in order."""
        return self._http.pages(
            types.Task, build_api_path("models", model, "tasks"), {"limit": limit}
        )

    async def retrieve(self, model: str, task: int) -> types.Task:
        """Return one batch."""
        return await self._http.get(types.Task, build_api_path("models", model, "tasks", task))

    async def known_classes(self, model: str) -> set[str]:
        """Return the classes of the model's batches, which help to interpret an ambiguous
        folder.
        """
        classes: set[str] = set()
        async for task in self.list(model):
            classes.update(task.classes)
        return classes

    async def continue_without(
        self, model: str, task: int, *, reason: str | None = None
    ) -> types.Task:
        """Continue the lineage without a task whose version is held."""
        return await self._post_task_decision(model, task, "continue", reason)

    async def discard(self, model: str, task: int, *, reason: str | None = None) -> types.Task:
        """Discard a task, so that nothing waits for it."""
        return await self._post_task_decision(model, task, "discard", reason)

    async def relearn(self, model: str, task: int, *, recipe: Recipe = None) -> AsyncJobHandle:
        """Learn again a task that the lineage lacks, before all waiting ones."""
        ask = ApiRequest(
            "POST",
            build_api_path("models", model, "tasks", task, "relearn"),
            json={"recipe": recipe},
        )
        job = await self._http.send_and_read(types.Job, ask)
        return AsyncJobHandle(self._http, job.id, job)

    async def delete_data(self, model: str, task: int) -> None:
        """Delete a batch's images; the learned versions stay."""
        await self._http.send(
            ApiRequest("DELETE", build_api_path("models", model, "tasks", task, "data"))
        )

    def images(
        self,
        model: str,
        task: int,
        *,
        split: Literal["held_out", "train"] = "held_out",
        label: str | None = None,
        limit: int | None = None,
    ) -> AsyncPages[types.TaskImage]:
        """List a task's images; `label`: only of this class."""
        return self._http.pages(
            types.TaskImage,
            build_api_path("models", model, "tasks", task, "images"),
            {"split": split, "class": label, "limit": limit},
        )

    async def image(
        self, model: str, task: int, index: int, *, split: Literal["held_out", "train"] = "held_out"
    ) -> bytes:
        """Return one image of a task as a lossless PNG."""
        where = build_api_path("models", model, "tasks", task, "images", split, f"{index}.png")
        return (await self._http.send(ApiRequest("GET", where))).content

    async def _post_task_decision(
        self, model: str, task: int, verb: str, reason: str | None
    ) -> types.Task:
        ask = ApiRequest(
            "POST", build_api_path("models", model, "tasks", task, verb), json={"reason": reason}
        )
        return await self._http.send_and_read(types.Task, ask)

    async def _prepare_and_send_batch(
        self,
        model: str,
        batch: BatchIn,
        query: Mapping[str, str | None],
        recipe: Recipe,
        progress: bool | Progress,
        options: Mapping[str, Any],
    ) -> Any:
        try:
            source = await run_in_thread(lambda: open_batch_as_transfer_source(batch, **options))
        except UndecidedBatch:
            # Asked only for an ambiguous folder, because it reads the model's whole list of
            # batches.
            classes = await self.known_classes(model)
            if not classes:
                raise
            source = await run_in_thread(
                lambda: open_batch_as_transfer_source(batch, known_classes=classes, **options)
            )
        # Archives alone have it: the options of a folder were applied when the client packed it.
        reading: Mapping[str, str] = getattr(source, "reading", {})
        given_params = {key: value for key, value in query.items() if value is not None} | dict(
            reading
        )
        with open_transfer_bar("sending", progress) as show:
            try:
                return await send_batch(
                    self._http, BatchToSubmit(model, source, given_params, recipe), show
                )
            except Invalid as error:
                if error.code != "unsupported-type":
                    raise
                # The first bytes are no archive: report it like an archive that cannot be read.
                raise ArchiveRejected(
                    error.status, error.problem, request_id=error.request_id
                ) from error


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
        await self._http.send(ApiRequest("DELETE", build_api_path("uploads", upload)))
