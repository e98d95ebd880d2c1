"""Sleeping, timeouts and threads of this client. `_sync/waiting.py` is its hand-written
counterpart.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx2

T = TypeVar("T")


async def sleep_seconds(seconds: float) -> None:
    """Sleep for a number of seconds."""
    await asyncio.sleep(seconds)


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run disk or hash work in a thread and return its result, without blocking the event loop."""
    return await asyncio.to_thread(work)


async def iterate_in_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Yield the items of an iterator that does disk or hash work, each computed in a thread."""
    # A sentinel, because StopIteration cannot be raised through a future.
    end = object()
    while (item := await run_in_thread(lambda: next(items, end))) is not end:
        yield item  # type: ignore[misc]  # it is not `end`


def create_http_client() -> httpx2.AsyncClient:
    """Return a new httpx2 client with its default settings."""
    return httpx2.AsyncClient()


@asynccontextmanager
async def limit_response_waiting_time(seconds: float) -> AsyncIterator[None]:
    """Limit the total time that the block may wait for a response, even if bytes keep arriving.

    Raises:
        ReadTimeout: it took longer.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        # The type of httpx2's own timeouts, which `AsyncHttp` translates.
        raise httpx2.ReadTimeout(f"no answer within {seconds:.0f} s") from error
