"""Background tasks of the API that do something regularly."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import structlog
from anyio import to_thread
from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from api.authentication.access import Authenticator
from core.database.session import Database
from core.database.tables import AccessKey, UserSession
from core.errors import PerennialError
from core.retention.unreferenced_blobs import delete_unreferenced_cached_blobs
from core.storage import Blobs

log = structlog.get_logger(__name__)

# Nearly every request uses a key: written at once, each use would add a write to a read.
KEY_USE_PERIOD_S = 30.0
SWEEP_PERIOD_S = 60.0


class PeriodicTask(ABC):
    """Base class of a task of the event loop that calls `run_once` again and again.

    Args:
        name: name of the task.
        period_s: seconds between two calls.
    """

    def __init__(self, name: str, period_s: float) -> None:
        self._name = name
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> None:
        """Do the work of one period; an exception ends the periodic task."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run_periodically(), name=self._name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            # Awaited, so that no round is still running when the caller goes on.
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self.run_once()


class KeyUseRecorder(PeriodicTask):
    """A background task that regularly stores when API keys and login sessions were last used."""

    def __init__(self, db: Database, access: Authenticator) -> None:
        super().__init__("key-use", KEY_USE_PERIOD_S)
        self._db = db
        self._access = access

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        # Uses since the last round would otherwise be lost with the process.
        await self.run_once()

    async def run_once(self) -> None:
        """Store in the database when API keys and sessions were used since the last call."""
        # Swap before writing, so that nothing recorded meanwhile is lost.
        key_use_times, self._access.used = self._access.used, {}
        last_requests, self._access.seen = self._access.seen, {}
        if not key_use_times and not last_requests:
            return
        try:
            await to_thread.run_sync(_store_key_use_times, self._db, key_use_times, last_requests)
        # An outage must not end the task; only the times of one period are lost.
        except SQLAlchemyError as error:
            log.warning("last use of keys and sessions not written", error=str(error)[:300])


def _store_key_use_times(
    db: Database, key_use_times: dict[str, float], session_request_times: dict[str, float]
) -> None:
    with db.write() as session:
        for key_id, at in key_use_times.items():
            session.execute(update(AccessKey).where(AccessKey.id == key_id).values(last_used_at=at))
        for digest, at in session_request_times.items():
            session.execute(
                update(UserSession).where(UserSession.hash == digest).values(seen_at=at)
            )


class CachedBlobCopySweeper(PeriodicTask):
    """A background task that regularly deletes cached copies of blobs that nothing refers to.

    Workers sweep their own. An API on another machine has copies too, of images that its pages
    showed.
    """

    def __init__(self, db: Database, blobs: Blobs) -> None:
        super().__init__("cached-copies", SWEEP_PERIOD_S)
        self._db = db
        self._blobs = blobs

    async def run_once(self) -> None:
        """Delete the cached copies of blobs that nothing refers to any more."""
        try:
            await to_thread.run_sync(delete_unreferenced_cached_blobs, self._db, self._blobs)
        # An outage must not end the task: the next round deletes them.
        except (SQLAlchemyError, PerennialError, OSError) as error:
            log.warning("copies of deleted blobs not deleted yet", error=str(error)[:300])
