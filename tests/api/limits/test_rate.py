"""The rate of an owner's requests: in the process alone, shared through Redis, and when Redis goes
away.
"""

import asyncio
from typing import Any

import pytest
from redis import Redis
from starlette.testclient import TestClient

from api.limits import rate as rates
from api.limits import shared_buckets
from api.limits.rate import OwnerRateLimiter
from core.errors import TooManyRequests
from core.settings import Settings
from tests.api.conftest import serve_api


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that tests move: `clock[0] += 1`."""
    now = [1000.0]
    monkeypatch.setattr("api.limits.rate.monotonic", lambda: now[0])
    return now


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis may take long to answer: the machine may be busy."""
    monkeypatch.setattr(shared_buckets, "TIMEOUT_S", 60.0)


async def count_granted_requests(
    *buckets: OwnerRateLimiter, owner: str = "own_a", tries: int = 30
) -> int:
    """Return how many of some requests, spread over processes, are let in."""
    count = 0
    for number in range(tries):
        try:
            await buckets[number % len(buckets)].charge_owner_request(owner)
            count += 1
        except TooManyRequests as error:
            assert error.retry_after_s is not None and error.retry_after_s >= 1
    return count


async def count_granted_and_close(*buckets: OwnerRateLimiter, **more: Any) -> int:
    try:
        return await count_granted_requests(*buckets, **more)
    finally:
        for bucket in buckets:
            await bucket.close()


def test_two_seconds_worth_at_once_then_so_many_a_second(clock: list[float]) -> None:
    bucket = OwnerRateLimiter(5)
    assert asyncio.run(count_granted_requests(bucket)) == 10
    clock[0] += 1.0
    assert asyncio.run(count_granted_requests(bucket)) == 5
    clock[0] += 100.0
    assert asyncio.run(count_granted_requests(bucket)) == 10


def test_a_slow_rate_says_how_long_to_wait(clock: list[float]) -> None:
    bucket = OwnerRateLimiter(0.1)
    assert asyncio.run(count_granted_requests(bucket, tries=1)) == 1
    with pytest.raises(TooManyRequests) as refused:
        asyncio.run(bucket.charge_owner_request("own_a"))
    assert refused.value.retry_after_s == 10


def test_owners_do_not_share_a_bucket(clock: list[float]) -> None:
    bucket = OwnerRateLimiter(5)
    assert asyncio.run(count_granted_requests(bucket)) == 10
    assert asyncio.run(count_granted_requests(bucket, owner="own_b")) == 10


def test_processes_share_one_bucket_in_redis(redis_url: str, patient: None) -> None:
    # A token in a hundred seconds: however slow the test, none comes back.
    two = (OwnerRateLimiter(0.01, redis_url), OwnerRateLimiter(0.01, redis_url))
    for bucket in two:
        bucket.capacity = 7
    assert asyncio.run(count_granted_and_close(*two, owner="own_shared")) == 7


def test_a_bucket_in_redis_fills_again(redis_url: str, patient: None) -> None:
    bucket, key = OwnerRateLimiter(0.01, redis_url), f"{shared_buckets.PREFIX}own_fills"
    bucket.capacity = 3

    async def count_before_and_after() -> tuple[int, int]:
        before = await count_granted_requests(bucket, owner="own_fills")
        with Redis.from_url(redis_url) as redis:
            redis.hset(
                key, "at", str(float(redis.hget(key, "at")) - 200)
            )  # as if 200 seconds had passed
        return before, await count_granted_and_close(bucket, owner="own_fills")

    assert asyncio.run(count_before_and_after()) == (3, 2)


@pytest.mark.parametrize("trouble", ["gone", "silent"])
def test_without_redis_each_process_counts_for_itself(
    redis_server: Any, clock: list[float], trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(rates.log, "warning", lambda text, **_: warned.append(text))
    (redis_server.stop if trouble == "gone" else redis_server.freeze)()

    async def count_granted_without_redis() -> tuple[int, int]:
        bucket = OwnerRateLimiter(5, redis_server.url)
        at_once = await asyncio.gather(
            *(count_granted_requests(bucket, tries=1) for _ in range(30))
        )
        bucket_of_then = len(warned)
        clock[0] += rates.AWAY_S + 0.1  # it looks again, finds nothing, and says so again
        await count_granted_requests(bucket, tries=30)
        await bucket.close()
        return sum(at_once), bucket_of_then

    assert asyncio.run(count_granted_without_redis()) == (10, 1)
    assert len(warned) == 2


def test_redis_counts_again_when_it_is_back(
    redis_server: Any, clock: list[float], patient: None
) -> None:
    async def count_around_redis_restart() -> list[int]:
        bucket = OwnerRateLimiter(0.01, redis_server.url)
        bucket.capacity = 3
        seen = [await count_granted_requests(bucket)]
        redis_server.stop()
        seen.append(await count_granted_requests(bucket))  # its own bucket was full
        redis_server.start()
        clock[0] += rates.AWAY_S + 0.1
        seen.append(await count_granted_requests(bucket))  # the new server has no earlier counts
        await bucket.close()
        return seen

    assert asyncio.run(count_around_redis_restart()) == [3, 3, 3]


def test_too_many_requests_are_429_with_retry_after(settings: Settings, clock: list[float]) -> None:
    settings.max_requests_per_s = 2
    with serve_api(settings) as client:
        assert [client.get("/v1/models").status_code for _ in range(5)] == [200] * 4 + [429]
        refused = client.get("/v1/jobs/job_none")  # a polled route
        assert refused.status_code == 429
        assert refused.json()["type"] == "/problems/too-many-requests"
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        clock[0] += 1.0
        assert client.get("/v1/models").status_code == 200


def test_a_wrong_key_takes_nothing_from_an_owner(settings: Settings, clock: list[float]) -> None:
    settings.max_requests_per_s = 1
    with serve_api(settings) as client:
        key = client.headers["Authorization"]
        wrong = {"Authorization": f"{key[:-1]}{'A' if key[-1] != 'A' else 'B'}"}
        assert {client.get("/v1/models", headers=wrong).status_code for _ in range(5)} == {401}
        assert client.get("/v1/models").status_code == 200


@pytest.mark.slow
def test_requests_are_not_limited_by_default(client: TestClient) -> None:
    assert {client.get("/v1/models").status_code for _ in range(100)} == {200}
