"""Rate limit of an owner's requests: a token bucket, in Redis where there is a broker.

A bucket refills at `PERENNIAL_MAX_REQUESTS_PER_S` and holds `BURST_S` seconds' worth. In Redis it
is shared by all API processes (`api.limits.shared_buckets`). Without a broker, and while Redis does not
answer, each process counts on its own. An unresponsive Redis delays one request by a quarter of a
second; it is not asked again for `AWAY_S` seconds.
"""

import math
from time import monotonic
from typing import Protocol

import structlog

from core.errors import TooManyRequests, Unavailable

log = structlog.get_logger(__name__)

BURST_S = 2.0
AWAY_S = 5.0
MAX_REMEMBERED = 10_000


class TokenBuckets(Protocol):
    """Protocol of rate-limit token buckets that API processes share: `api.limits.shared_buckets`."""

    async def take_bucket_token(self, owner: str, per_s: float, capacity: float) -> float:
        """Take an owner's rate-limit token; return 0, or the seconds until there is one. Raises
        Unavailable.
        """

    async def close(self) -> None:
        """Close the connections to the server that holds the token buckets."""


class OwnerRateLimiter:
    """Limits the requests per second of each owner, by token buckets.

    Args:
        per_s: requests per second that one owner may make; above 0.
        broker_url: the Redis that API processes share; empty: none.
    """

    def __init__(self, per_s: float, broker_url: str = "") -> None:
        self.per_s = per_s
        # A bucket that holds less than one token could never grant a request.
        self.capacity = max(1.0, per_s * BURST_S)
        self._buckets: dict[str, tuple[float, float]] = {}  # owner → (tokens, time)
        self._away_until = 0.0
        self._shared: TokenBuckets | None = None
        if broker_url:
            # Imported here because the embedded service runs without redis.
            from api.limits.shared_buckets import SharedTokenBuckets

            self._shared = SharedTokenBuckets(broker_url)

    async def charge_owner_request(self, owner: str) -> None:
        """Count one request against an owner's rate limit.

        Raises:
            TooManyRequests: the bucket is empty; `retry_after_s` says when to retry.
        """
        wait = None
        if self._shared is not None and monotonic() >= self._away_until:
            wait = await self._take_shared_token_or_compute_wait(self._shared, owner)
        if wait is None:
            wait = self._take_local_token_or_compute_wait(owner)
        if wait > 0:
            raise TooManyRequests(
                f"You may make {self.per_s:g} requests a second (and {self.capacity:g} at once):"
                " wait, then ask less often; `If-None-Match` and event streams save requests.",
                retry_after_s=max(1, math.ceil(wait)),
            )

    async def close(self) -> None:
        """Close the connections to Redis, if token buckets are shared."""
        if self._shared is not None:
            await self._shared.close()

    async def _take_shared_token_or_compute_wait(
        self, buckets: TokenBuckets, owner: str
    ) -> float | None:
        try:
            return await buckets.take_bucket_token(owner, self.per_s, self.capacity)
        except Unavailable as error:
            now = monotonic()
            # Of all requests that waited for Redis, log only the first.
            if now >= self._away_until:
                log.warning("each process counts requests for itself", error=error.detail)
            self._away_until = now + AWAY_S
            return None

    def _take_local_token_or_compute_wait(self, owner: str) -> float:
        """Take a rate-limit token of this process's own bucket; return 0, or the seconds until
        there is one.
        """
        now = monotonic()
        tokens, at = self._buckets.get(owner, (self.capacity, now))
        tokens = min(self.capacity, tokens + (now - at) * self.per_s)
        # Clearing all buckets bounds memory; it grants each owner at most one more burst.
        if len(self._buckets) >= MAX_REMEMBERED and owner not in self._buckets:
            self._buckets.clear()
        self._buckets[owner] = (tokens - 1 if tokens >= 1 else tokens, now)
        return 0.0 if tokens >= 1 else (1 - tokens) / self.per_s
