"""Deletion of this machine's copies of blobs that were deleted elsewhere.

Workers sweep their own. An API on another machine has copies too, of images that its pages showed.
"""

import structlog
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from api.periodic_task import PeriodicTask
from core.database.session import Database
from core.errors import PerennialError
from core.retention.unused import delete_unreferenced_cached_blobs
from core.storage import Blobs

log = structlog.get_logger(__name__)

PERIOD_S = 60.0


class CachedBlobCopySweeper(PeriodicTask):
    """A background task that regularly deletes cached copies of blobs that nothing refers to."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        super().__init__("cached-copies", PERIOD_S)
        self._db = db
        self._blobs = blobs

    async def run_once(self) -> None:
        """Delete the cached copies of blobs that nothing refers to any more."""
        try:
            await to_thread.run_sync(delete_unreferenced_cached_blobs, self._db, self._blobs)
        # An outage must not end the task: the next round deletes them.
        except (SQLAlchemyError, PerennialError, OSError) as error:
            log.warning("copies of deleted blobs not deleted yet", error=str(error)[:300])
