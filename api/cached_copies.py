"""Deletion of this machine's copies of blobs that were deleted elsewhere.

Workers sweep their own. An API on another machine has copies too, of images that its pages showed.
"""

import asyncio
import contextlib
from types import TracebackType

import structlog
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from core.database.session import Database
from core.errors import PerennialError
from core.retention.unused import delete_unreferenced_copies
from core.storage import Blobs

log = structlog.get_logger(__name__)

PERIOD_S = 60.0


class CachedCopySweeper:
    """A background task that regularly deletes cached copies of blobs that nothing refers to."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        self._db = db
        self._blobs = blobs
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "CachedCopySweeper":
        self._task = asyncio.create_task(self._sweep_periodically(), name="cached-copies")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _sweep_periodically(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                await to_thread.run_sync(delete_unreferenced_copies, self._db, self._blobs)
            # An outage must not end the task: the next round deletes them.
            except (SQLAlchemyError, PerennialError, OSError) as error:
                log.warning("copies of deleted blobs not deleted yet", error=str(error)[:300])
