"""The public client, with plain requests beside its methods for what only tests need."""

from typing import Any

import httpx2

from perennial import JobHandle, Perennial, types
from perennial.errors import build_api_error

Json = dict[str, Any]


class Rest(Perennial):
    """A client of one service.

    Attributes:
        http: sends any request, once, with the key.
    """

    def __init__(self, url: str, key: str, timeout: float = 60.0) -> None:
        super().__init__(key, base_url=url, timeout=timeout)
        headers = {"Authorization": f"Bearer {key}"}
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=timeout)

    def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Send a request, whose `path` begins with `/v1`, and return the answer.

        Raises:
            APIError: the service answered with a problem.
        """
        answer = self.http.request(method, path, **options)
        if answer.status_code >= 400:
            raise build_api_error(answer.status_code, answer.headers, answer.content)
        return answer

    def get(self, path: str) -> Json:
        """Return the JSON of an answer, unchanged."""
        found: Json = self.call("GET", path).json()
        return found

    def items(self, path: str) -> list[Json]:
        """Return the JSON of all items of a list, unchanged."""
        return list(self._http.pages(dict[str, Any], path))

    def read_versions(self, model: str) -> list[Json]:
        """Return the JSON of all versions of a model, each with everything that is known of it."""
        path = f"/v1/models/{model}/versions"
        return [self.get(f"{path}/{item['number']}") for item in self.items(path)]

    def wait(self, job: str | JobHandle, timeout: float = 240.0) -> types.Job:
        """Wait for a job to end and return it, whatever its state.

        Raises:
            WaitTimeout: it has not ended in time.
        """
        handle = job if isinstance(job, JobHandle) else self.job(job)
        return handle.wait(timeout, check=False)
