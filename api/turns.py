"""Turns at something that serves one request at a time, such as a helper process, fair between owners.

Who has the fewest turns is next, and of these who was served longest ago: one owner's requests, however many, cost
another's the turn that is under way at most. Where owners may have several turns, those are what nobody else waits for.
Within an owner the order is that of arrival.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Things of one kind, each lent to one request at a time. For one event loop.

    Args:
        things: what is lent.
        most_each: turns that an owner may have at once.
    """

    def __init__(self, things: Iterable[T], most_each: int = 1) -> None:
        self._most_each = most_each
        self._free = deque(things)
        self._waiting: dict[str, deque[asyncio.Future[T]]] = {}
        self._held: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        """Owner → when last served, as a count; of those alone that wait or were served while somebody waited."""
        self._count = 0

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[T]:
        """One of the things for the length of the block, when it is the owner's turn."""
        asked: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(asked)
        self._lend()
        try:
            thing = await asked
        except asyncio.CancelledError:
            if asked.done() and not asked.cancelled():
                self._give_back(owner, asked.result())
            else:
                self._forget(owner, asked)
            raise
        try:
            yield thing
        finally:
            self._give_back(owner, thing)

    def _give_back(self, owner: str, thing: T) -> None:
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._free.appendleft(thing)  # what was used last is warm
        self._lend()

    def _lend(self) -> None:
        while self._free:
            able = [owner for owner in self._waiting if self._held[owner] < self._most_each]
            if not able:
                break
            owner = min(able, key=lambda each: (self._held[each], self._served.get(each, 0)))
            asked = self._waiting[owner][0]
            self._forget(owner, asked)
            self._held[owner] += 1
            self._count += 1
            self._served[owner] = self._count
            asked.set_result(self._free.popleft())
        if not self._waiting and not self._held:
            self._served.clear()

    def _forget(self, owner: str, asked: "asyncio.Future[T]") -> None:
        """Take a request out of its owner's queue."""
        queue = self._waiting[owner]
        queue.remove(asked)
        if not queue:
            del self._waiting[owner]
