"""Sleeping, timeouts and threads of this client. `_async/waiting.py` is its hand-written
counterpart.
"""

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpcore2
import httpx2

T = TypeVar("T")
_deadline = threading.local()
"""`until`: deadline of this thread's reads on the monotonic clock, or None."""


def sleep_seconds(seconds: float) -> None:
    """Sleep for a number of seconds."""
    time.sleep(seconds)


def run_in_thread(work: Callable[[], T]) -> T:
    """Run the work in this thread and return its result."""
    return work()


def iterate_in_thread(items: Iterator[T]) -> Iterator[T]:
    """Return the same iterator; its items are computed in this thread."""
    return items


def create_http_client() -> httpx2.Client:
    """Return a new httpx2 client for the connection to a service, whose reads respect
    `limit_response_waiting_time`.
    """
    client = httpx2.Client()
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx2.HTTPTransport):
            pool = transport._pool
            pool._network_backend = _Backend(pool._network_backend)
    return client


@contextmanager
def limit_response_waiting_time(seconds: float) -> Iterator[None]:
    """Limit the time that the block waits, even if bytes keep arriving.

    The timeout of a single read never expires if a server sends a byte now and then.

    Raises:
        ReadTimeout: it took longer.
    """
    _deadline.until = time.monotonic() + seconds
    try:
        yield
    finally:
        _deadline.until = None


class _Backend(httpcore2.NetworkBackend):
    """A network backend whose connections' reads end at the thread's deadline."""

    def __init__(self, backend: httpcore2.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        return _Stream(
            self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        )


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        until = getattr(_deadline, "until", None)
        if until is not None:
            remaining_s = until - time.monotonic()
            if remaining_s <= 0:
                raise httpcore2.ReadTimeout("the answer comes too slowly")
            timeout = remaining_s if timeout is None else min(remaining_s, timeout)
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
