"""The client: a connection to a service, and its resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, Unpack

import httpx2

from perennial import types
from perennial._sync.http import Http
from perennial._sync.job import JobHandle
from perennial._sync.resources.accounts import Audit, Keys, Usage
from perennial._sync.resources.aliases import Aliases
from perennial._sync.resources.bases import Architectures, Bases, Methods
from perennial._sync.resources.edits import ClassAliases, Edits
from perennial._sync.resources.jobs import Jobs
from perennial._sync.resources.models import Memory, Models
from perennial._sync.resources.tasks import Tasks, Uploads, Choose, Name, Trials
from perennial._sync.resources.versions import Metrics, Versions, Images
from perennial._sync.resources.webhooks import Webhooks
from perennial._sync.stream import follow_events
from perennial.config import find_service_connection
from perennial.fields import OpenBatchOptions
from perennial.retry import Retries
from perennial.shapes import convert_from_json
from perennial.transfer import BatchIn, Downloaded, Progress


class Perennial:
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
        http_client: httpx2.Client | None = None,
    ) -> None:
        self.connection = find_service_connection(base_url, api_key, profile)
        # `Retries` counts attempts, of which the first is no repetition.
        retries = Retries(attempts=max_retries + 1)
        self._http = Http(
            self.connection.url, self.connection.key, retries, timeout, http_client
        )
        self.models = Models(self._http)
        self.tasks = Tasks(self._http)
        self.uploads = Uploads(self._http)
        self.jobs = Jobs(self._http)
        self.versions = Versions(self._http)
        self.aliases = Aliases(self._http)
        self.edits = Edits(self._http)
        self.class_aliases = ClassAliases(self._http)
        self.metrics = Metrics(self._http)
        self.memory = Memory(self._http)
        self.webhooks = Webhooks(self._http)
        self.keys = Keys(self._http)
        self.audit = Audit(self._http)
        self.usage = Usage(self._http)
        self.methods = Methods(self._http)
        self.architectures = Architectures(self._http)
        self.bases = Bases(self._http)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client's open connections."""
        self._http.close()

    def require_key(self) -> None:
        """Check that the client has an API key. Raises NoKey.

        With a key, no request is sent.

        Raises:
            NoKey: there is no key for the service.
            ServiceUnreachable: there is no key, and the service does not answer.
        """
        self._http.require_key()

    def me(self) -> types.Me:
        """Return the owner and the permissions of this key, and the service's limits."""
        return self._http.get(types.Me, "/v1/me")

    def ready(self) -> types.Ready:
        """Return whether database, store and broker answer."""
        return self._http.get(types.Ready, "/readyz")

    def submit(
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
    ) -> JobHandle:
        """Send a batch of labelled images: see `tasks.submit`."""
        return self.tasks.submit(
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

    def predict(
        self,
        model: str,
        images: Images,
        *,
        version: int | str = "production",
        top_k: int | None = None,
        task: int | None = None,
    ) -> types.Predict:
        """Predict labels of images with a version: see `versions.predict`."""
        return self.versions.predict(model, images, version=version, top_k=top_k, task=task)

    def download(
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
        return self.versions.download(
            model, version, to, format=format, progress=progress, max_bytes=max_bytes
        )

    def job(self, job: str) -> JobHandle:
        """Return a handle for a job, by its id, without sending a request."""
        return JobHandle(self._http, job)

    def events(
        self, *, model: str | None = None, after: int | None = None
    ) -> Iterator[types.OwnerEvent]:
        """Yield events of all jobs, versions and aliases of the key's owner, without end.

        The connection is restored after an interruption.

        Args:
            model: id or name of the only model; None: all.
            after: resume after this event (0: from the first on); None: only new events.
        """

        # An owner's events have no last one: a connection that ends is followed by another.
        def is_over() -> bool:
            return False

        for data in follow_events(self._http, "/v1/events", {"model": model}, after, is_over):
            yield convert_from_json(types.OwnerEvent, data)
