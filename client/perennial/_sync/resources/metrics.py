"""The accuracy matrix of a model."""

from __future__ import annotations

from collections.abc import Iterable

from perennial import types
from perennial._sync.http import Http
from perennial.guard import api_path


class Metrics:
    """Accuracy of each version on each task."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def retrieve(
        self,
        model: str,
        version: int | str = "latest",
        *,
        first: int | None = None,
        last: int | None = None,
        tasks: Iterable[int] | None = None,
    ) -> types.Metrics:
        """Return the accuracy matrix and its summary.

        Args:
            version: version whose ancestors the summary covers.
            first, last: first and last version with a row.
            tasks: first and last task with a column.
        """
        task_range = ",".join(str(task) for task in tasks) if tasks is not None else None
        params = {"version": version, "from": first, "to": last, "tasks": task_range}
        return self._http.get(types.Metrics, api_path("models", model, "metrics"), params)
