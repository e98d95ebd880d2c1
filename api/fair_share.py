"""An owner's share of an API process: how many of its requests are worked on at once.

A process answers on one core, so whoever sends the most requests would get nearly all of it. Here a request with a
key holds a slot of its owner while the process works for it, and other requests of the owner wait for that slot. It
holds none while it waits for its client, for a helper process or for heavy work: those have limits of their own. It
holds none for longer than `HOLD_S` either: what takes that long waits for a database or a store.
"""

import asyncio
from collections import Counter, deque
from contextvars import ContextVar
from time import monotonic

from core.settings import Settings

SHARED_S = 1.0
"""Owners share the process as long as two of them have asked within this time."""
HOLD_S = 0.5
_working: ContextVar["Working | None"] = ContextVar("working", default=None)


class FairShare:
    """The slots of all owners in an API process. For one event loop.

    Args:
        settings: `owner_requests_shared` slots while others ask too, else `owner_requests_alone`.
    """

    def __init__(self, settings: Settings) -> None:
        self._shared = settings.owner_requests_shared
        self._alone = settings.owner_requests_alone
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._last = ("", 0.0)
        self._last_other = 0.0
        """The owner who asked last and when, and when anybody else did."""

    async def enter(self, owner: str) -> None:
        """Take a slot, when there is one."""
        self._ask(owner)
        if self._held[owner] < self._limit(owner):
            self._held[owner] += 1
            return
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(asked)
        try:
            await asked
        except asyncio.CancelledError:
            if asked.cancelled():
                self._forget(owner, asked)
            else:
                self.leave(owner)
            raise

    def leave(self, owner: str) -> None:
        """Give a slot back; whoever has waited longest for one of this owner's gets it."""
        self._held[owner] -= 1
        while owner in self._waiting and self._held[owner] < self._limit(owner):
            asked = self._waiting[owner][0]
            self._forget(owner, asked)
            self._held[owner] += 1
            asked.set_result(None)
        if not self._held[owner]:
            del self._held[owner]

    def _ask(self, owner: str) -> None:
        if self._last[0] != owner:
            self._last_other = self._last[1]
        self._last = (owner, monotonic())

    def _limit(self, owner: str) -> int:
        other = self._last_other if self._last[0] == owner else self._last[1]
        return self._shared if other > monotonic() - SHARED_S else self._alone

    def _forget(self, owner: str, asked: "asyncio.Future[None]") -> None:
        self._waiting[owner].remove(asked)
        if not self._waiting[owner]:
            del self._waiting[owner]


class Working:
    """A request that the process works for, with pauses."""

    def __init__(self, share: FairShare, owner: str) -> None:
        self._share, self._owner = share, owner
        self._holds: asyncio.TimerHandle | None = None
        _working.set(self)

    async def begin(self) -> None:
        """Work for it, when there is a slot."""
        if self._holds is None:
            await self._share.enter(self._owner)
            self._holds = asyncio.get_running_loop().call_later(HOLD_S, self.pause)

    def pause(self) -> None:
        """Do not work for it now, or any more. May be called more than once."""
        if self._holds is not None:
            self._holds.cancel()
            self._holds = None
            self._share.leave(self._owner)


def pause() -> None:
    """The request that is being answered begins to wait for something that takes nothing of this process."""
    working = _working.get()
    if working is not None:
        working.pause()


async def resume() -> None:
    """It has waited, and there is something to do for it again."""
    working = _working.get()
    if working is not None:
        await working.begin()
