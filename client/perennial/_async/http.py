"""Requests to one service: with its key, retried where that is safe, and errors as exceptions."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx2

from perennial import __version__
from perennial._async.waiting import sleep
from perennial.errors import NoKey, PerennialError, ServiceUnreachable, error_of
from perennial.retry import Retries
from perennial.shapes import read_as

T = TypeVar("T")
Params = Mapping[str, Any]
Content = Callable[[], AsyncIterator[bytes]]
"""Makes the body anew for every attempt."""
NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
PAGE = 200


@dataclass(frozen=True)
class Ask:
    """One request.

    Attributes:
        json: its body; None: none, or `content` is it.
        is_replayable: False for what must not be done twice and for which the service keeps no Idempotency-Key.
        timeout_s: for the answer; None: that of the client.
    """

    method: str
    path: str
    params: Params | None = None
    json: Any = None
    content: Content | bytes | None = None
    files: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_replayable: bool = True
    timeout_s: float | None = None


class AsyncHttp:
    """The connection to one service.

    Args:
        url: of the service, without `/v1`.
        key: sent with every request; None: without one each of them fails at once.
        client: httpx2's, for proxies, certificates …; it is closed by whoever made it.
    """

    def __init__(
        self, url: str, key: str | None, retries: Retries, timeout_s: float, client: httpx2.AsyncClient | None
    ) -> None:
        self.url, self._key, self.retries, self._timeout_s = url, key, retries, timeout_s
        self._owns = client is None
        self._client = httpx2.AsyncClient() if client is None else client

    def once(self) -> AsyncHttp:
        """The same, without a second attempt: for who knows better what to do after a failure."""
        return AsyncHttp(
            self.url, self._key, replace(self.retries, attempts=1), self._timeout_s, self._client
        )

    async def aclose(self) -> None:
        """End open connections."""
        if self._owns:
            await self._client.aclose()

    async def send(self, ask: Ask) -> httpx2.Response:
        """The answer, wholly read.

        Raises:
            APIError: it is a problem.
            ServiceUnreachable: there is none.
        """
        headers = self._headers(ask)
        attempt = 1
        while True:
            try:
                return await self._once(ask, headers)
            except PerennialError as error:
                pause = self.retries.pause_s(error, attempt, ask.is_replayable)
                if pause is None:
                    raise
            await sleep(pause)
            attempt += 1

    async def get(self, kind: type[T], path: str, params: Params | None = None) -> T:
        """The JSON answer of a GET."""
        return read_as(kind, (await self.send(Ask("GET", path, params))).json())

    async def call(self, kind: type[T], ask: Ask) -> T:
        """The JSON answer of any request."""
        return read_as(kind, (await self.send(ask)).json())

    async def pages(self, kind: type[T], path: str, params: Params | None = None) -> AsyncIterator[T]:
        """The items of a list, page by page as they are asked for."""
        cursor: str | None = None
        while True:
            wanted = {"limit": PAGE, **(params or {}), "cursor": cursor}
            page = (await self.send(Ask("GET", path, wanted))).json()
            for item in page["items"]:
                yield read_as(kind, item)
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[httpx2.Response]:
        """An answer whose body is read bit by bit; one attempt.

        Raises:
            APIError, ServiceUnreachable: as `send`; while the body is read too.
        """
        try:
            async with self._client.stream(
                ask.method, self.url + ask.path, **self._options(ask, self._headers(ask))
            ) as answer:
                if answer.status_code >= 400:
                    raise error_of(answer.status_code, answer.headers, await answer.aread())
                yield answer
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    async def _once(self, ask: Ask, headers: Mapping[str, str]) -> httpx2.Response:
        try:
            answer = await self._client.request(
                ask.method, self.url + ask.path, **self._options(ask, headers)
            )
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        if answer.status_code >= 400:
            raise error_of(answer.status_code, answer.headers, answer.content)
        return answer

    def _headers(self, ask: Ask) -> dict[str, str]:
        """The same for all attempts: so a submit that was done, but not answered, is not done again."""
        if self._key is None:
            raise NoKey(
                f"There is no key for {self.url}: run `perennial login`, or set PERENNIAL_API_KEY, or say api_key=…."
            )
        headers = {"Authorization": f"Bearer {self._key}", "User-Agent": f"perennial-client/{__version__}"}
        if ask.method == "POST":
            headers["Idempotency-Key"] = str(uuid.uuid4())
        if ask.json is not None:
            headers["Content-Type"] = "application/json"
        return {**headers, **ask.headers}

    def _options(self, ask: Ask, headers: Mapping[str, str]) -> dict[str, Any]:
        body = ask.content() if callable(ask.content) else ask.content
        return {
            "params": {key: value for key, value in (ask.params or {}).items() if value is not None},
            "headers": headers,
            "content": json.dumps(ask.json).encode() if ask.json is not None else body,
            "files": ask.files,
            "timeout": httpx2.Timeout(ask.timeout_s or self._timeout_s, connect=10.0),
        }

    def _unreachable(self, error: httpx2.TransportError) -> ServiceUnreachable:
        sent = not isinstance(error, NEVER_SENT)
        said = str(error) or type(error).__name__
        what = "broke the connection" if sent else "does not answer"
        return ServiceUnreachable(
            f"The service at {self.url} {what} ({said}). Is it running, and is the address right?",
            is_sent=sent,
        )
