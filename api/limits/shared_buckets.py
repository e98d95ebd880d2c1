"""The token buckets of `api.limits.rate` in the Redis that API processes share.

An atomic script takes a token in one round trip, by Redis's clock.
"""

import asyncio

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from core.errors import Unavailable

# Every request waits for its bucket, so a slow Redis must not hold it up for longer.
TIMEOUT_S = 0.25
CONNECTIONS = 8
PREFIX = "perennial:rate:"

# KEYS[1]: bucket; ARGV: rate, capacity. Returns 0, or milliseconds until there is a token.
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


class SharedTokenBuckets:
    """Rate-limit token buckets in Redis, shared by all API processes."""

    def __init__(self, broker_url: str) -> None:
        # Blocking, so that a burst waits for a connection instead of failing or opening more.
        pool = BlockingConnectionPool.from_url(
            broker_url,
            max_connections=CONNECTIONS,
            timeout=TIMEOUT_S,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            # No retries: `api.limits.rate` continues without Redis instead of waiting for it.
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis(connection_pool=pool)
        self._script = self._redis.register_script(_SCRIPT)

    async def take_bucket_token(self, owner: str, per_s: float, capacity: float) -> float:
        """Take a rate-limit token of an owner in Redis; return 0, or the seconds until there is
        one.

        Raises:
            Unavailable: Redis does not answer within `TIMEOUT_S` seconds.
        """
        try:
            # The pool's own timeouts add up over connecting and reading; this limits the whole.
            async with asyncio.timeout(TIMEOUT_S):
                wait_ms = await self._script(keys=[PREFIX + owner], args=[per_s, capacity])
        except (RedisError, OSError, TimeoutError) as error:
            raise Unavailable(f"Redis does not answer ({type(error).__name__}).") from error
        return float(wait_ms) / 1000

    async def close(self) -> None:
        """Close the connections to Redis."""
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()
