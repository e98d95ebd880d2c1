"""Fair turns between owners at things that serve one request at a time, such as helper processes.

The owner with the fewest turns is next; among equals, the one served longest ago. An owner's
requests, however many, therefore delay another owner by at most the turn in progress. Additional
turns go to an owner only while nobody else waits. Requests of one owner are served in order of
arrival.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class ResourcePool(Generic[T]):
    """A pool of equal resources, each lent to one request at a time, in fair turns between owners.

    Args:
        things: the things to lend.
        most_each: maximum number of turns that an owner may have at once.
    """

    def __init__(self, things: Iterable[T], most_each: int = 1) -> None:
        self._most_each = most_each
        self._free = deque(things)
        self._waiting: dict[str, deque[asyncio.Future[T]]] = {}
        self._held: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        """Owner → counter value when last served; only owners that wait, or were served during a
        wait.
        """
        self._count = 0

    @asynccontextmanager
    async def lend_resource_in_turn(self, owner: str) -> AsyncIterator[T]:
        """Lend one resource of the pool to a request within the block, when it is its owner's turn."""
        granted: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(granted)
        self._lend_to_next_owners()
        try:
            lent = await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                # It was lent before the cancellation arrived: lend it to the next request.
                self._take_back_resource(owner, granted.result())
            else:
                self._remove_waiting_request(owner, granted)
            raise
        try:
            yield lent
        finally:
            self._take_back_resource(owner, lent)

    def _take_back_resource(self, owner: str, thing: T) -> None:
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._free.appendleft(thing)  # what was used last is warm
        self._lend_to_next_owners()

    def _lend_to_next_owners(self) -> None:
        while self._free:
            able = [owner for owner in self._waiting if self._held[owner] < self._most_each]
            if not able:
                break
            owner = min(able, key=lambda each: (self._held[each], self._served.get(each, 0)))
            granted = self._waiting[owner][0]
            self._remove_waiting_request(owner, granted)
            self._held[owner] += 1
            self._count += 1
            self._served[owner] = self._count
            granted.set_result(self._free.popleft())
        # While nobody waits, the past order does not matter, and would grow with every owner.
        if not self._waiting and not self._held:
            self._served.clear()

    def _remove_waiting_request(self, owner: str, turn: "asyncio.Future[T]") -> None:
        """Remove a waiting request from its owner's queue."""
        queue = self._waiting[owner]
        queue.remove(turn)
        if not queue:
            del self._waiting[owner]
