"""Handle to follow a job, from its progress to its result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Callable
from typing import Literal

from perennial import types
from perennial._sync.http import ApiRequest, Http
from perennial._sync.stream import follow_events
from perennial._sync.waiting import sleep_seconds
from perennial.bars import open_job_bar
from perennial.errors import (
    BaseFailed,
    BaseUnavailable,
    GateHeld,
    JobCancelled,
    JobEnded,
    JobFailed,
    JobRejected,
    ServiceUnreachable,
    Unavailable,
    WaitTimeout,
)
from perennial.guard import (
    build_api_path,
    drop_unsafe_header_value,
    require_whole_number_in_response,
)
from perennial.retry import is_service_error_temporary
from perennial.shapes import convert_from_json
from perennial.text import make_text_one_line
from perennial.words import describe_held_version, explain_missing_base_weights

NOT_MODIFIED = 304
# Pauses grow from the first to the second: a short job is reported at once, and a long one costs
# one request a second.
LOOK_S, LONGEST_LOOK_S = 0.1, 1.0
PATIENCE_S = 180.0
"""Longest time in seconds that a job handle waits for a service that is away, such as in a
restart."""

Seen = Callable[["types.Job"], None]


class JobHandle:
    """Handle of one job, to follow, pause or cancel it.

    Attributes:
        id: the job's id.
        job: the job as last read from the service.
        task: the task that it learns; known right after a submit.
        expected_s: expected duration in seconds from its start; known right after a submit, if at
            all.
        repeats: the earlier task that the batch repeats; known right after a submit.
    """

    def __init__(
        self,
        http: Http,
        job: str,
        known: types.Job | None = None,
        task: types.Task | None = None,
        expected_s: float | None = None,
        repeats: types.Repeats | None = None,
    ) -> None:
        self._http, self.id, self.job, self.task = http, job, known, task
        self.expected_s, self.repeats = expected_s, repeats
        self._etag = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, state={self.job.state if self.job else None!r})"

    def _repr_html_(self) -> str | None:
        """Return the HTML of the job as last read, with its bar; `wait(progress=True)` keeps
        drawing it."""
        return None if self.job is None else self.job._repr_html_()

    @property
    def _job_path(self) -> str:
        return build_api_path("jobs", self.id)

    def refresh(self) -> types.Job:
        """Read the job from the service and return it."""
        # Most looks find the job unchanged, and 304 has no body.
        headers = {"If-None-Match": self._etag} if self._etag and self.job else {}
        response = self._http.send(ApiRequest("GET", self._job_path, headers=headers))
        if response.status_code != NOT_MODIFIED or self.job is None:
            self.job, self._etag = (
                convert_from_json(types.Job, response.json()),
                drop_unsafe_header_value(response.headers.get("ETag")),
            )
        return self.job

    def trials(self) -> types.Trials:
        """Return the recipes that the job compares, with their figures."""
        return self._http.get(types.Trials, build_api_path("jobs", self.id, "trials"))

    def choose(self, trial: int) -> types.Trials:
        """Choose the trial whose result becomes the version, while the job waits for it."""
        ask = ApiRequest("POST", build_api_path("jobs", self.id, "choose"), json={"trial": trial})
        return self._http.send_and_read(types.Trials, ask)

    def wait(
        self,
        timeout: float | None = None,
        *,
        progress: bool | Seen = False,
        check: bool = True,
    ) -> types.Job:
        """Wait until the job has ended, and return it as it ended.

        Args:
            timeout: seconds; None: no limit.
            progress: True: a bar on standard error or below a notebook cell; or a function that is
                called with the job on every change.
            check: False: also return a job that ended without a published version.

        Raises:
            GateHeld, JobRejected, JobFailed, JobCancelled: it ended this way instead.
            WaitTimeout: it has not ended in time; the job continues.
            BaseUnavailable: the weights of the model's base could not be fetched; the job keeps
                waiting.
            ServiceUnreachable, Unavailable: no response for three minutes; the job continues.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with open_job_bar(progress) as show:
            pause, last, heard = LOOK_S, self.job, time.monotonic()
            while True:
                try:
                    job, heard = self.refresh(), time.monotonic()
                except (ServiceUnreachable, Unavailable) as error:
                    # Without retries, the caller wants to see failures; otherwise a wait outlasts a
                    # restart.
                    is_lost = (
                        time.monotonic() - heard > PATIENCE_S or self._http.retries.attempts == 1
                    )
                    # A service that has never answered is more likely a wrong URL than an outage.
                    if last is None or is_lost or not is_service_error_temporary(error):
                        raise
                    job = last
                    show.show_service_outage(time.monotonic() - heard)
                # After a 304 the job is the same object, so its identity
                # shows whether it has changed.
                if job is not last or job.is_terminal:
                    show(job)
                    last = job
                if job.is_terminal:
                    break
                # Only a person can end this wait, so it is reported instead of continued.
                if (lacking := explain_missing_base_weights(job)) is not None:
                    raise BaseUnavailable(lacking)
                if until is not None and time.monotonic() > until:
                    raise WaitTimeout(_describe_wait_timeout(job, timeout))
                sleep_seconds(pause)
                pause = min(LONGEST_LOOK_S, pause * 1.3)
        if check:
            self.require_success(job)
        return job

    def require_success(self, job: types.Job) -> None:
        """Raise the error of a finished job unless it succeeded as expected; see `wait`."""
        error = self.ending(job)
        if error is not None:
            raise error

    def ending(self, job: types.Job) -> JobEnded | None:
        """Return the error to raise for a job that ended badly; None if it succeeded as expected."""
        if job.state == "succeeded" and job.outcome == "held":
            model = self._http.get(types.Model, build_api_path("models", job.model))
            # The version may be missing in the answer, and None would become a part of the path.
            where = build_api_path(
                "models",
                job.model,
                "versions",
                require_whole_number_in_response(job.version, "version"),
            )
            version = self._http.get(types.Version, where)
            entry = next((one for one in model.attention if one.task == job.task), None)
            text = describe_held_version(model, version, entry, job.id, self._http.url)
            return GateHeld(text, job, entry)
        if job.state == "succeeded":
            return None
        reason = make_text_one_line(
            job.error.detail if job.error else f"Job {job.id} ended {job.state}."
        )
        if job.kind == "fetch" and job.state == "failed":
            return BaseFailed(reason, job)
        kinds = {"rejected": JobRejected, "cancelled": JobCancelled}
        return kinds.get(job.state, JobFailed)(reason, job)

    def events(
        self,
        after: int = 0,
        *,
        only: tuple[Literal["state", "progress", "metric", "log", "snapshot"], ...] | None = None,
    ) -> Iterator[types.Event]:
        """Yield the job's events after the id `after` until it has ended; reconnects by itself."""

        def is_over() -> bool:
            return (self.refresh()).is_terminal

        query = {"type": ",".join(only) if only else None}
        for data in follow_events(
            self._http, f"{self._job_path}/events", query, after, is_over
        ):
            yield convert_from_json(types.Event, data)

    def logs(self, *, follow: bool = False) -> Iterator[types.LogLine]:
        """Yield the lines of the job's log; with `follow`, keep yielding until the job has
        ended."""
        after = 0
        for log_line in self._http.pages(types.LogLine, f"{self._job_path}/logs"):
            after = log_line.id
            yield log_line
        if follow:
            # The stream begins after the last listed line, so no line is yielded twice.
            for event in self.events(after, only=("log",)):
                log_data = event.data
                if isinstance(log_data, types.LogData):
                    yield types.LogLine(
                        id=event.id, at=event.at, level=log_data.level, message=log_data.message
                    )

    def cancel(self) -> types.Job:
        """Cancel the job."""
        return self._send_job_action("cancel")

    def pause(self) -> types.Job:
        """Pause the job and keep its place: later jobs of its model wait."""
        return self._send_job_action("pause")

    def resume(self) -> types.Job:
        """Resume the job after a pause."""
        return self._send_job_action("resume")

    def _send_job_action(self, verb: str) -> types.Job:
        self.job = self._http.send_and_read(
            types.Job, ApiRequest("POST", f"{self._job_path}/{verb}")
        )
        # The ETag belongs to the state before the action.
        self._etag = ""
        return self.job


def _describe_wait_timeout(job: types.Job, timeout: float | None) -> str:
    why = f" {job.waiting_for.detail}" if job.waiting_for else ""
    return make_text_one_line(
        f"Job {job.id} is still {job.state} after {timeout:g} s; it goes on.{why}"
    )
