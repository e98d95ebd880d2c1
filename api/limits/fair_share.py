"""An owner's share of an API process: the number of its requests processed at once.

A process runs on one core, so the owner who sends the most requests would get nearly all of it. A
request with a key holds a slot of its owner while the process works on it; further requests of the
owner wait for that slot. A request holds no slot while it waits for its client, for a helper
process or for heavy work, which have limits of their own. No slot is held for longer than `HOLD_S`:
a request that takes longer is waiting for a database or a store.
"""

import asyncio
from collections import Counter, deque
from contextvars import ContextVar
from time import monotonic

from core.settings import Settings

SHARED_S = 1.0
"""Seconds after its last request for which a second owner counts as active."""
HOLD_S = 0.5
_working: ContextVar["RequestSlotHolder | None"] = ContextVar("working", default=None)


class FairRequestSlots:
    """Limits how many requests of one owner run at once in an API process. For one event loop.

    Args:
        settings: `owner_requests_shared` slots while other owners are active, else
            `owner_requests_alone`.
    """

    def __init__(self, settings: Settings) -> None:
        self._shared = settings.owner_requests_shared
        self._alone = settings.owner_requests_alone
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        # Whether another owner is active follows from two times: no list of owners is needed.
        self._last = ("", 0.0)
        self._last_other = 0.0
        """The owner of the last request and its time, and the time of the last request of another
        owner.
        """

    async def acquire_owner_slot(self, owner: str) -> None:
        """Take one of the request slots of an owner, waiting until one is free."""
        self._record_latest_owner(owner)
        if self._held[owner] < self._compute_owner_limit(owner):
            self._held[owner] += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.cancelled():
                self._remove_waiting_request(owner, slot)
            else:
                # The slot was granted before the cancellation arrived: pass it on.
                self.release_owner_slot(owner)
            raise

    def release_owner_slot(self, owner: str) -> None:
        """Release a request slot of an owner, and hand it to the owner's longest-waiting request."""
        self._held[owner] -= 1
        # The limit rises when the other owner has gone: several requests may fit now.
        while owner in self._waiting and self._held[owner] < self._compute_owner_limit(owner):
            slot = self._waiting[owner][0]
            self._remove_waiting_request(owner, slot)
            self._held[owner] += 1
            slot.set_result(None)
        if not self._held[owner]:
            del self._held[owner]

    def _record_latest_owner(self, owner: str) -> None:
        if self._last[0] != owner:
            self._last_other = self._last[1]
        self._last = (owner, monotonic())

    def _compute_owner_limit(self, owner: str) -> int:
        other_at = self._last_other if self._last[0] == owner else self._last[1]
        return self._shared if other_at > monotonic() - SHARED_S else self._alone

    def _remove_waiting_request(self, owner: str, waiting_request: "asyncio.Future[None]") -> None:
        self._waiting[owner].remove(waiting_request)
        if not self._waiting[owner]:
            del self._waiting[owner]


class RequestSlotHolder:
    """The request slot of one running request, which can be released and taken again."""

    def __init__(self, share: FairRequestSlots, owner: str) -> None:
        self._share, self._owner = share, owner
        self._holds: asyncio.TimerHandle | None = None
        # Whatever runs in the request's context can then release the slot without being passed it.
        _working.set(self)

    async def acquire_request_slot(self) -> None:
        """Take a request slot for this request, waiting until one is free."""
        if self._holds is None:
            await self._share.acquire_owner_slot(self._owner)
            self._holds = asyncio.get_running_loop().call_later(HOLD_S, self.release_request_slot)

    def release_request_slot(self) -> None:
        """Release this request's slot, for a while or for good. May be called more than once."""
        if self._holds is not None:
            self._holds.cancel()
            self._holds = None
            self._share.release_owner_slot(self._owner)


def release_request_slot_before_wait() -> None:
    """Release the current request's slot before it waits for something outside this process."""
    working = _working.get()
    if working is not None:
        working.release_request_slot()


async def reacquire_request_slot_after_wait() -> None:
    """Take a slot again for the current request after a wait."""
    working = _working.get()
    if working is not None:
        await working.acquire_request_slot()
