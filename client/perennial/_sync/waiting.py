"""How this client waits, and does what takes long without the network. `_async/waiting.py` is written by hand too."""

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
"""`until`: when what this thread waits for must have come, by the monotonic clock."""


def sleep(seconds: float) -> None:
    """Let time pass."""
    time.sleep(seconds)


def in_thread(work: Callable[[], T]) -> T:
    """Do it, here."""
    return work()


def from_thread(items: Iterator[T]) -> Iterator[T]:
    """The same items, made here."""
    return items


def new_client() -> httpx2.Client:
    """Make the connection to a service, whose reads keep to `within`."""
    client = httpx2.Client()
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx2.HTTPTransport):
            pool = transport._pool
            pool._network_backend = _Backend(pool._network_backend)
    return client


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Bound all that is waited for inside, however many bytes come meanwhile.

    A read has a timeout of its own, which a server that sends a byte now and then never reaches.

    Raises:
        ReadTimeout: it took longer.
    """
    _deadline.until = time.monotonic() + seconds
    try:
        yield
    finally:
        _deadline.until = None


class _Backend(httpcore2.NetworkBackend):
    """Opens connections as another one does; their reads end at the deadline of the thread."""

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
        return _Stream(self._backend.connect_tcp(host, port, timeout, local_address, socket_options))


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        until = getattr(_deadline, "until", None)
        if until is not None:
            left = until - time.monotonic()
            if left <= 0:
                raise httpcore2.ReadTimeout("the answer comes too slowly")
            timeout = left if timeout is None else min(left, timeout)
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
