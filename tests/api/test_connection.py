"""A connection is bounded in what its client sends, in how long it takes, and in what it does not read."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any

import pytest
import uvicorn

from api.connection import Connection

GET = b"GET /echo HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: x\r\n"
LIMITS = {"HEAD_S": 0.4, "KEEP_ALIVE_S": 0.4, "SEND_IDLE_S": 1.0, "MAX_PIPELINED": 4}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """`/slow`: four pieces that take longer than a head may. `/endless`: 64 MB. Else the request."""
    begin = {"type": "http.response.start", "status": 200, "headers": []}
    if scope["path"] in ("/slow", "/endless"):
        await send(begin)
    if scope["path"] == "/slow":
        for _ in range(4):
            await asyncio.sleep(0.2)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
    for _ in range(1000 if scope["path"] == "/endless" else 0):
        await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    names = [name.decode() for name, _ in scope["headers"]]
    if scope["path"] not in ("/slow", "/endless"):
        await send(begin)
    body = json.dumps({"path": scope["path"], "body": size, "headers": names}).encode()
    await send({"type": "http.response.body", "body": body})


Start = Callable[..., int]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a server with settings, and gives its port."""
    stops: list[Callable[[], None]] = []

    def begin(**settings: object) -> int:
        for name, value in {**LIMITS, **settings}.items():
            monkeypatch.setenv(f"PERENNIAL_{name}", str(value))
        config = uvicorn.Config(
            app, http=Connection, lifespan="off", log_level="critical", port=0, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join()

        stops.append(stop)
        while not server.started:
            time.sleep(0.01)
        port: int = server.servers[0].sockets[0].getsockname()[1]
        return port

    yield begin
    for stop in stops:
        stop()


@pytest.fixture
def port(start: Start) -> int:
    return start()


def connect(port: int, source: str = "127.0.0.1") -> AbstractContextManager[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0)))


def all_of(client: socket.socket) -> bytes:
    """Everything that comes until the server closes."""
    said = b""
    while block := client.recv(65536):
        said += block
    return said


def until(client: socket.socket, end: bytes) -> bytes:
    said = b""
    while end not in said:
        block = client.recv(65536)
        assert block, said
        said += block
    return said


def send_what_is_taken(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # closed before all was sent: what was said comes next
        client.sendall(data)


def problem(said: bytes) -> dict[str, Any]:
    """The problem at the end of what was said."""
    head, _, body = said.rpartition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.rpartition(b"HTTP/1.1")[2]
    assert b"connection: close" in head
    found: dict[str, Any] = json.loads(body)
    return found


# Time


def test_a_client_that_sends_nothing_is_ended(port: int) -> None:
    with connect(port) as client:
        assert client.recv(100) == b""


@pytest.mark.parametrize("head", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_half_a_head_is_a_408(port: int, head: bytes) -> None:
    with connect(port) as client:
        client.sendall(head)
        assert problem(all_of(client))["type"] == "/problems/head-timeout"


def test_a_head_in_drops_ends_the_connection(port: int) -> None:
    with connect(port) as client, pytest.raises(OSError):
        for _ in range(200):
            client.sendall(b"X")
            time.sleep(0.05)


def test_an_answer_may_take_longer_than_a_head(port: int) -> None:
    with connect(port) as client:
        client.sendall(SLOW + b"\r\n")
        assert b"/slow" in until(client, b"/slow")


@pytest.mark.parametrize(
    ("request_", "more"),
    [(GET + b"\r\n", GET[:9]), (GET + b"\r\n", b"\r\n"), (b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n", b"")],
    ids=["half a head", "a stray line end", "nothing"],
)
def test_a_kept_connection_is_ended_whatever_comes_but_a_request(
    port: int, request_: bytes, more: bytes
) -> None:
    with connect(port) as client:
        client.sendall(request_)
        until(client, b'"headers"')
        client.sendall(more)
        all_of(client)


def test_line_ends_in_drops_do_not_keep_a_connection(port: int) -> None:
    with connect(port) as client, pytest.raises(OSError):
        client.sendall(GET + b"\r\n")
        until(client, b'"headers"')
        for _ in range(100):
            client.sendall(b"\r\n")
            time.sleep(0.05)


# Size


@pytest.mark.parametrize(
    "pieces",
    [
        [GET, b"X-A: ", b"y" * 300_000],
        [GET, b"y" * 300_000],
        [b"GET /", b"y" * 300_000],
        [GET + b"X-A: y\r\n" * 300_000],
        [GET + b"X-A: y\r\n" * 100 + b"\r\n"],
        [CHUNKED, b"5;" + b"x" * 300_000],
        [CHUNKED, b"0" * 300_000],
        [CHUNKED, b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 50_000],
        [CHUNKED, b"5\r\nhello\r\n0\r\nX: " + b"y" * 300_000],
    ],
    ids=["value", "name", "target", "lines", "101 lines", "extension", "size", "trailers", "trailer"],
)
def test_what_is_no_body_has_a_limit(port: int, pieces: list[bytes]) -> None:
    with connect(port) as client:
        for piece in pieces:
            send_what_is_taken(client, piece)
        said = all_of(client)
    assert said.startswith(b"HTTP/1.1 431 ") and problem(said)["type"] == "/problems/head-too-large"


def test_a_head_up_to_the_limit_is_answered(port: int) -> None:
    filling = (64 << 10) - len(GET + b"X-A: \r\n\r\n")
    with connect(port) as client:
        client.sendall(GET + b"X-A: " + b"y" * filling + b"\r\n\r\n")
        assert b"HTTP/1.1 200" in until(client, b'"headers"')


def test_a_hundred_headers_are_answered(port: int) -> None:
    with connect(port) as client:
        client.sendall(GET + b"X-A: y\r\n" * 99 + b"\r\n")
        assert b"HTTP/1.1 200" in until(client, b'"headers"')


@pytest.mark.parametrize("chunk", [1, 1000, 1_000_000])
def test_a_body_of_any_pieces_comes_whole(port: int, chunk: int) -> None:
    size = 20_000 if chunk == 1 else 2_000_000
    with connect(port) as client:
        client.sendall(
            CHUNKED + (b"%x\r\n" % chunk + bytes(chunk) + b"\r\n") * (size // chunk) + b"0\r\n\r\n"
        )
        client.sendall(
            b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + bytes(3_000_000)
        )
        said = until(client, b'"body": 3000000')
        assert b'"body": %d' % size in said


def test_a_trailer_is_not_taken_for_a_header(port: int) -> None:
    with connect(port) as client:
        client.sendall(CHUNKED + b"5\r\nhello\r\n")
        time.sleep(0.1)
        client.sendall(b"0\r\nAuthorization: Bearer x\r\n\r\n")
        assert b'"headers": ["host", "transfer-encoding"]' in until(client, b'"headers"')


# Order


def test_requests_at_once_are_answered_in_their_order(port: int) -> None:
    with connect(port) as client:
        client.sendall(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5)))
        said = until(client, b'"/4"')
    assert [said.index(b'"/%d"' % number) for number in range(5)] == sorted(
        said.index(b'"/%d"' % number) for number in range(5)
    )


def test_too_many_requests_at_once_are_refused_after_the_answers(port: int) -> None:
    with connect(port) as client:
        client.sendall((GET + b"\r\n") * 3000)
        said = all_of(client)
    assert said.count(b"HTTP/1.1 200") == 5  # one that is answered, four that wait
    assert problem(said)["type"] == "/problems/too-many-requests"


def test_heads_that_wait_have_one_limit_together(port: int) -> None:
    with connect(port) as client:
        client.sendall(SLOW + b"\r\n" + (GET + b"X-A: " + b"y" * 40_000 + b"\r\n\r\n") * 3)
        said = all_of(client)
    assert said.count(b"HTTP/1.1 200") == 2
    assert said.count(b"HTTP/1.1 429") == 1


def test_noise_after_a_request_is_refused_after_its_answer(port: int) -> None:
    with connect(port) as client:
        client.sendall(SLOW + b"\r\n" + b"\x16\x03\x01noise\r\n\r\n")
        said = all_of(client)
    assert said.index(b'"/slow"') < said.index(b"HTTP/1.1 400")
    assert problem(said)["type"] == "/problems/bad-request"


def test_what_follows_an_upgrade_is_not_read_as_a_request(port: int) -> None:
    with connect(port) as client:
        client.sendall(GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + GET + b"\r\n")
        said = all_of(client)
    assert said.count(b"HTTP/1.1 200") == 1 and b"connection: close" in said


# Slow readers


def small_window(port: int) -> socket.socket:
    """A client whose system takes little: what it does not read shows soon."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
    return client


def is_closed(client: socket.socket) -> bool:
    """Whether the server has ended it; its reader learns that only after all that has come."""
    state: bytes = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state[0] in (7, 8)  # TCP_CLOSE, TCP_CLOSE_WAIT


@pytest.mark.parametrize("takes", [1, 0], ids=["ten bytes a second", "nothing"])
def test_a_reader_that_takes_almost_nothing_is_ended(port: int, takes: int) -> None:
    with closing(small_window(port)) as client:
        until(client, b"\0")
        for _ in range(60):
            if is_closed(client):
                return
            time.sleep(0.1)
            assert not takes or client.recv(takes)
    pytest.fail("it was not ended")


def test_a_slow_reader_that_goes_on_is_not_ended(start: Start) -> None:
    with closing(small_window(start(SEND_IDLE_S=2))) as client:
        for _ in range(60):
            time.sleep(0.1)
            assert client.recv(1024)
        assert not is_closed(client)


def test_a_reader_that_was_ended_has_left_its_place(start: Start) -> None:
    port = start(MAX_CONNECTIONS_PER_ADDRESS=1)
    with closing(small_window(port)) as first:
        while not is_closed(first):
            time.sleep(0.1)
        with connect(port) as second:
            second.sendall(GET + b"\r\n")
            assert b"HTTP/1.1 200" in until(second, b'"headers"')


# Places


def test_a_connection_too_many_is_told_so_and_another_address_is_answered(start: Start) -> None:
    port = start(HEAD_S=30, MAX_CONNECTIONS_PER_ADDRESS=2)
    with connect(port), connect(port), connect(port) as third:
        third.sendall(GET + b"\r\n")
        said = all_of(third)
        assert said.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: " in said.lower()
        assert problem(said)["type"] == "/problems/too-many-connections"
        with connect(port, "127.0.0.2") as other:
            other.sendall(GET + b"\r\n")
            assert b"HTTP/1.1 200" in until(other, b'"headers"')


def test_a_place_is_free_again_when_its_connection_has_gone(start: Start) -> None:
    port = start(HEAD_S=30, MAX_CONNECTIONS_PER_ADDRESS=1)
    for _ in range(5):
        with connect(port) as client:
            client.sendall(GET + b"Connection: close\r\n\r\n")
            assert b"HTTP/1.1 200" in all_of(client)


def test_behind_a_trusted_proxy_requests_under_way_are_counted_by_client(start: Start) -> None:
    port = start(MAX_CONNECTIONS_PER_ADDRESS=1, TRUSTED_PROXIES="127.0.0.1")
    forwarded = [b"X-Forwarded-For: 203.0.113.%d\r\n\r\n" % number for number in (1, 1, 2)]
    with connect(port) as one, connect(port) as two, connect(port) as three:
        for client, line in zip((one, two, three), forwarded, strict=True):
            client.sendall(SLOW + line)
            time.sleep(0.1)
        assert problem(all_of(two))["type"] == "/problems/too-many-connections"
        assert b"/slow" in until(one, b"/slow") and b"/slow" in until(three, b"/slow")
        one.sendall(SLOW + forwarded[0])  # its first answer has ended: it has its place again
        assert b"HTTP/1.1 200" in until(one, b"/slow")


def test_what_somebody_untrusted_says_of_himself_does_not_count(start: Start) -> None:
    port = start(MAX_CONNECTIONS_PER_ADDRESS=1, TRUSTED_PROXIES="127.0.0.9", HEAD_S=30)
    with connect(port), connect(port) as second:
        second.sendall(GET + b"X-Forwarded-For: 203.0.113.1\r\n\r\n")
        assert all_of(second).startswith(b"HTTP/1.1 503 ")
