"""How this client waits, and does what takes long without the network. `_sync/waiting.py` is written by hand too."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx2

T = TypeVar("T")


async def sleep(seconds: float) -> None:
    """Let time pass."""
    await asyncio.sleep(seconds)


async def in_thread(work: Callable[[], T]) -> T:
    """Do what reads disks or hashes, and return what it returns; the event loop goes on meanwhile."""
    return await asyncio.to_thread(work)


async def from_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """What an iterator gives that reads disks or hashes, each item made as `in_thread` does it."""
    end = object()
    while (item := await in_thread(lambda: next(items, end))) is not end:
        yield item  # type: ignore[misc]  # it is not `end`


def new_client() -> httpx2.AsyncClient:
    """Make the connection to a service."""
    return httpx2.AsyncClient()


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Bound all that is waited for inside, however many bytes come meanwhile.

    Raises:
        ReadTimeout: it took longer.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise httpx2.ReadTimeout(f"no answer within {seconds:.0f} s") from error
