"""Work that is long and heavy: a little at once in a process, of each owner one, and nobody else waits for it.

Waiting costs no thread, so that the threads which answer everything else stay free.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from api.fair_share import pause, resume
from api.turns import Turns

T = TypeVar("T")


class HeavyWork:
    """Work in threads of its own, in turns between owners.

    Args:
        most: that may be done at once.
    """

    def __init__(self, most: int) -> None:
        self._turns = Turns(range(most))
        self._threads = CapacityLimiter(most)

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """The result of `work`, done in a thread when it is this owner's turn; raises what it raises."""
        pause()
        async with self._turns.turn(owner):
            done = await to_thread.run_sync(work, limiter=self._threads)
        await resume()
        return done
