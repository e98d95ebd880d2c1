"""Last use of keys and sessions, written to the database periodically and outside of requests."""

from types import TracebackType

import structlog
from anyio import to_thread
from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from api.authentication.access import Authenticator
from api.periodic_task import PeriodicTask
from core.database.session import Database
from core.database.tables import Key, UserSession

log = structlog.get_logger(__name__)

# Nearly every request uses a key: written at once, each use would add a write to a read.
PERIOD_S = 30.0


class KeyUseRecorder(PeriodicTask):
    """A background task that regularly stores when API keys and login sessions were last used."""

    def __init__(self, db: Database, access: Authenticator) -> None:
        super().__init__("key-use", PERIOD_S)
        self._db = db
        self._access = access

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await self.run_once()

    async def run_once(self) -> None:
        """Store in the database when API keys and sessions were used since the last call."""
        # Swap before writing, so that nothing recorded meanwhile is lost.
        used, self._access.used = self._access.used, {}
        last_requests, self._access.seen = self._access.seen, {}
        if not used and not last_requests:
            return
        try:
            await to_thread.run_sync(_store_key_use_times, self._db, used, last_requests)
        # An outage must not end the task; only the times of one period are lost.
        except SQLAlchemyError as error:
            log.warning("last use of keys and sessions not written", error=str(error)[:300])


def _store_key_use_times(db: Database, used: dict[str, float], seen: dict[str, float]) -> None:
    with db.write() as session:
        for key_id, at in used.items():
            session.execute(update(Key).where(Key.id == key_id).values(last_used_at=at))
        for digest, at in seen.items():
            session.execute(
                update(UserSession).where(UserSession.hash == digest).values(seen_at=at)
            )
