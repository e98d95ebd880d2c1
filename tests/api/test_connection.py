"""A client that does not finish the head of a request loses its connection; others are not cut."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import uvicorn

from api.connection import Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Hasty(Connection):
    HEAD_S = 0.4


async def slow_answer(_scope: Any, _receive: Any, send: Any) -> None:
    """An answer in pieces that take longer than a head may."""
    import asyncio

    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    for _ in range(4):
        await asyncio.sleep(0.2)
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def port() -> Iterator[int]:
    config = uvicorn.Config(slow_answer, http=Hasty, lifespan="off", log_level="critical", port=0)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def connect(port: int) -> Any:
    return closing(socket.create_connection(("127.0.0.1", port), timeout=20))


@pytest.mark.parametrize("head", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_half_a_head_ends_the_connection(port: int, head: bytes) -> None:
    with connect(port) as client:
        client.sendall(head)
        assert client.recv(100) == b""


def test_a_head_in_drops_ends_the_connection(port: int) -> None:
    with connect(port) as client, pytest.raises(OSError):
        for _ in range(200):
            client.sendall(b"X")
            time.sleep(0.05)


def test_an_answer_may_take_longer_than_a_head(port: int) -> None:
    with connect(port) as client:
        client.sendall(REQUEST)
        said = b""
        while not said.endswith(b"xxxx"):
            block = client.recv(1000)
            assert block, said
            said += block


def test_half_a_second_head_on_a_kept_connection_ends_it(port: int) -> None:
    with connect(port) as client:
        client.sendall(REQUEST)
        said = b""
        while not said.endswith(b"xxxx"):
            said += client.recv(1000)
        client.sendall(REQUEST[:9])
        assert client.recv(100) == b""
