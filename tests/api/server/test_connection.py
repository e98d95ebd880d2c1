"""Limits of a connection: what its client sends, how long it takes, and what it leaves unread.

The clock of the server's connections stands still unless a test advances it.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, ClassVar

import pytest
import uvicorn

from api.server.connection import LimitedHttpConnection, get_connection_limiter_of_server

GET = b"GET /echo HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: x\r\n"
HEAD_S, SEND_IDLE_S = 40, 120
LIMITS = {"HEAD_S": HEAD_S, "KEEP_ALIVE_S": HEAD_S, "SEND_IDLE_S": SEND_IDLE_S, "MAX_PIPELINED": 4}
SLOW_READER_BYTES = 100 << 10
"""Far fewer bytes than wait for a reader, but enough to give it half of `SEND_IDLE_S`."""
PATIENCE_S = 60
"""Time limit for what the server does at once."""


class Clock:
    """An event loop whose time advances only through `forward`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now = 1000.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        self._timers.append((self._now + delay, callback))
        return self._timers[-1]

    async def forward(self, seconds: int) -> None:
        for _ in range(seconds):
            self._now += 1.0
            due = [timer for timer in self._timers if timer[0] <= self._now]
            self._timers = [timer for timer in self._timers if timer not in due]
            for _, callback in due:
                callback()
            await asyncio.sleep(0)


class Site:
    """A server in a thread of its own. Answers to `/slow` pause while `released` is cleared."""

    def __init__(self, settings: dict[str, object]) -> None:
        config = uvicorn.Config(
            self._app, http=Timed, lifespan="off", interface="asgi3", log_level="critical", port=0
        )
        config.timeout_graceful_shutdown = 1
        self.server = uvicorn.Server(config)
        self.loop = config.get_loop_factory()()  # type: ignore[misc]
        self.clock = Timed.clocks[self.loop] = Clock(self.loop)
        self.released = threading.Event()
        self.released.set()
        self._thread = threading.Thread(
            target=self.loop.run_until_complete, args=[self.server.serve()]
        )
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**LIMITS, **settings}.items():
                patch.setenv(f"PERENNIAL_{name}", str(value))
            self._thread.start()
            while not self.server.started:
                time.sleep(0.01)
            self._run(self._set_clock())
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]

    async def _set_clock(self) -> None:
        get_connection_limiter_of_server(self.server.server_state)._loop = self.clock  # type: ignore[assignment]

    def stop(self) -> None:
        self.server.should_exit = self.server.force_exit = True
        self._thread.join()
        self.loop.close()

    def forward(self, seconds: int) -> None:
        """Advance the time of the connections."""
        self._run(self.clock.forward(seconds))

    def wait_for(self, is_so: Callable[[LimitedHttpConnection], bool]) -> None:
        """Wait until a condition holds for one of the connections."""
        until = time.monotonic() + PATIENCE_S
        while not any(is_so(each) for each in list(self.server.server_state.connections)):  # type: ignore[arg-type]
            assert time.monotonic() < until
            time.sleep(0.01)

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve `/slow`, `/endless` and every other path.

        `/slow` sends a piece, and the rest when it is released. `/endless` sends 64 MB. Other paths
        return the request.
        """
        begin = {"type": "http.response.start", "status": 200, "headers": []}
        if scope["path"] in ("/slow", "/endless"):
            await send(begin)
        if scope["path"] == "/slow":
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            while not self.released.is_set():
                await asyncio.sleep(0.01)
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


class Timed(LimitedHttpConnection):
    """A connection that uses the clock of the tests."""

    clocks: ClassVar[dict[asyncio.AbstractEventLoop, Clock]] = {}

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.loop = self.clocks[self.loop]  # type: ignore[assignment]


Start = Callable[..., Site]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a server with the given settings."""
    with contextlib.ExitStack() as stack:

        def start_site(**settings: object) -> Site:
            site = Site(settings)
            stack.callback(site.stop)
            return site

        yield start_site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site({})
    yield made
    made.stop()


@pytest.fixture
def port(site: Site) -> int:
    return site.port


@pytest.fixture
def held(site: Site) -> Iterator[None]:
    """Hold the answers to `/slow` until the test, or its end, releases them."""
    site.released.clear()
    yield
    site.released.set()


def open_connection(port: int, source: str = "127.0.0.1") -> AbstractContextManager[socket.socket]:
    return closing(
        socket.create_connection(
            ("127.0.0.1", port), timeout=PATIENCE_S, source_address=(source, 0)
        )
    )


def receive_all(client: socket.socket) -> bytes:
    """Return everything that the server sends until it closes."""
    said = b""
    while block := client.recv(65536):
        said += block
    return said


def receive_all_while_time_passes(site: Site, client: socket.socket) -> bytes:
    """Return everything that the server sends until it closes, while time passes."""
    said = b""
    client.settimeout(0.02)
    while True:
        site.forward(HEAD_S // 4)
        try:
            block = client.recv(65536)
        except TimeoutError:
            continue
        if not block:
            return said
        said += block


def receive_until(client: socket.socket, end: bytes) -> bytes:
    said = b""
    while end not in said:
        block = client.recv(65536)
        assert block, said
        said += block
    return said


def send_until_closed(client: socket.socket, data: bytes) -> None:
    # The server closes before all is sent; its response is read below.
    with contextlib.suppress(ConnectionError):
        client.sendall(data)


def read_problem(said: bytes) -> dict[str, Any]:
    """Return the problem at the end of what the server sent."""
    head, _, body = said.rpartition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.rpartition(b"HTTP/1.1")[2]
    assert b"connection: close" in head
    found: dict[str, Any] = json.loads(body)
    return found


# Time


def test_a_client_that_sends_nothing_is_ended(site: Site) -> None:
    with open_connection(site.port) as client:
        assert receive_all_while_time_passes(site, client) == b""


@pytest.mark.parametrize("head", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_half_a_head_is_a_408(site: Site, head: bytes) -> None:
    with open_connection(site.port) as client:
        client.sendall(head)
        site.wait_for(lambda each: each._in_head)
        assert (
            read_problem(receive_all_while_time_passes(site, client))["type"]
            == "/problems/head-timeout"
        )


def test_a_head_in_drops_ends_the_connection(site: Site) -> None:
    with open_connection(site.port) as client, pytest.raises(OSError):
        for _ in range(1000):
            client.sendall(b"X")
            site.forward(HEAD_S // 4)


@pytest.mark.parametrize("behind", [b"", GET[:9]], ids=["alone", "with half a head behind it"])
def test_an_answer_may_take_longer_than_a_head(site: Site, held: None, behind: bytes) -> None:
    with open_connection(site.port) as client:
        client.sendall(SLOW + b"\r\n" + behind)
        receive_until(client, b"begun")
        site.wait_for(lambda each: each._in_head == bool(behind))
        site.forward(2 * HEAD_S)
        site.released.set()
        receive_until(client, b"/slow")
        client.sendall((GET + b"\r\n")[len(behind) :])
        assert b"HTTP/1.1 200" in receive_until(client, b'"/echo"')


@pytest.mark.parametrize(
    ("request_", "more"),
    [(GET + b"\r\n", GET[:9]), (GET + b"\r\n", b"\r\n"), (SLOW + b"\r\n", b"")],
    ids=["half a head", "a stray line end", "nothing"],
)
def test_a_kept_connection_is_ended_whatever_comes_but_a_request(
    site: Site, request_: bytes, more: bytes
) -> None:
    with open_connection(site.port) as client:
        client.sendall(request_)
        receive_until(client, b'"headers"')
        client.sendall(more)
        receive_all_while_time_passes(site, client)


def test_line_ends_in_drops_do_not_keep_a_connection(site: Site) -> None:
    with open_connection(site.port) as client, pytest.raises(OSError):
        client.sendall(GET + b"\r\n")
        receive_until(client, b'"headers"')
        for _ in range(1000):
            client.sendall(b"\r\n")
            site.forward(HEAD_S // 4)


def test_stray_bytes_buy_a_new_connection_no_time(site: Site) -> None:
    with open_connection(site.port) as client:
        for stray in (b"\r\n", b"\n", b"\r\n", b"G"):
            site.forward(HEAD_S // 5)
            client.sendall(stray)
        site.wait_for(lambda each: each._in_head)
        site.forward(HEAD_S // 5 + 1)
        assert read_problem(receive_all(client))["type"] == "/problems/head-timeout"


# Form


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        POST + b"Content-Length: 2, 2\r\n\r\nab",
        POST + b"Content-Length: +2\r\n\r\nab",
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length : 2\r\n\r\nab",
        GET + b"X-A : a\r\n\r\n",
        GET + b"X-A\t: a\r\n\r\n",
        GET + b"X-A: a\r\n b\r\n\r\n",
        GET + b"X-A: a\r\n\tb\r\n\r\n",
        b"GET /echo HTTP/1.1\r\n Host: x\r\n\r\n",
        GET + b"X-A: a\rb\r\n\r\n",
        GET + b"X-A: a\rX-B: b\r\n\r\n",
        GET + b"X-A: a\r\r\n\r\n",
        b"GET /echo HTTP/1.1\rHost: x\r\n\r\n",
        b"GET /echo HTTP/1.1\nHost: x\n\n",
        GET + b"X-A: a\nX-B: b\r\n\r\n",
        GET + b"X-A: a\0b\r\n\r\n",
        GET + b"XA\r\n\r\n",
        GET + b": a\r\n\r\n",
        b"GET /echo HTTP/1.1\r\n\r\n",
        b"GET /echo\r\n\r\n",
        CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n",
        CHUNKED + b"0x2\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"2 \r\nab\r\n0\r\n\r\n",
        CHUNKED + b"2\nab\r\n0\r\n\r\n",
        CHUNKED + b"2\r\nabXX0\r\n\r\n",
        CHUNKED + b"2\r\nab\n0\r\n\r\n",
    ],
)
def test_a_request_that_two_readers_could_take_in_two_ways_is_a_400(
    port: int, request_: bytes
) -> None:
    with open_connection(port) as client:
        client.sendall(request_)
        said = receive_all(client)
    assert (
        said.startswith(b"HTTP/1.1 400 ") and read_problem(said)["type"] == "/problems/bad-request"
    )


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
    ids=[
        "value",
        "name",
        "target",
        "lines",
        "101 lines",
        "extension",
        "size",
        "trailers",
        "trailer",
    ],
)
def test_what_is_no_body_has_a_limit(port: int, pieces: list[bytes]) -> None:
    with open_connection(port) as client:
        for piece in pieces:
            send_until_closed(client, piece)
        said = receive_all(client)
    assert (
        said.startswith(b"HTTP/1.1 431 ")
        and read_problem(said)["type"] == "/problems/head-too-large"
    )


def test_a_head_up_to_the_limit_is_answered(port: int) -> None:
    filling = (64 << 10) - len(GET + b"X-A: \r\n\r\n")
    with open_connection(port) as client:
        client.sendall(GET + b"X-A: " + b"y" * filling + b"\r\n\r\n")
        assert b"HTTP/1.1 200" in receive_until(client, b'"headers"')


def test_a_hundred_headers_are_answered(port: int) -> None:
    with open_connection(port) as client:
        client.sendall(GET + b"X-A: y\r\n" * 99 + b"\r\n")
        assert b"HTTP/1.1 200" in receive_until(client, b'"headers"')


@pytest.mark.parametrize("chunk", [1, 1000, 1_000_000])
def test_a_body_of_any_pieces_comes_whole(port: int, chunk: int) -> None:
    size = 20_000 if chunk == 1 else 2_000_000
    with open_connection(port) as client:
        chunks = (b"%x\r\n" % chunk + bytes(chunk) + b"\r\n") * (size // chunk)
        client.sendall(CHUNKED + chunks + b"0\r\n\r\n")
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n"
        client.sendall(head + bytes(3_000_000))
        said = receive_until(client, b'"body": 3000000')
        assert b'"body": %d' % size in said


def test_a_trailer_is_not_taken_for_a_header(site: Site) -> None:
    with open_connection(site.port) as client:
        client.sendall(CHUNKED + b"5\r\nhello\r\n")
        site.wait_for(lambda each: each._received == 5)
        client.sendall(b"0\r\nAuthorization: Bearer x\r\n\r\n")
        assert b'"headers": ["host", "transfer-encoding"]' in receive_until(client, b'"headers"')


# Order


def test_requests_at_once_are_answered_in_their_order(port: int) -> None:
    with open_connection(port) as client:
        client.sendall(
            b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5))
        )
        said = receive_until(client, b'"/4"')
    places = [said.index(b'"/%d"' % number) for number in range(5)]
    assert places == sorted(places)


def test_too_many_requests_at_once_are_refused_after_the_answers(port: int) -> None:
    with open_connection(port) as client:
        client.sendall((GET + b"\r\n") * 3000)
        said = receive_all(client)
    assert said.count(b"HTTP/1.1 200") == 5  # one that is answered, four that wait
    assert read_problem(said)["type"] == "/problems/too-many-requests"


def test_heads_that_wait_have_one_limit_together(start: Start) -> None:
    site = start(MAX_HEAD_BYTES=2000)
    site.released.clear()
    with open_connection(site.port) as client:
        # Few enough bytes to come in one piece: what comes later is not read while a head waits.
        client.sendall(SLOW + b"\r\n" + (GET + b"X-A: " + b"y" * 1200 + b"\r\n\r\n") * 3)
        site.wait_for(lambda each: each._is_deaf)
        site.released.set()
        said = receive_all(client)
    assert said.count(b"HTTP/1.1 200") == 2
    assert said.count(b"HTTP/1.1 429") == 1


def test_noise_after_a_request_is_refused_after_its_answer(site: Site, held: None) -> None:
    with open_connection(site.port) as client:
        client.sendall(SLOW + b"\r\n" + b"\x16\x03\x01noise\r\n\r\n")
        site.wait_for(lambda each: each._is_deaf)
        site.released.set()
        said = receive_all(client)
    assert said.index(b'"/slow"') < said.index(b"HTTP/1.1 400")
    assert read_problem(said)["type"] == "/problems/bad-request"


def test_what_follows_an_upgrade_is_not_read_as_a_request(port: int) -> None:
    with open_connection(port) as client:
        client.sendall(GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + GET + b"\r\n")
        said = receive_all(client)
    assert said.count(b"HTTP/1.1 200") == 1 and b"connection: close" in said


# Slow readers


def connect_with_small_window(port: int) -> socket.socket:
    """Connect with a small receive buffer, so that the server soon notices if nothing is read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(PATIENCE_S)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
    return client


def is_closed(client: socket.socket) -> bool:
    """Return whether the server has closed the connection. A reader learns this only after it has
    read everything.
    """
    state: bytes = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state[0] in (7, 8)  # TCP_CLOSE, TCP_CLOSE_WAIT


@pytest.mark.parametrize("takes", [1, 0], ids=["a byte in five seconds", "nothing"])
def test_a_reader_that_takes_almost_nothing_is_ended(site: Site, takes: int) -> None:
    with closing(connect_with_small_window(site.port)) as client:
        receive_until(client, b"\0")
        while not is_closed(client):
            site.forward(5)
            assert not takes or client.recv(takes)


def test_a_slow_reader_that_goes_on_is_not_ended(site: Site) -> None:
    with closing(connect_with_small_window(site.port)) as client:
        receive_until(client, b"\0")
        read = 0
        for part in range(1, 7):
            while read < part * SLOW_READER_BYTES:
                read += len(client.recv(4096))
            site.wait_for(
                lambda each, taken=read: each._delivery._measure_unread_and_read_bytes()[1] >= taken
            )  # type: ignore[misc]
            site.forward(SEND_IDLE_S // 2)
        assert not is_closed(client)


def test_a_reader_that_was_ended_has_left_its_place(start: Start) -> None:
    site = start(MAX_CONNECTIONS_PER_ADDRESS=1)
    with closing(connect_with_small_window(site.port)) as first:
        while not is_closed(first):
            site.forward(5)
        with open_connection(site.port) as second:
            second.sendall(GET + b"\r\n")
            assert b"HTTP/1.1 200" in receive_until(second, b'"headers"')


# Places


def test_a_connection_too_many_is_told_so_and_another_address_is_answered(start: Start) -> None:
    port = start(MAX_CONNECTIONS_PER_ADDRESS=2).port
    with open_connection(port), open_connection(port), open_connection(port) as third:
        third.sendall(GET + b"\r\n")
        said = receive_all(third)
        assert said.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: " in said.lower()
        assert read_problem(said)["type"] == "/problems/too-many-connections"
        with open_connection(port, "127.0.0.2") as other:
            other.sendall(GET + b"\r\n")
            assert b"HTTP/1.1 200" in receive_until(other, b'"headers"')


def test_a_place_is_free_again_when_its_connection_has_gone(start: Start) -> None:
    port = start(MAX_CONNECTIONS_PER_ADDRESS=1).port
    for _ in range(5):
        with open_connection(port) as client:
            client.sendall(GET + b"Connection: close\r\n\r\n")
            assert b"HTTP/1.1 200" in receive_all(client)


def test_behind_a_trusted_proxy_requests_under_way_are_counted_by_client(start: Start) -> None:
    site = start(MAX_CONNECTIONS_PER_ADDRESS=1, TRUSTED_PROXIES="127.0.0.1")
    site.released.clear()
    forwarded = [b"X-Forwarded-For: 203.0.113.%d\r\n\r\n" % number for number in (1, 1, 2)]
    with (
        open_connection(site.port) as one,
        open_connection(site.port) as two,
        open_connection(site.port) as three,
    ):
        one.sendall(SLOW + forwarded[0])
        receive_until(one, b"begun")
        two.sendall(SLOW + forwarded[1])
        assert read_problem(receive_all(two))["type"] == "/problems/too-many-connections"
        three.sendall(SLOW + forwarded[2])
        receive_until(three, b"begun")
        site.released.set()
        assert b"/slow" in receive_until(one, b"/slow") and b"/slow" in receive_until(
            three, b"/slow"
        )
        one.sendall(SLOW + forwarded[0])  # its first answer has ended: it has its place again
        assert b"HTTP/1.1 200" in receive_until(one, b"/slow")


def test_what_somebody_untrusted_says_of_himself_does_not_count(start: Start) -> None:
    port = start(MAX_CONNECTIONS_PER_ADDRESS=1, TRUSTED_PROXIES="127.0.0.9").port
    with open_connection(port), open_connection(port) as second:
        second.sendall(GET + b"X-Forwarded-For: 203.0.113.1\r\n\r\n")
        assert receive_all(second).startswith(b"HTTP/1.1 503 ")
