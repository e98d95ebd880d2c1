"""What the end of a key ends: requests in every process, and event streams that are open."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.access import REMEMBER_S
from api.app import create_app
from core.settings import Settings

Headers = dict[str, str]
ENOUGH_S = 60.0


@pytest.fixture
def job(client: TestClient, key_of: Callable[..., Headers], archive: Callable[..., bytes]) -> str:
    """A job that waits, so that its stream does not end by itself."""
    mine = key_of("mine")
    client.post(
        "/v1/models", json={"name": "birds", "scenario": "class", "architecture": "small-cnn"}, headers=mine
    )
    sent = client.post("/v1/models/birds/tasks", content=archive(a=2, b=2), headers=mine)
    return sent.json()["job"]["id"]  # type: ignore[no-any-return]


def follow(client: TestClient, job: str, headers: Headers) -> tuple[threading.Thread, list[Any]]:
    """Read a stream to its end in a thread."""
    seen: list[Any] = []
    wanted = {**headers, "Accept": "text/event-stream"}
    thread = threading.Thread(
        target=lambda: seen.append(client.get(f"/v1/jobs/{job}/events", headers=wanted)), daemon=True
    )
    thread.start()
    return thread, seen


def revoke(client: TestClient, headers: Headers) -> None:
    prefix = headers["Authorization"].split("_")[1]
    key = next(k for k in client.get("/v1/keys").json()["items"] if k["prefix"] == prefix)
    assert client.delete(f"/v1/keys/{key['id']}").status_code == 204


def test_a_stream_ends_when_its_key_is_revoked(
    client: TestClient, key_of: Callable[..., Headers], job: str
) -> None:
    mine, other = key_of("mine", "read"), key_of("mine", "read")
    thread, seen = follow(client, job, mine)
    going_on, _ = follow(client, job, other)
    time.sleep(1.0)
    assert thread.is_alive()
    revoke(client, mine)
    thread.join(ENOUGH_S)
    assert not thread.is_alive()
    assert seen[0].status_code == 200 and "event: state" in seen[0].text
    assert client.get(f"/v1/jobs/{job}/events", headers=mine).status_code == 401
    assert going_on.is_alive()
    client.post(f"/v1/jobs/{job}/cancel")
    going_on.join(ENOUGH_S)


def test_a_stream_ends_when_its_key_expires(
    client: TestClient, key_of: Callable[..., Headers], job: str
) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    mine = key_of("mine", "read", soon)
    thread, seen = follow(client, job, mine)
    thread.join(ENOUGH_S)
    assert not thread.is_alive()
    assert seen[0].status_code == 200
    assert client.get("/v1/models", headers=mine).status_code == 401


def test_a_revoked_key_ends_in_every_process(
    client: TestClient, settings: Settings, key_of: Callable[..., Headers]
) -> None:
    with TestClient(create_app(settings)) as second:
        mine = key_of("mine", "read")
        assert client.get("/v1/models", headers=mine).status_code == 200
        assert second.get("/v1/models", headers=mine).status_code == 200
        revoke(client, mine)
        time.sleep(REMEMBER_S)  # the promise: after this, nowhere
        assert client.get("/v1/models", headers=mine).status_code == 401
        assert second.get("/v1/models", headers=mine).status_code == 401


def test_an_expired_key_ends_on_time_though_it_is_remembered(
    client: TestClient, key_of: Callable[..., Headers]
) -> None:
    until = datetime.now(UTC) + timedelta(seconds=1.5)
    mine = key_of("mine", "read", until.isoformat())
    assert client.get("/v1/models", headers=mine).status_code == 200
    time.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds()) + 0.05)
    assert client.get("/v1/models", headers=mine).status_code == 401
