"""How this client waits, and does what takes long without the network. `_sync/waiting.py` is written by hand too."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

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
