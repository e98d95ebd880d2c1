"""Limits of keys of scope predict, read from the database before a request's body is read.

See `core.keys.predict_keys`. A key that has used up its limit is cached until it has quota
again, so that its further requests cost the database nothing.
"""

import math
from time import monotonic

from anyio import to_thread

from core.database.session import Database
from core.errors import TooManyRequests
from core.keys import predict_keys

REMEMBER_S = 60.0
"""Maximum seconds to cache a refusal, since the limit may be changed meanwhile."""
MAX_REMEMBERED = 10_000


class PredictKeyLimiter:
    """Rate and daily limits of predict-scope keys. For one event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._refused: dict[str, tuple[str, float, float]] = {}
        """Key id → reason, time when the key has quota again, and time until which to trust
        that.
        """

    async def charge_predict_key_request(self, key_id: str) -> None:
        """Count one request and one image against the limits of a predict-scope key.

        Raises:
            TooManyRequests: the key has used up its limit; `retry_after_s` says when it may retry.
        """
        why, at, until = self._refused.get(key_id, ("", 0.0, 0.0))
        now = monotonic()
        if now < until:
            raise TooManyRequests(why, retry_after_s=max(1, math.ceil(at - now)))
        self._refused.pop(key_id, None)
        try:
            await to_thread.run_sync(
                lambda: predict_keys.charge_predict_key_daily_images(
                    self._db, key_id, 1, is_request=True
                )
            )
        except TooManyRequests as error:
            # Clearing all entries bounds memory; the database refuses these keys again.
            if len(self._refused) >= MAX_REMEMBERED:
                self._refused.clear()
            at = now + float(error.retry_after_s or 1)
            self._refused[key_id] = (error.detail, at, min(at, now + REMEMBER_S))
            raise

    async def charge_further_predict_images(self, key_id: str, images: int) -> None:
        """Count a request's images after the first against its key's daily limit. Raises
        TooManyRequests.
        """
        if images > 0:
            await to_thread.run_sync(
                lambda: predict_keys.charge_predict_key_daily_images(
                    self._db, key_id, images, is_request=False
                )
            )
