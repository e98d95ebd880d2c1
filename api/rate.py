"""How many requests an owner may make: a token bucket, in Redis where there is a broker.

A bucket fills at `PERENNIAL_MAX_REQUESTS_PER_S` and holds `BURST_S` seconds' worth. In Redis it is shared by
all API processes (one round trip, an atomic script, Redis's clock); without a broker, and while Redis does
not answer, each process counts for itself. A silent Redis costs one request `TIMEOUT_S`, then nobody asks
it for `AWAY_S`.
"""

import asyncio
import math
from time import monotonic

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from core.errors import TooManyRequests

log = structlog.get_logger(__name__)

BURST_S = 2.0
TIMEOUT_S = 0.25
AWAY_S = 5.0
CONNECTIONS = 8
MAX_REMEMBERED = 10_000
PREFIX = "perennial:rate:"

# KEYS[1] bucket; ARGV rate, capacity. Returns 0, or milliseconds until there is a token.
_SCRIPT = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local known = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(known[1]) or capacity, tonumber(known[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - at) * rate)
local wait = 0
if tokens >= 1 then tokens = tokens - 1 else wait = math.ceil((1 - tokens) / rate * 1000) end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate * 1000) + 1000)
return wait
"""


class Rate:
    """The buckets of all owners.

    Args:
        per_s: requests per second that one owner may make; above 0.
        broker_url: the Redis that API processes share; empty: none.
    """

    def __init__(self, per_s: float, broker_url: str = "") -> None:
        self.per_s = per_s
        self.capacity = max(1.0, per_s * BURST_S)
        self._buckets: dict[str, tuple[float, float]] = {}  # owner → tokens, at
        self._away_until = 0.0
        self._redis: Redis | None = None
        if broker_url:
            pool = BlockingConnectionPool.from_url(
                broker_url,
                max_connections=CONNECTIONS,
                timeout=TIMEOUT_S,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
            )
            self._redis = Redis(connection_pool=pool)
            self._script = self._redis.register_script(_SCRIPT)

    async def take(self, owner: str) -> None:
        """Count one request of an owner.

        Raises:
            TooManyRequests: the bucket is empty; `retry_after_s` says when it is not.
        """
        wait = None
        if self._redis is not None and monotonic() >= self._away_until:
            wait = await self._shared(owner)
        if wait is None:
            wait = self._own(owner)
        if wait > 0:
            raise TooManyRequests(
                f"You may make {self.per_s:g} requests a second (and {self.capacity:g} at once):"
                " wait, then ask less often; `If-None-Match` and event streams save requests.",
                retry_after_s=max(1, math.ceil(wait)),
            )

    async def close(self) -> None:
        """Close the connections."""
        if self._redis is not None:
            await self._redis.aclose()
            await self._redis.connection_pool.disconnect()

    async def _shared(self, owner: str) -> float | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                waited = await self._script(keys=[PREFIX + owner], args=[self.per_s, self.capacity])
        except (RedisError, OSError, TimeoutError) as error:
            now = monotonic()
            if now >= self._away_until:  # of the requests that waited, one tells
                log.warning("each process counts requests for itself", error=type(error).__name__)
            self._away_until = now + AWAY_S
            return None
        return float(waited) / 1000

    def _own(self, owner: str) -> float:
        """Seconds until this process's bucket has a token, 0 when it had one."""
        now = monotonic()
        tokens, at = self._buckets.get(owner, (self.capacity, now))
        tokens = min(self.capacity, tokens + (now - at) * self.per_s)
        if len(self._buckets) >= MAX_REMEMBERED and owner not in self._buckets:
            self._buckets.clear()
        self._buckets[owner] = (tokens - 1 if tokens >= 1 else tokens, now)
        return 0.0 if tokens >= 1 else (1 - tokens) / self.per_s
