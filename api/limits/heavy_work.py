"""Long, heavy work: a limited number at once per process, one per owner, in fair order.

Waiting occupies no thread, so the threads that answer other requests stay free.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from api.limits.fair_share import (
    reacquire_request_slot_after_wait,
    release_request_slot_before_wait,
)
from api.limits.resource_pool import ResourcePool

T = TypeVar("T")


class HeavyWorkQueue:
    """Runs slow work in its own threads, taking owners in turn.

    Args:
        max_calls: maximum number of calls that run at once.
    """

    def __init__(self, max_calls: int) -> None:
        self._turns = ResourcePool(range(max_calls))
        # A limiter of its own, so that this work leaves anyio's threads to other requests.
        self._threads = CapacityLimiter(max_calls)

    async def run_work_in_turn(self, owner: str, work: Callable[[], T]) -> T:
        """Run `work` in a thread when it is this owner's turn; return its result or raise its
        exception.
        """
        # Before the turn is awaited: a request that waits uses no part of the process.
        release_request_slot_before_wait()
        async with self._turns.lend_resource_in_turn(owner):
            result = await to_thread.run_sync(work, limiter=self._threads)
        await reacquire_request_slot_after_wait()
        return result
