"""Tasks: the batches of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Unpack

from perennial import types
from perennial._sync.http import Ask, Http
from perennial._sync.job import JobHandle
from perennial._sync.pages import Pages
from perennial._sync.upload import Batch, submit
from perennial._sync.waiting import in_thread
from perennial.bars import shown_transfer
from perennial.errors import ArchiveRejected, Invalid, UndecidedBatch
from perennial.fields import BatchOptions
from perennial.guard import path
from perennial.shapes import read_as
from perennial.transfer import BatchIn, Progress, source_of

Name = str | None
Recipe = Mapping[str, Any] | None


class Tasks:
    """Batches: submitted, checked, and settled."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def submit(
        self,
        model: str,
        batch: BatchIn,
        *,
        name: Name = None,
        recipe: Recipe = None,
        drop_duplicates: bool = False,
        again: bool = False,
        keep_conflicts: bool = False,
        progress: bool | Progress = False,
        **options: Unpack[BatchOptions],
    ) -> JobHandle:
        """Send a batch: an archive (zip, tar, npz), its bytes, images by class (`{"cat": [paths or bytes]}`),
        or a folder or data set, which is packed on the way (`perennial.pack.open_batch` gives one to look at
        first).

        From 64 MiB on it goes in pieces: one that was cut off, by another run too, goes on where it was.
        Sending again never learns again: where the model has the same images under the same labels, the answer is
        the job of that task, and `repeats` of the handle says where it stands. One that is held is retried where
        `recipe` is another one.

        Args:
            recipe: an override of the model's own, for this batch alone.
            drop_duplicates: of equal images of one class keep the first.
            again: learn it as a new task also where the model has it; its images weigh twice then.
            keep_conflicts: learn images under two labels as they are, where the batch is rejected otherwise.
            progress: True: a bar on standard error or in a notebook; or what is called with bytes done
                and bytes in all.
            options: how a folder or data set is read: see `perennial.fields.BatchOptions`.

        Raises:
            ArchiveRejected: it cannot be used; the message says which file, and why.
        """
        query = {
            "name": name,
            "duplicates_policy": "drop" if drop_duplicates else None,
            "again": "true" if again else None,
            "conflicts": "keep" if keep_conflicts else None,
        }
        answer = self._send(model, batch, query, recipe, progress, options)
        accepted = read_as(types.Accepted, answer)
        return JobHandle(
            self._http,
            accepted.job.id,
            accepted.job,
            accepted.task,
            expected_s=accepted.expected_s,
            repeats=accepted.repeats,
        )

    def check(
        self,
        model: str,
        batch: BatchIn,
        *,
        recipe: Recipe = None,
        again: bool = False,
        progress: bool | Progress = False,
        **options: Unpack[BatchOptions],
    ) -> types.Report:
        """What a submit would meet, from names and sizes; nothing is submitted."""
        query = {"validate": "only", "again": "true" if again else None}
        answer = self._send(model, batch, query, recipe, progress, options)
        return read_as(types.Report, answer)

    def check_images(
        self,
        model: str,
        batch: BatchIn,
        *,
        recipe: Recipe = None,
        keep_conflicts: bool = False,
        progress: bool | Progress = False,
        **options: Unpack[BatchOptions],
    ) -> JobHandle:
        """The same with every image decoded: a job, whose `report` says what was found once it has ended."""
        query = {"validate": "full", "conflicts": "keep" if keep_conflicts else None}
        answer = self._send(model, batch, query, recipe, progress, options)
        job = read_as(types.Job, answer)
        return JobHandle(self._http, job.id, job)

    def list(self, model: str, *, limit: int | None = None) -> Pages[types.Task]:
        """The model's batches, in order."""
        return self._http.pages(types.Task, path("models", model, "tasks"), {"limit": limit})

    def retrieve(self, model: str, task: int) -> types.Task:
        """One batch."""
        return self._http.get(types.Task, path("models", model, "tasks", task))

    def known_classes(self, model: str) -> set[str]:
        """The classes of the model's batches; they decide how a folder is read that can be read in several ways."""
        known: set[str] = set()
        for task in self.list(model):
            known.update(task.classes)
        return known

    def continue_without(self, model: str, task: int, *, reason: str | None = None) -> types.Task:
        """Let the line go on without a task whose version is held."""
        return self._settle(model, task, "continue", reason)

    def discard(self, model: str, task: int, *, reason: str | None = None) -> types.Task:
        """Give a task up: nothing waits for it any more."""
        return self._settle(model, task, "discard", reason)

    def relearn(self, model: str, task: int, *, recipe: Recipe = None) -> JobHandle:
        """Learn a task again that the line lacks, before all that wait."""
        ask = Ask("POST", path("models", model, "tasks", task, "relearn"), json={"recipe": recipe})
        job = self._http.call(types.Job, ask)
        return JobHandle(self._http, job.id, job)

    def delete_data(self, model: str, task: int) -> None:
        """Remove a batch's images; what was learned stays."""
        self._http.send(Ask("DELETE", path("models", model, "tasks", task, "data")))

    def images(
        self,
        model: str,
        task: int,
        *,
        split: Literal["held_out", "train"] = "held_out",
        label: str | None = None,
        limit: int | None = None,
    ) -> Pages[types.TaskImage]:
        """The rows of a task's images; `label`: of one class."""
        return self._http.pages(
            types.TaskImage,
            path("models", model, "tasks", task, "images"),
            {"split": split, "class": label, "limit": limit},
        )

    def image(
        self, model: str, task: int, index: int, *, split: Literal["held_out", "train"] = "held_out"
    ) -> bytes:
        """One image of a task as PNG, pixel by pixel."""
        where = path("models", model, "tasks", task, "images", split, f"{index}.png")
        return (self._http.send(Ask("GET", where))).content

    def _settle(self, model: str, task: int, verb: str, reason: str | None) -> types.Task:
        ask = Ask("POST", path("models", model, "tasks", task, verb), json={"reason": reason})
        return self._http.call(types.Task, ask)

    def _send(
        self,
        model: str,
        batch: BatchIn,
        query: Mapping[str, str | None],
        recipe: Recipe,
        progress: bool | Progress,
        options: Mapping[str, Any],
    ) -> Any:
        try:
            source = in_thread(lambda: source_of(batch, **options))
        except UndecidedBatch:
            known = self.known_classes(model)
            if not known:
                raise
            source = in_thread(lambda: source_of(batch, known_classes=known, **options))
        reading: Mapping[str, str] = getattr(source, "reading", {})
        said = {key: value for key, value in query.items() if value is not None} | dict(reading)
        with shown_transfer("sending", progress) as show:
            try:
                return submit(self._http, Batch(model, source, said, recipe), show)
            except Invalid as error:
                if error.code != "unsupported-type":
                    raise
                # What its first bytes say is no archive: of a batch that is the same as one that cannot be read.
                raise ArchiveRejected(error.status, error.problem, request_id=error.request_id) from error
