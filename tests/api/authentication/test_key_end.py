"""Effects of the end of a key: requests in every process and open event streams end."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import to_thread
from sqlalchemy import update
from starlette.testclient import TestClient

from api import event_stream
from api.app import create_app
from api.authentication import access, key_watch
from api.authentication.access import REMEMBER_S
from core.database.session import Database
from core.database.tables import AccessKey
from core.packaged import packaged_base
from core.settings import Settings
from tests.api.conftest import KeyOf, Make

Headers = dict[str, str]
ENOUGH_S = 60.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time at which keys are checked; tests advance it with `clock[0] += 1`."""
    now, began = [time.time()], time.time()
    frozen = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0] - began)
    monkeypatch.setattr(access, "time", frozen)
    return now


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Return a semaphore that is released once for each event that a stream has sent.

    Streams check for events every few milliseconds.
    """
    events, encoded = threading.Semaphore(0), event_stream._encode_event

    def release_and_encode_event(event: event_stream.StreamEvent) -> bytes:
        events.release()
        return encoded(event)

    monkeypatch.setattr(event_stream, "_encode_event", release_and_encode_event)
    monkeypatch.setattr(event_stream, "LOOK_S", 0.01)
    return events


@pytest.fixture
def job(client: TestClient, key_of: KeyOf, archive: Make) -> str:
    """Create a job that waits, so that its stream does not end by itself."""
    mine = key_of("mine")
    body = {"name": "birds", "scenario": "class", "architecture": "small-cnn"}
    client.post("/v1/models", json=body, headers=mine)
    sent = client.post("/v1/models/birds/tasks", content=archive(a=2, b=2), headers=mine)
    return sent.json()["job"]["id"]  # type: ignore[no-any-return]


def follow_events_in_thread(
    client: TestClient, job: str, headers: Headers, told: threading.Semaphore
) -> tuple[threading.Thread, list[Any]]:
    """Start a thread that reads an event stream to its end, and wait until the stream has begun.
    Return the thread and the list that receives the response.
    """
    seen: list[Any] = []
    wanted = {**headers, "Accept": "text/event-stream"}
    thread = threading.Thread(
        target=lambda: seen.append(client.get(f"/v1/jobs/{job}/events", headers=wanted)),
        daemon=True,
    )
    thread.start()
    assert told.acquire(timeout=ENOUGH_S)
    return thread, seen


def revoke_key(client: TestClient, headers: Headers) -> None:
    prefix = headers["Authorization"].split("_")[1]
    key = next(k for k in client.get("/v1/keys").json()["items"] if k["prefix"] == prefix)
    assert client.delete(f"/v1/keys/{key['id']}").status_code == 204


def revoke_key_in_database(client: TestClient, headers: Headers) -> None:
    """Revoke a key in the database alone, as another process does."""
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        of_key = AccessKey.prefix == headers["Authorization"].split("_")[1]
        session.execute(update(AccessKey).where(of_key).values(revoked_at=1.0))


def test_a_stream_ends_when_its_key_is_revoked(
    client: TestClient, key_of: KeyOf, job: str, clock: list[float], told: threading.Semaphore
) -> None:
    mine, other = key_of("mine", "read"), key_of("mine", "read")
    thread, seen = follow_events_in_thread(client, job, mine, told)
    going_on, _ = follow_events_in_thread(client, job, other, told)
    revoke_key(client, mine)
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
    thread, seen = follow_events_in_thread(client, job, mine, told)
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
        revoke_key(client, mine)
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


SIZE = 300
PIECE = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the key with every piece of a transfer, in pieces of a hundred bytes."""
    monkeypatch.setattr(key_watch, "LOOK_S", 0.0)
    monkeypatch.setattr("api.uploads.piece.LEAST_BYTES", 100)
    monkeypatch.setattr("core.storage.folder.CHUNK_BYTES", 64 << 10)


@pytest.fixture(params=["revoked", "expired"])
def ending(
    request: pytest.FixtureRequest, client: TestClient, key_of: KeyOf, clock: list[float]
) -> Any:
    """Return a fresh key of an owner, and a function that ends it."""
    if request.param == "revoked":
        mine = key_of("mine")
        return mine, lambda: revoke_key_in_database(client, mine)
    mine = key_of("mine", "write", datetime.fromtimestamp(clock[0] + 1000, UTC).isoformat())
    return mine, lambda: clock.__setitem__(0, clock[0] + 1001)


def send_body_around_key_end(end: Callable[[], None]) -> Iterator[bytes]:
    """Yield a body of `SIZE` bytes, and call `end` after the first 100 of them."""
    yield b"a" * 100
    end()
    yield b"a" * 100
    yield b"a" * 100


@pytest.mark.usefixtures("looks")
def test_an_upload_ends_in_the_middle_of_a_piece_when_its_key_ends(
    client: TestClient, key_of: KeyOf, ending: Any, settings: Settings
) -> None:
    mine, end = ending
    begun = client.post("/v1/uploads", headers={**mine, **PIECE, "Upload-Length": str(SIZE + 100)})
    where = begun.headers["location"]
    kept = client.patch(where, content=b"k" * 100, headers={**mine, **PIECE, "Upload-Offset": "0"})
    assert kept.status_code == 204
    cut = client.patch(
        where,
        content=send_body_around_key_end(end),
        headers={**mine, **PIECE, "Upload-Offset": "100"},
    )
    assert cut.status_code == 401, cut.text
    for method in ("HEAD", "PATCH", "DELETE"):
        asked = client.request(method, where, headers={**mine, **PIECE, "Upload-Offset": "100"})
        assert asked.status_code == 401, method
    other = key_of(
        "mine"
    )  # of the same owner: what was kept before is there, and the upload is free
    assert client.head(where, headers={**other, **PIECE}).headers["upload-offset"] == "100"
    rest = client.patch(
        where, content=b"a" * SIZE, headers={**other, **PIECE, "Upload-Offset": "100"}
    )
    assert rest.status_code == 204
    assert list((settings.data_dir / "spool").iterdir()) == []


@pytest.mark.usefixtures("looks")
def test_a_batch_is_not_submitted_when_its_key_ends_while_it_comes(
    client: TestClient, key_of: KeyOf, ending: Any, archive: Make
) -> None:
    mine, end = ending
    body = archive(a=2, b=2)
    client.post(
        "/v1/models",
        json={"name": "birds", "scenario": "class", "architecture": "small-cnn"},
        headers=mine,
    )

    def yield_body_and_end_key() -> Iterator[bytes]:
        yield body[:100]
        end()
        yield body[100:]

    assert (
        client.post(
            "/v1/models/birds/tasks", content=yield_body_and_end_key(), headers=mine
        ).status_code
        == 401
    )
    assert client.get("/v1/models/birds/tasks", headers=key_of("mine")).json()["items"] == []


@pytest.mark.usefixtures("looks")
def test_a_download_is_cut_when_its_key_ends(
    client: TestClient, ending: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, end = ending
    model = {"name": "small", "scenario": "class", "base": packaged_base.PACKAGED,
             "architecture": {"name": "resnet20", "width": 32}}  # fmt: skip
    assert client.post("/v1/models", json=model, headers=mine).status_code == 201
    url = "/v1/models/small/versions/0/download"
    whole = client.get(url, headers=mine)
    assert whole.status_code == 200 and len(whole.content) > 10 * (64 << 10)
    real, looked = key_watch.KeyValidityWatch.check_key_if_due, []

    async def end_key_at_third_check(self: key_watch.KeyValidityWatch) -> None:
        looked.append(self)
        if len(looked) == 3:
            await to_thread.run_sync(end)
        await real(self)

    monkeypatch.setattr(key_watch.KeyValidityWatch, "check_key_if_due", end_key_at_third_check)
    cut = client.get(url, headers=mine)
    assert hashlib.sha256(cut.content).digest() != hashlib.sha256(whole.content).digest()
    assert len(cut.content) < len(whole.content) // 2
