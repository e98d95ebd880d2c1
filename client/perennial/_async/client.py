"""The client: a connection to a service, and its resources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self, Unpack

import httpx2

from perennial import types
from perennial._async.http import AsyncHttp
from perennial._async.job import AsyncJobHandle
from perennial._async.resources.accounts import AsyncAudit, AsyncKeys, AsyncUsage
from perennial._async.resources.aliases import AsyncAliases
from perennial._async.resources.bases import AsyncArchitectures, AsyncBases, AsyncMethods
from perennial._async.resources.edits import AsyncClassAliases, AsyncEdits
from perennial._async.resources.jobs import AsyncJobs
from perennial._async.resources.models import AsyncMemory, AsyncModels
from perennial._async.resources.tasks import AsyncTasks, AsyncUploads, Choose, Name, Trials
from perennial._async.resources.versions import AsyncMetrics, AsyncVersions, Images
from perennial._async.resources.webhooks import AsyncWebhooks
from perennial._async.stream import follow_events
from perennial.config import find_service_connection
from perennial.fields import OpenBatchOptions
from perennial.retry import Retries
from perennial.shapes import convert_from_json
from perennial.transfer import BatchIn, Downloaded, Progress


class AsyncPerennial:
    """Asynchronous client of one Perennial service.

    Args:
        api_key: defaults to PERENNIAL_API_KEY, then the profile's key, then
            `perennial-data/admin-key` of a local service.
        base_url: defaults to PERENNIAL_URL, then the profile's URL, then http://127.0.0.1:8000.
        profile: name in the configuration file, as stored by `perennial login --profile`.
        timeout: seconds to wait for a response.
        max_retries: maximum number of repetitions of each request.
        http_client: an httpx2 client, for custom proxies or certificates; its creator closes it.

    Raises:
        ConfigError: the profile does not exist, or the URL is invalid.
    """

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        profile: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 4,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        self.connection = find_service_connection(base_url, api_key, profile)
        # `Retries` counts attempts, of which the first is no repetition.
        retries = Retries(attempts=max_retries + 1)
        self._http = AsyncHttp(
            self.connection.url, self.connection.key, retries, timeout, http_client
        )
        self.models = AsyncModels(self._http)
        self.tasks = AsyncTasks(self._http)
        self.uploads = AsyncUploads(self._http)
        self.jobs = AsyncJobs(self._http)
        self.versions = AsyncVersions(self._http)
        self.aliases = AsyncAliases(self._http)
        self.edits = AsyncEdits(self._http)
        self.class_aliases = AsyncClassAliases(self._http)
        self.metrics = AsyncMetrics(self._http)
        self.memory = AsyncMemory(self._http)
        self.webhooks = AsyncWebhooks(self._http)
        self.keys = AsyncKeys(self._http)
        self.audit = AsyncAudit(self._http)
        self.usage = AsyncUsage(self._http)
        self.methods = AsyncMethods(self._http)
        self.architectures = AsyncArchitectures(self._http)
        self.bases = AsyncBases(self._http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client's open connections."""
        await self._http.aclose()

    async def require_key(self) -> None:
        """Check that the client has an API key. Raises NoKey.

        With a key, no request is sent.

        Raises:
            NoKey: there is no key for the service.
            ServiceUnreachable: there is no key, and the service does not answer.
        """
        await self._http.require_key()

    async def me(self) -> types.Me:
        """Return the owner and the permissions of this key, and the service's limits."""
        return await self._http.get(types.Me, "/v1/me")

    async def ready(self) -> types.Ready:
        """Return whether database, store and broker answer."""
        return await self._http.get(types.Ready, "/readyz")

    async def submit(
        self,
        model: str,
        batch: BatchIn,
        *,
        name: Name = None,
        recipe: Mapping[str, Any] | None = None,
        drop_duplicates: bool = False,
        again: bool = False,
        keep_conflicts: bool = False,
        trials: Trials = None,
        choose: Choose = None,
        max_seconds: float | None = None,
        progress: bool | Progress = False,
        **options: Unpack[OpenBatchOptions],
    ) -> AsyncJobHandle:
        """Send a batch of labelled images: see `tasks.submit`."""
        return await self.tasks.submit(
            model,
            batch,
            name=name,
            recipe=recipe,
            drop_duplicates=drop_duplicates,
            again=again,
            keep_conflicts=keep_conflicts,
            trials=trials,
            choose=choose,
            max_seconds=max_seconds,
            progress=progress,
            **options,
        )

    async def predict(
        self,
        model: str,
        images: Images,
        *,
        version: int | str = "production",
        top_k: int | None = None,
        task: int | None = None,
    ) -> types.Predict:
        """Predict labels of images with a version: see `versions.predict`."""
        return await self.versions.predict(model, images, version=version, top_k=top_k, task=task)

    async def download(
        self,
        model: str,
        version: int | str | None = "production",
        to: str | Path | None = None,
        *,
        format: str = "safetensors",
        progress: bool | Progress = False,
        max_bytes: int | None = None,
    ) -> Downloaded:
        """Fetch a version as a verified zip: see `versions.download`."""
        return await self.versions.download(
            model, version, to, format=format, progress=progress, max_bytes=max_bytes
        )

    def job(self, job: str) -> AsyncJobHandle:
        """Return a handle for a job, by its id, without sending a request."""
        return AsyncJobHandle(self._http, job)

    async def events(
        self, *, model: str | None = None, after: int | None = None
    ) -> AsyncIterator[types.OwnerEvent]:
        """Yield events of all jobs, versions and aliases of the key's owner, without end.

        The connection is restored after an interruption.

        Args:
            model: id or name of the only model; None: all.
            after: resume after this event (0: from the first on); None: only new events.
        """

        # An owner's events have no last one: a connection that ends is followed by another.
        async def is_over() -> bool:
            return False

        async for data in follow_events(self._http, "/v1/events", {"model": model}, after, is_over):
            yield convert_from_json(types.OwnerEvent, data)
