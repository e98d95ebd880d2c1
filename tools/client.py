"""A small client of the REST API: what the demo, the end-to-end tests and the benchmarks say to it."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

Json = dict[str, Any]


class Client:
    """Calls one service with one key; any answer of 400 and above raises with the problem's detail."""

    def __init__(self, url: str, key: str, timeout_s: float = 60.0) -> None:
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout_s)

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request; `path` begins with `/v1`.

        Raises:
            RuntimeError: the service answered with a problem; the message holds it.
        """
        answer = self.http.request(method, path, **options)
        if answer.status_code >= 400:
            raise RuntimeError(f"{method} {path} → {answer.status_code}: {answer.text[:2000]}")
        return answer

    def get(self, path: str) -> Json:
        """The JSON answer of a GET."""
        found: Json = self.call("GET", path).json()
        return found

    def items(self, path: str) -> list[Json]:
        """All items of a list, page by page."""
        found: list[Json] = []
        cursor: str | None = ""
        while cursor is not None:
            page = self.call(
                "GET", path, params={"limit": 200, **({"cursor": cursor} if cursor else {})}
            ).json()
            found += page["items"]
            cursor = page["next_cursor"]
        return found

    def create_model(self, name: str, scenario: str = "class", **fields: Any) -> Json:
        """Create a model; `fields` are those of the contract (recipe, architecture, image …)."""
        body = {"name": name, "scenario": scenario, **fields}
        made: Json = self.call("POST", "/v1/models", json=body).json()
        return made

    def submit(
        self, model: str, archive: bytes | Path, name: str | None = None, recipe: str | None = None
    ) -> str:
        """Upload a batch and return the id of its job. A path is streamed."""
        headers = {"Content-Type": "application/octet-stream"}
        if recipe is not None:
            headers["Perennial-Recipe"] = recipe
        params = {"name": name} if name else None
        path = f"/v1/models/{model}/tasks"
        if isinstance(archive, bytes):
            answer = self.call("POST", path, content=archive, headers=headers, params=params)
        else:
            headers["Content-Length"] = str(archive.stat().st_size)
            with archive.open("rb") as file:
                answer = self.call("POST", path, content=file, headers=headers, params=params)
        return str(answer.json()["job"]["id"])

    def wait(self, job: str, timeout_s: float = 600.0, seen: Callable[[Json], None] | None = None) -> Json:
        """Poll a job until it is terminal and return it; `seen` gets every changed answer.

        Raises:
            TimeoutError: it is not terminal in time.
        """
        deadline, etag = time.monotonic() + timeout_s, ""
        answer: Json = {}
        while time.monotonic() < deadline:
            reply = self.call("GET", f"/v1/jobs/{job}", headers={"If-None-Match": etag} if etag else {})
            if reply.status_code != 304:
                answer = reply.json()
                etag = reply.headers["ETag"]
                if seen is not None:
                    seen(answer)
                if answer["is_terminal"]:
                    return answer
            time.sleep(0.1)
        why = (answer.get("waiting_for") or {}).get("detail", "")
        raise TimeoutError(
            f"Job {job} is still {answer.get('state')} after {timeout_s:.0f} s. {why}".rstrip()
        )

    def download(self, model: str, version: int | str, to: Path) -> str:
        """Stream a version's zip to `to`; return its sha256 after comparing it with the ETag.

        Raises:
            RuntimeError: the bytes are not those that the service named.
        """
        digest = hashlib.sha256()
        path = f"/v1/models/{model}/versions/{version}/download"
        with self.http.stream("GET", path) as answer, to.open("wb") as file:
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                digest.update(chunk)
                file.write(chunk)
        if answer.headers["ETag"].strip('"') != digest.hexdigest():
            raise RuntimeError(f"{path}: the digest of the download is not the one announced.")
        return digest.hexdigest()
