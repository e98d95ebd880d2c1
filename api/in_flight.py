"""Idempotency keys of uploads: held while the body streams in, answered from memory when it comes again."""

import asyncio
import contextlib
from collections.abc import Iterator

import structlog
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from api.answers import json_answer
from api.uploads import Head
from core.db.session import Database, is_outage
from core.requests import idempotency
from core.requests.actor import Actor

log = structlog.get_logger(__name__)


class InFlight:
    """Holds an idempotency key while its upload is under way.

    Args:
        route: method and path template.
        outer: fingerprint of what is known before the body: path, query, headers.
    """

    def __init__(self, db: Database, actor: Actor, route: str, key: str, outer: str) -> None:
        self._db, self._actor = db, actor
        self._request = idempotency.Request(route, key, "", outer)
        self._task: asyncio.Task[None] | None = None
        self.token = self._request.token
        self.replay: idempotency.Replay | None = None
        self.answered = False

    async def __aenter__(self) -> "InFlight":
        self.replay = await to_thread.run_sync(idempotency.begin, self._db, self._actor, self._request)
        if self.replay is None:
            self._task = asyncio.create_task(self._renew())
        return self

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(idempotency.RENEW_S)
            with _outage():
                await to_thread.run_sync(idempotency.renew, self._db, self._actor, self._request)

    async def __aexit__(self, *_: object) -> None:
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if not self.answered:
            with _outage():
                await to_thread.run_sync(idempotency.abandon, self._db, self._actor, self._request)


@contextlib.contextmanager
def _outage() -> Iterator[None]:
    """Without these words of ours the upload goes on, and its key is free again after `STALE_S`."""
    try:
        yield
    except SQLAlchemyError as error:
        if not is_outage(error):
            raise
        log.warning("idempotency key not renewed or freed", error=type(error).__name__)


def same_body(replay: idempotency.Replay, outer: str, known: Head) -> bool:
    """Whether the head alone shows that this is the first request again.

    Raises:
        IdempotencyMismatch: the head alone shows that it is another one.
    """
    if replay.request != outer:
        raise idempotency.mismatch()
    if known.digest is None:
        return False
    if known.digest == replay.content_sha256:
        return True
    if known.boundary is None:
        raise idempotency.mismatch()
    return False


def replayed(replay: idempotency.Replay) -> Response:
    """The first answer again."""
    return json_answer(replay.body, replay.status, replay.headers, replay=True)
