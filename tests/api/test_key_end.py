"""What the end of a key ends: requests in every process, and event streams that are open."""

import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from api import access, event_stream
from api.access import REMEMBER_S
from api.app import create_app
from core.settings import Settings
from tests.api.conftest import KeyOf, Make

Headers = dict[str, str]
ENOUGH_S = 60.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time at which keys are looked at, which tests move: `clock[0] += 1`."""
    now, began = [time.time()], time.time()
    frozen = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0] - began)
    monkeypatch.setattr(access, "time", frozen)
    return now


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """One for each event that a stream has told. Streams look every few milliseconds."""
    events, encoded = threading.Semaphore(0), event_stream._encoded

    def tell(event: event_stream.Told) -> bytes:
        events.release()
        return encoded(event)

    monkeypatch.setattr(event_stream, "_encoded", tell)
    monkeypatch.setattr(event_stream, "LOOK_S", 0.01)
    return events


@pytest.fixture
def job(client: TestClient, key_of: KeyOf, archive: Make) -> str:
    """A job that waits, so that its stream does not end by itself."""
    mine = key_of("mine")
    body = {"name": "birds", "scenario": "class", "architecture": "small-cnn"}
    client.post("/v1/models", json=body, headers=mine)
    sent = client.post("/v1/models/birds/tasks", content=archive(a=2, b=2), headers=mine)
    return sent.json()["job"]["id"]  # type: ignore[no-any-return]


def follow(
    client: TestClient, job: str, headers: Headers, told: threading.Semaphore
) -> tuple[threading.Thread, list[Any]]:
    """Read a stream to its end in a thread; it has begun."""
    seen: list[Any] = []
    wanted = {**headers, "Accept": "text/event-stream"}
    thread = threading.Thread(
        target=lambda: seen.append(client.get(f"/v1/jobs/{job}/events", headers=wanted)), daemon=True
    )
    thread.start()
    assert told.acquire(timeout=ENOUGH_S)
    return thread, seen


def revoke(client: TestClient, headers: Headers) -> None:
    prefix = headers["Authorization"].split("_")[1]
    key = next(k for k in client.get("/v1/keys").json()["items"] if k["prefix"] == prefix)
    assert client.delete(f"/v1/keys/{key['id']}").status_code == 204


def test_a_stream_ends_when_its_key_is_revoked(
    client: TestClient, key_of: KeyOf, job: str, clock: list[float], told: threading.Semaphore
) -> None:
    mine, other = key_of("mine", "read"), key_of("mine", "read")
    thread, seen = follow(client, job, mine, told)
    going_on, _ = follow(client, job, other, told)
    revoke(client, mine)
    clock[0] += REMEMBER_S
    thread.join(ENOUGH_S)
    assert not thread.is_alive()
    assert seen[0].status_code == 200 and "event: state" in seen[0].text
    assert client.get(f"/v1/jobs/{job}/events", headers=mine).status_code == 401
    assert going_on.is_alive()
    client.post(f"/v1/jobs/{job}/cancel")
    going_on.join(ENOUGH_S)


def test_a_stream_ends_when_its_key_expires(
    client: TestClient, key_of: KeyOf, job: str, clock: list[float], told: threading.Semaphore
) -> None:
    mine = key_of("mine", "read", datetime.fromtimestamp(clock[0] + 1000, UTC).isoformat())
    thread, seen = follow(client, job, mine, told)
    clock[0] += 1001
    thread.join(ENOUGH_S)
    assert not thread.is_alive()
    assert seen[0].status_code == 200
    assert client.get("/v1/models", headers=mine).status_code == 401


def test_a_revoked_key_ends_in_every_process(
    client: TestClient, settings: Settings, key_of: KeyOf, clock: list[float]
) -> None:
    with TestClient(create_app(settings)) as second:
        mine = key_of("mine", "read")
        assert client.get("/v1/models", headers=mine).status_code == 200
        assert second.get("/v1/models", headers=mine).status_code == 200
        revoke(client, mine)
        assert REMEMBER_S < 5
        clock[0] += REMEMBER_S  # the promise: after this, nowhere
        assert client.get("/v1/models", headers=mine).status_code == 401
        assert second.get("/v1/models", headers=mine).status_code == 401


def test_an_expired_key_ends_on_time_though_it_is_remembered(
    client: TestClient, key_of: KeyOf, clock: list[float]
) -> None:
    mine = key_of("mine", "read", datetime.fromtimestamp(clock[0] + 1000, UTC).isoformat())
    statuses = []
    for seconds in (999, 0.9, 0.2):
        clock[0] += seconds
        statuses.append(client.get("/v1/models", headers=mine).status_code)
    assert statuses == [200, 200, 401]
