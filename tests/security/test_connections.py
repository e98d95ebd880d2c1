"""Attacks without a key on a real server.

They use heads, trailers, stray bytes, slow reads and half-open connections.
"""

import contextlib
import select
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from tests.api.conftest import catalogue_folder, empty_database
from tests.security import strangers
from tests.security.strangers import (
    DESCRIPTORS,
    GET,
    Target,
    measure_attack,
    open_connection,
    run_all_attacks,
    run_api,
)

pytestmark = pytest.mark.slow

__all__ = ["catalogue_folder", "empty_database"]
MANY = 15
STRAY = {"nothing": b"", "line end": b"\r\n", "body": b"x", "head": b"GET"}
"""Bytes sent by connections that stay open after an answer."""
MORE_MB = 48
"""Maximum additional memory of an attack in MB; it was 300 to 640 before there were limits."""


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, catalogue_folder: Path, empty_database: Path
) -> Path:
    made = tmp_path_factory.mktemp("strangers")
    (made / "catalogue").symlink_to(catalogue_folder)
    shutil.copy(empty_database, made / "perennial.db")
    return made


@pytest.fixture(scope="module")
def target(folder: Path) -> Iterator[Target]:
    with run_api(folder) as made:
        yield made


def check_keeps_serving(target: Target, attack: Callable[[int], None]) -> None:
    """Check that all other clients are answered, and that memory and descriptors are released."""
    seen = measure_attack(target, attack)
    assert seen.neighbour.answered > 0 and seen.neighbour.is_lease_lost == [], str(seen)
    assert seen.most_mb - seen.before_mb < MORE_MB, str(seen)
    assert seen.more_descriptors <= 0, str(seen)


@pytest.mark.parametrize(
    "attack",
    [
        strangers.flood_everything,
        pytest.param(
            partial(strangers.send_requests_at_once, seconds=1.0), marks=pytest.mark.campaign
        ),
        # test_half_open_connections_of_many_addresses_keep_nobody_out opens more of them
        pytest.param(partial(strangers.send_half_heads, seconds=2.0), marks=pytest.mark.campaign),
    ],
    ids=["floods", "send_requests_at_once", "send_half_heads"],
)
def test_an_attack_is_felt_by_nobody_else(target: Target, attack: Callable[[int], None]) -> None:
    check_keeps_serving(target, attack)


@pytest.mark.campaign
def test_all_attacks_at_once_are_felt_by_nobody_else(target: Target) -> None:
    check_keeps_serving(target, run_all_attacks)


def test_connections_that_stay_after_an_answer_or_do_not_read_are_ended(target: Target) -> None:
    quiet = target.descriptors()
    with contextlib.ExitStack() as stack:
        opened = [
            (kind, open_staying_connection(stack, target, kind))
            for kind in STRAY
            for _ in range(MANY)
        ]
        opened += [("unread answers", open_unread_connection(stack, target)) for _ in range(MANY)]
        deadline = time.monotonic() + strangers.CALM_S
        while target.descriptors() > quiet:
            left = Counter(kind for kind, client in opened if is_open(client))
            assert time.monotonic() < deadline, f"still open: {left}"
            time.sleep(0.05)


def open_staying_connection(
    stack: contextlib.ExitStack, target: Target, kind: str
) -> socket.socket:
    """Open a connection that gets an answer and then sends these bytes, or none."""
    client = stack.enter_context(open_connection(target.port))
    client.sendall(GET + (b"Content-Length: 9\r\n" if kind == "body" else b"") + b"\r\n")
    assert client.recv(1000)
    client.sendall(STRAY[kind])
    return client


def open_unread_connection(stack: contextlib.ExitStack, target: Target) -> socket.socket:
    """Open a connection that requests large answers and reads none."""
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", target.port))
    client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 40)
    return client


def is_open(client: socket.socket) -> bool:
    """Return whether a connection is still open, as far as its client knows."""
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_half_open_connections_of_many_addresses_keep_nobody_out(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(400):
            stack.enter_context(open_connection(target.port, f"127.0.0.{10 + number % 40}"))
        for _ in range(20):
            with open_connection(target.port, "127.0.0.2") as client:
                client.sendall(GET + b"\r\n")
                assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_few_descriptors_are_never_used_up_by_connections(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(open_connection(target.port)) for _ in range(DESCRIPTORS + 50)
        ]
        select.select(opened, [], [], 60)  # nobody has asked for anything
        assert target.descriptors() < DESCRIPTORS - 64
        said = [
            one for client in opened if (one := client.recv(1000))
        ]  # the others end without a word
        assert said and all(
            one.startswith(b"HTTP/1.1 503 ") and b"retry-after" in one for one in said
        )


def test_a_file_that_cannot_be_opened_is_a_503(target: Target, folder: Path) -> None:
    key = (folder / "admin-key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with contextlib.closing(HTTPConnection("127.0.0.1", target.port, timeout=60)) as client:

        def post_body(path: str, body: bytes) -> tuple[int, str | None]:
            client.request("POST", path, body, headers)  # always on one connection
            answer = client.getresponse()
            answer.read()
            return answer.status, answer.getheader("Retry-After")

        assert post_body("/v1/models", b'{"name": "birds", "scenario": "class"}')[0] == 201
        headers["Content-Type"] = "application/zip"
        target.process.rlimit(psutil.RLIMIT_NOFILE, (3, DESCRIPTORS))
        try:
            status, retry_after = post_body("/v1/models/birds/tasks", b"PK\x03\x04x")
        finally:
            target.process.rlimit(psutil.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        assert (status, bool(retry_after)) == (503, True)
        assert (
            post_body("/v1/models/birds/tasks", b"PK\x03\x04x")[0] == 422
        )  # open again: it is no archive
