"""Uploads that many requests want at once, or whose time is over while they come: one real service,
real sockets.
"""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tools import service

pytestmark = pytest.mark.campaign
MB = 1 << 20
PIECE = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}
LIMIT = 60 * MB
HOURS = 0.003
"""After its last byte an upload stays for 10.8 s."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.RunningService]:
    settings = {
        "PERENNIAL_THREADS": "1",
        "PERENNIAL_CHORES_S": "1",
        "PERENNIAL_MAX_OWNER_BYTES": str(LIMIT),
        "PERENNIAL_MAX_UPLOADS": "64",
        "PERENNIAL_UPLOAD_HOURS": str(HOURS),
    }
    with service.run_temporary_service(tmp_path_factory.mktemp("races"), settings) as found:
        yield found


@pytest.fixture
def client(
    running: service.RunningService, request: pytest.FixtureRequest
) -> Iterator[httpx2.Client]:
    """Requests of an owner of the test's own."""
    admin = {"Authorization": f"Bearer {running.key}"}
    body = {"name": "k", "owner": request.node.name.replace("_", "-")[:40], "scope": "write"}
    secret = httpx2.post(f"{running.url}/v1/keys", json=body, headers=admin, timeout=60).json()[
        "secret"
    ]
    limits = httpx2.Limits(max_connections=100)
    headers = {"Authorization": f"Bearer {secret}"}
    with httpx2.Client(base_url=running.url, headers=headers, timeout=120.0, limits=limits) as made:
        yield made


def create_upload(client: httpx2.Client, length: int) -> str:
    answer = client.post("/v1/uploads", headers={"Upload-Length": str(length)})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


def call_at_once(count: int, do: Callable[[int], Any]) -> list[Any]:
    """Start so many threads together, and return what each gets."""
    found: list[Any] = [None] * count
    together = threading.Barrier(count)

    def wait_and_call(number: int) -> None:
        together.wait()
        found[number] = do(number)

    threads = [threading.Thread(target=wait_and_call, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def list_stored_files(running: service.RunningService, where: str) -> list[Path]:
    folder = running.data_dir / "store" / "uploads" / where.rpartition("/")[2]
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_of_pieces_that_come_at_once_one_is_taken_whole(
    running: service.RunningService, client: httpx2.Client
) -> None:
    where = create_upload(client, 10 * MB)
    bodies = [bytes([number]) * (5 * MB) for number in range(24)]

    def send_numbered_piece(number: int) -> int:
        return client.patch(
            where, content=bodies[number], headers={**PIECE, "Upload-Offset": "0"}
        ).status_code

    statuses = Counter(call_at_once(len(bodies), send_numbered_piece))
    assert statuses[204] == 1 and set(statuses) <= {204, 409, 423}, statuses
    assert client.head(where).headers["upload-offset"] == str(5 * MB)
    [piece] = list_stored_files(running, where)
    assert hashlib.sha256(piece.read_bytes()).digest() in {
        hashlib.sha256(body).digest() for body in bodies
    }


def test_fifty_uploads_at_once_do_not_exceed_an_owners_bytes(
    running: service.RunningService, client: httpx2.Client
) -> None:
    places = [create_upload(client, 2 * MB) for _ in range(50)]

    def send_two_megabytes(number: int) -> int:
        headers = {**PIECE, "Upload-Offset": "0"}
        return client.patch(places[number], content=bytes(2 * MB), headers=headers).status_code

    statuses = Counter(call_at_once(50, send_two_megabytes))
    assert set(statuses) == {204, 429} and statuses[204] == LIMIT // (2 * MB), statuses
    assert (
        sum(path.stat().st_size for where in places for path in list_stored_files(running, where))
        == LIMIT
    )
    gone = [where for where in places if client.delete(where).status_code == 204]
    assert len(gone) == 50
    where = create_upload(client, 2 * MB)
    assert (
        client.patch(
            where, content=bytes(2 * MB), headers={**PIECE, "Upload-Offset": "0"}
        ).status_code
        == 204
    )


def test_an_upload_whose_time_is_over_while_it_is_written_is_kept(
    running: service.RunningService, client: httpx2.Client
) -> None:
    where, seconds = create_upload(client, 6 * MB), 3600 * HOURS
    looks: list[int] = []

    def yield_body_slowly() -> Iterator[bytes]:
        begun = time.monotonic()
        for number in range(60):
            yield bytes(MB // 10)
            time.sleep(max(0.0, begun + (number + 1) * 1.5 * seconds / 60 - time.monotonic()))
            if number == 50:
                looks.append(client.head(where).status_code)
        yield bytes(6 * MB - 60 * (MB // 10))

    headers = {**PIECE, "Upload-Offset": "0", "Content-Length": str(6 * MB)}
    answer = client.patch(where, content=yield_body_slowly(), headers=headers)
    assert (answer.status_code, looks) == (204, [404]), answer.text
    assert client.head(where).headers["upload-offset"] == str(6 * MB)
    deadline = time.monotonic() + 60 + 2 * 60.0  # the sweep looks once a minute
    while list_stored_files(running, where):
        assert time.monotonic() < deadline
        time.sleep(1)
    assert client.head(where).status_code == 404
