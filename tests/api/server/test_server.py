"""Behaviour of a real server on a real socket: unread bodies, lost clients and shutdown."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
import pytest

from core.settings import Settings
from tests.api.conftest import Make, serve_api
from tools.service import find_free_port
from worker.launcher import build_service_processes

ROOT = Path(__file__).parents[3]
GIB = 1 << 30
PATIENCE_S = 60
TASKS = "/v1/models/birds/tasks"
IDLE_S = 600
"""Longer than any test takes, so that no connection is closed for being idle."""


@dataclass
class Server:
    """A running API process."""

    port: int
    key: str
    process: subprocess.Popen[bytes]
    folder: Path

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def client(self) -> httpx2.Client:
        url, key = f"http://127.0.0.1:{self.port}", {"Authorization": f"Bearer {self.key}"}
        return httpx2.Client(base_url=url, headers=key, timeout=PATIENCE_S)

    def head(self, path: str, length: int | None, *extra: str, key: str | None = None) -> bytes:
        size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = [
            f"POST {path} HTTP/1.1",
            "Host: x",
            f"Authorization: Bearer {key or self.key}",
            size,
            *extra,
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def spool(self) -> list[Path]:
        folder = self.folder / "spool"
        return list(folder.iterdir()) if folder.exists() else []


def receive_response(connection: socket.socket) -> bytes:
    """Return all bytes until the server closes, or else the head and body of one response."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data


def wait_for_condition(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def receive_until_ended(connection: socket.socket) -> bytes:
    """Return everything that comes until the server closes or resets the connection."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionError:
        pass
    return data


def send_until_ended(connection: socket.socket) -> bytes:
    """Send a body a little at a time until the server closes, and return its response."""
    connection.settimeout(0.05)
    data = b""
    while True:
        try:
            connection.sendall(bytes(1000))
            piece = connection.recv(65536)
        except TimeoutError:
            continue
        except ConnectionError:
            return data
        if not piece:
            return data
        data += piece


def list_launcher_options() -> list[str]:
    """Return the options that the launcher gives the API beyond host and port."""
    command = build_service_processes({"host": "127.0.0.1", "data_dir": "", "embedded": True}, 0)[
        0
    ].command
    return command[command.index("--http") :]


@contextmanager
def run_server(folder: Path, *options: str) -> Iterator[Server]:
    """Run an API with a model over a data folder.

    Args:
        options: options of uvicorn.
    """
    port = find_free_port()
    own = {"DATA_DIR": str(folder), "UPLOAD_IDLE_S": str(IDLE_S), "PORT": str(port)}
    environment = os.environ | {f"PERENNIAL_{name}": value for name, value in own.items()}
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--factory",
        "api.app:create_app",
        "--port",
        str(port),
    ]
    command += options
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/readyz"

        def is_server_ready() -> bool:
            try:
                return httpx2.get(url, timeout=60).status_code == 200
            except httpx2.TransportError:
                return False

        assert wait_for_condition(is_server_ready), "the API did not start"
        key = (folder / "admin-key").read_text().strip()
        made = Server(port, key, process, folder)
        with made.client() as client:
            model = {"name": "birds", "scenario": "class", "architecture": "small-cnn"}
            assert client.post("/v1/models", json=model).status_code == 201
        yield made
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, prepare_folder: Callable[[Path], Path]
) -> Iterator[Server]:
    with run_server(prepare_folder(tmp_path_factory.mktemp("server"))) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "length", "more", "status"),
    [
        (TASKS, 10 * GIB + 1, {"key": "pk_wrong"}, 401),
        (TASKS, None, {"key": "pk_wrong"}, 401),
        (TASKS, 2 * GIB, {"key": "pk_wrong", "expect": "100-continue"}, 401),
        (TASKS, 10 * GIB + 1, {}, 413),
        ("/v1/models/none/tasks", 2 * GIB, {}, 404),
        ("/v1/nothing", 2 * GIB, {}, 404),
    ],
    ids=[
        "wrong key",
        "wrong key, chunked",
        "wrong key, waiting",
        "too large",
        "no model",
        "no route",
    ],
)
def test_a_refused_upload_is_answered_without_reading_its_body(
    server: Server, path: str, length: int | None, more: dict[str, str], status: int
) -> None:
    expect = [f"Expect: {more['expect']}"] if "expect" in more else []
    with server.connect() as connection:
        connection.sendall(server.head(path, length, *expect, key=more.get("key")))
        got = receive_response(connection)
    assert got.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in got.lower() and b"problem+json" in got


def test_a_client_that_goes_away_leaves_no_file(server: Server) -> None:
    connection = server.connect()
    connection.sendall(server.head(TASKS, 64 << 20, "Idempotency-Key: k"))
    connection.sendall(b"PK\x03\x04" + b"\0" * (4 << 20))
    assert wait_for_condition(lambda: len(server.spool()) == 1)
    connection.close()
    assert wait_for_condition(lambda: server.spool() == [])


def test_the_second_of_two_uploads_under_one_key_is_in_flight(
    server: Server, archive: Make
) -> None:
    body = archive(a=2, b=2)
    with server.connect() as connection, server.client() as client:
        connection.sendall(server.head(TASKS, len(body), "Idempotency-Key: k"))
        connection.sendall(body[:100])
        assert wait_for_condition(lambda: len(server.spool()) == 1)
        second = client.post(TASKS, content=body, headers={"Idempotency-Key": "k"})
        assert second.status_code == 409
        assert second.json()["type"] == "/problems/idempotency-in-flight"
        connection.sendall(body[100:])
        assert receive_response(connection).startswith(b"HTTP/1.1 202 ")
        third = client.post(TASKS, content=body, headers={"Idempotency-Key": "k"})
        assert third.status_code == 202
        assert third.headers["idempotency-replayed"] == "true"
        hashes = [t["sha256"] for t in client.get(TASKS).json()["items"]]
        assert hashes.count(hashlib.sha256(body).hexdigest()) == 1


@pytest.mark.slow
def test_open_streams_and_uploads_end_with_the_server_and_leave_no_file(
    settings: Settings, archive: Make
) -> None:
    with (
        run_server(settings.data_dir, *list_launcher_options()) as server,
        server.client() as client,
    ):
        job = client.post(TASKS, content=archive(a=2)).json()["job"]["id"]
        headers = {"Accept": "text/event-stream"}
        with (
            server.connect() as silent,
            server.connect() as sending,
            client.stream("GET", f"/v1/jobs/{job}/events", headers=headers) as stream,
        ):
            lines = stream.iter_lines()
            assert any("queued" in line for line in lines)
            for connection in (silent, sending):
                key = f"Idempotency-Key: {connection.fileno()}"
                connection.sendall(server.head(TASKS, 64 << 20, key))
                connection.sendall(b"PK\x03\x04" + bytes(2 << 20))
            assert wait_for_condition(lambda: len(server.spool()) == 2)
            server.process.send_signal(signal.SIGTERM)
            got: list[bytes] = []
            sender = threading.Thread(target=lambda: got.append(send_until_ended(sending)))
            sender.start()
            assert list(lines)[-1:] in ([], [""])  # ended in order, not torn
            assert server.process.wait(PATIENCE_S) in (0, -signal.SIGTERM)
            sender.join()
            got.append(receive_until_ended(silent))
        # Cut, or told so: never an answer that it was accepted.
        assert all(one == b"" or one.startswith(b"HTTP/1.1 5") for one in got)
    with serve_api(settings) as client:
        assert server.spool() == []
        assert len(client.get(TASKS).json()["items"]) == 1


def test_small_reads_are_served_while_an_upload_is_under_way(server: Server) -> None:
    with server.connect() as connection, server.client() as client:
        connection.sendall(server.head(TASKS, 256 << 20) + b"PK\x03\x04" + bytes(2 << 20))
        assert wait_for_condition(lambda: len(server.spool()) == 1)
        for _ in range(20):
            connection.sendall(bytes(1 << 20))
            assert client.get("/healthz").status_code == 200
        assert len(server.spool()) == 1
    assert wait_for_condition(lambda: server.spool() == [])


@pytest.mark.campaign
@pytest.mark.parametrize("form", [False, True])
def test_an_upload_of_2_gb_takes_at_most_64_mb_of_memory(server: Server, form: bool) -> None:
    size, kind, begin, end = 2 * GIB, "application/zip", b"", b""
    if form:
        kind = "multipart/form-data; boundary=xx"
        begin = b'--xx\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\n'
        end = b"\r\n--xx--\r\n"
    api = psutil.Process(server.process.pid)
    before = most = api.memory_info().rss
    with server.connect() as connection:
        connection.settimeout(PATIENCE_S)
        total = size + len(begin) + len(end)
        connection.sendall(server.head(TASKS, total, f"Content-Type: {kind}"))
        connection.sendall(begin + b"PK\x03\x04" + b"\0" * 26)
        zeros, left = bytes(1 << 20), size - 30
        while left:
            piece = zeros[: min(left, len(zeros))]
            connection.sendall(piece)
            left -= len(piece)
            most = max(most, api.memory_info().rss)
        connection.sendall(end)
        got = receive_response(connection)
        most = max(most, api.memory_info().rss)
    assert got.startswith(b"HTTP/1.1 422 ")  # zeros are no archive; that is found at the end only
    assert most - before <= 64 << 20
    assert server.spool() == []
