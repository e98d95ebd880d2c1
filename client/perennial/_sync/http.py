"""Requests to one service: authenticated, retried where safe, with errors as exceptions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx2

from perennial import __version__
from perennial._sync.page import PaginatedListQuery
from perennial._sync.pages import Pages
from perennial._sync.waiting import create_http_client, limit_response_waiting_time, sleep_seconds
from perennial.errors import BadAnswer, NoKey, PerennialError, ServiceUnreachable, build_api_error
from perennial.guard import quote_refused_value
from perennial.responses import (
    MAX_ANSWER_BYTES,
    MAX_PROBLEM_BYTES,
    SLOWEST_BYTES_S,
    ApiResponse,
    ResponseBodyLimitMeter,
)
from perennial.retry import Retries
from perennial.shapes import convert_from_json

T = TypeVar("T")
Params = Mapping[str, Any]
Content = Callable[[], Iterator[bytes]]
"""Returns a new body for every attempt."""
# Failures before a request has left this machine: repeating it can do nothing twice.
NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
CODINGS = ("", "identity", "gzip")
"""Supported content encodings of a response."""
NOT_MODIFIED = 304
CHECK_S = 3.0
"""Seconds in which a service has to answer that it is there, when there is no key for it."""


@dataclass(frozen=True)
class ApiRequest:
    """A request that the client sends to the API.

    Attributes:
        json: JSON body; None: no body, or `content`.
        is_replayable: False for requests that must not be repeated and that have no
            Idempotency-Key.
        timeout_s: seconds to wait for the response; None: the client's timeout.
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


class Http:
    """Sends HTTP requests to one service, with its key, retries and limits on responses.

    Responses are read within the limits of `perennial.responses`. Redirects are not followed, so that
    the key is sent only to the named service.

    Args:
        url: URL of the service, without `/v1`.
        key: sent with every request; None: every request fails with the error of `require_key`.
        client: an httpx2 client, for custom proxies or certificates; its creator closes it.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        retries: Retries,
        timeout_s: float,
        client: httpx2.Client | None,
    ) -> None:
        self.url, self._key, self.retries, self._timeout_s = url, key, retries, timeout_s
        self._owns = client is None
        self._client = create_http_client() if client is None else client

    def copy_without_retries(self) -> Http:
        """Return a copy of this HTTP client without retries, for callers with their own recovery."""
        return Http(
            self.url, self._key, replace(self.retries, attempts=1), self._timeout_s, self._client
        )

    def close(self) -> None:
        """Close the HTTP client's open connections."""
        if self._owns:
            self._client.close()

    def send(self, ask: ApiRequest) -> ApiResponse:
        """Send a request and return its complete response.

        Raises:
            APIError: the response is a problem.
            BadAnswer: the response is not one of the API, or is too large.
            ServiceUnreachable: there is no response.
            NoKey: there is no key for the service.
        """
        self.require_key()
        # Built once for all attempts, so that they share one Idempotency-Key.
        headers = self._build_headers(ask)
        attempt = 1
        while True:
            try:
                return self._send_once(ask, headers)
            except PerennialError as error:
                pause = self.retries.compute_pause_seconds(error, attempt, ask.is_replayable)
                if pause is None:
                    raise
            sleep_seconds(pause)
            attempt += 1

    def get(self, kind: type[T], path: str, params: Params | None = None) -> T:
        """Send a GET request and return its JSON response as an object of type `kind`."""
        return convert_from_json(kind, (self.send(ApiRequest("GET", path, params))).json())

    def send_and_read(self, kind: type[T], ask: ApiRequest) -> T:
        """Send a request and return its JSON response as an object of type `kind`."""
        return convert_from_json(kind, (self.send(ask)).json())

    def pages(self, kind: type[T], path: str, params: Params | None = None) -> Pages[T]:
        """Return a paginated list of the API, which is requested page by page."""
        given_params = {key: value for key, value in (params or {}).items() if value is not None}
        return Pages(self, PaginatedListQuery(kind, path, given_params))

    @contextmanager
    def stream(self, ask: ApiRequest) -> Iterator[httpx2.Response]:
        """Send a request once and yield the response, whose body is read in chunks.

        Raises:
            APIError, BadAnswer, ServiceUnreachable, NoKey: as `send`, also while the body is read.
        """
        self.require_key()
        try:
            with self._open_response(ask, self._build_headers(ask)) as response:
                yield response
        except httpx2.RequestError as error:
            raise self._build_unreachable_error(error) from error

    def require_key(self) -> None:
        """Check that there is an API key for the service.

        A service that does not answer is reported first: a local one writes its key when it starts.

        Raises:
            NoKey: there is no key for the service.
            ServiceUnreachable: there is no key, and the service does not answer its health check.
        """
        if self._key is not None:
            return
        # Any response will do, since /healthz needs no key: it only decides which error is raised.
        request = self._client.build_request(
            "GET", f"{self.url}/healthz", timeout=httpx2.Timeout(CHECK_S)
        )
        try:
            with limit_response_waiting_time(CHECK_S):
                response = self._client.send(request, stream=True, follow_redirects=False)
            response.close()
        except httpx2.RequestError as error:
            raise self._build_unreachable_error(error) from error
        raise NoKey(
            f"There is no key for {self.url}. Go to the folder in which `perennial serve` was "
            f"started, where its key is read from perennial-data/admin-key. Or run `perennial "
            f"login`, set PERENNIAL_API_KEY, or say api_key=…."
        )

    def _send_once(self, ask: ApiRequest, headers: Mapping[str, str]) -> ApiResponse:
        try:
            with self._open_response(ask, headers) as response:
                return ApiResponse(
                    response.status_code,
                    response.headers,
                    self._read_body(response, MAX_ANSWER_BYTES),
                )
        except httpx2.RequestError as error:
            raise self._build_unreachable_error(error) from error

    @contextmanager
    def _open_response(
        self, ask: ApiRequest, headers: Mapping[str, str]
    ) -> Iterator[httpx2.Response]:
        """Send a request and yield its successful response before the body is read."""
        options = self._build_request_options(ask, headers)
        request = self._client.build_request(ask.method, self.url + ask.path, **options)
        sent_bytes = int(request.headers.get("Content-Length", "0"))
        # Allow time to send a large body before the response can arrive.
        patience_s = (ask.timeout_s or self._timeout_s) + sent_bytes / SLOWEST_BYTES_S
        with limit_response_waiting_time(patience_s):
            # A client that was passed in may follow redirects by default, and would carry the key
            # along.
            response = self._client.send(request, stream=True, follow_redirects=False)
        try:
            # First of all, so that no body in an unexpected encoding is decoded.
            self._refuse_redirect_or_unknown_encoding(response)
            if response.status_code >= 400:
                body = self._read_body(response, MAX_PROBLEM_BYTES)
                raise build_api_error(response.status_code, response.headers, body)
            yield response
        finally:
            response.close()

    def _read_body(self, response: httpx2.Response, most_bytes: int) -> bytes:
        """Read the body of a response. Raises BadAnswer if it is too large or too slow."""
        # The limit counts decompressed bytes, so that a small response cannot fill the memory.
        meter, content = ResponseBodyLimitMeter(most_bytes, self._timeout_s), bytearray()
        for chunk in response.iter_bytes():
            meter.count_received_bytes(len(chunk), response.num_bytes_downloaded)
            content += chunk
        return bytes(content)

    def _refuse_redirect_or_unknown_encoding(self, response: httpx2.Response) -> None:
        """Raise BadAnswer for a redirect or an unexpected content encoding."""
        status, coding = response.status_code, response.headers.get("Content-Encoding", "")
        if 300 <= status < 400 and status != NOT_MODIFIED:
            to = quote_refused_value(response.headers.get("Location", "nowhere"))
            raise BadAnswer(
                f"The service at {self.url} answers {status} and points to {to}. This client "
                "follows no redirect: the key stays with the service that was named. Give the "
                "address that it has now."
            )
        if coding.strip().lower() not in CODINGS:
            raise BadAnswer(
                f"The service's answer is packed as {quote_refused_value(coding)}; gzip was asked for."
            )

    def _build_headers(self, ask: ApiRequest) -> dict[str, str]:
        """Return the headers of a request for all of its attempts, including an Idempotency-Key."""
        headers = {
            "Authorization": f"Bearer {self._key}",
            "User-Agent": f"perennial-client/{__version__}",
        }
        # By default httpx2 offers every encoding it can decode; the check of a response accepts
        # only gzip.
        headers["Accept-Encoding"] = "gzip"
        if ask.method == "POST":
            headers["Idempotency-Key"] = str(uuid.uuid4())
        if ask.json is not None:
            headers["Content-Type"] = "application/json"
        # A request's own headers win: an upload brings the Idempotency-Key of its earlier runs.
        return {**headers, **ask.headers}

    def _build_request_options(self, ask: ApiRequest, headers: Mapping[str, str]) -> dict[str, Any]:
        # Called for each attempt, because a generator can be read only once.
        body = ask.content() if callable(ask.content) else ask.content
        return {
            # httpx2 would send None as an empty value.
            "params": {
                key: value for key, value in (ask.params or {}).items() if value is not None
            },
            "headers": headers,
            "content": json.dumps(ask.json).encode() if ask.json is not None else body,
            "files": ask.files,
            # Connecting fails fast, even if the response may take long, as after an upload.
            "timeout": httpx2.Timeout(ask.timeout_s or self._timeout_s, connect=10.0),
        }

    def _build_unreachable_error(self, error: httpx2.RequestError) -> ServiceUnreachable:
        is_sent = not isinstance(error, NEVER_SENT)
        # Some errors of httpx2 have no text.
        cause = str(error) or type(error).__name__
        failure = "broke the connection" if is_sent else "does not answer"
        return ServiceUnreachable(
            f"The service at {self.url} {failure} ({cause}). Is it running, and is the address "
            f"right?",
            is_sent=is_sent,
        )
