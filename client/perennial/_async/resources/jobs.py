"""Jobs: long-running work of the service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perennial import types
from perennial._async.download import download_url_path_to_file
from perennial._async.http import ApiRequest, AsyncHttp
from perennial._async.job import AsyncJobHandle
from perennial._async.pages import AsyncPages
from perennial.bars import open_transfer_bar
from perennial.guard import build_api_path
from perennial.transfer import Downloaded, Progress


class AsyncJobs:
    """Jobs of the service."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    def list(
        self,
        *,
        model: str | None = None,
        state: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> AsyncPages[types.Job]:
        """List jobs, newest first."""
        return self._http.pages(
            types.Job, "/v1/jobs", {"model": model, "state": state, "kind": kind, "limit": limit}
        )

    async def retrieve(self, job: str) -> types.Job:
        """Return a job in its current state. `client.job(id)` returns a handle to follow it."""
        return await self._http.get(types.Job, build_api_path("jobs", job))

    async def wait(
        self, job: str, timeout: float | None = None, *, progress: bool = False
    ) -> types.Job:
        """Wait until a job has ended: see `JobHandle.wait`."""
        return await AsyncJobHandle(self._http, job).wait(timeout, progress=progress)

    async def cancel(self, job: str) -> types.Job:
        """Cancel a job; it can be retried while its data is retained."""
        return await AsyncJobHandle(self._http, job).cancel()

    async def pause(self, job: str) -> types.Job:
        """Pause a job and keep its place."""
        return await AsyncJobHandle(self._http, job).pause()

    async def resume(self, job: str) -> types.Job:
        """Resume a paused job."""
        return await AsyncJobHandle(self._http, job).resume()

    async def retry(self, job: str, *, recipe: Mapping[str, Any] | None = None) -> AsyncJobHandle:
        """Learn a job's task again; after a held version, in a new job.

        Args:
            recipe: an override; `{}`: the model's recipe; None: the job's previous recipe.
        """
        # Not replayable, because the service has no Idempotency-Key for retries.
        ask = ApiRequest(
            "POST",
            build_api_path("jobs", job, "retry"),
            json={"recipe": recipe},
            is_replayable=False,
        )
        retried = await self._http.send_and_read(types.Job, ask)
        return AsyncJobHandle(self._http, retried.id, retried)

    async def trials(self, job: str) -> types.Trials:
        """Return the recipes that a job compares, with their figures."""
        return await AsyncJobHandle(self._http, job).trials()

    async def choose(self, job: str, trial: int) -> types.Trials:
        """Choose the trial of a waiting job whose result becomes the version."""
        return await AsyncJobHandle(self._http, job).choose(trial)

    def metrics(self, job: str, *, limit: int | None = None) -> AsyncPages[types.Point]:
        """List the measurements of a job's training, such as the loss."""
        return self._http.pages(
            types.Point, build_api_path("jobs", job, "metrics"), {"limit": limit}
        )

    async def download_anytime(
        self, job: str, to: str | Path, *, progress: bool | Progress = False
    ) -> Downloaded:
        """Download a job's best state so far, if its recipe sets `anytime`."""
        with open_transfer_bar("downloading", progress) as show:
            return await download_url_path_to_file(
                self._http,
                build_api_path("jobs", job, "anytime", "download"),
                Path(to),
                progress=show,
            )
