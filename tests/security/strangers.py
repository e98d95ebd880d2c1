"""Attacks by connections without a key, with limited load on the loopback interface.

    python -m tests.security.strangers

starts an API process that may have 256 descriptors and prints the results of each attack. These are
the memory of the process (MiB: before, maximum, after), the answers to a neighbour with another
address meanwhile, and the descriptors that are left open. Attackers are 127.0.0.1, the neighbour is
127.0.0.2.
"""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tools.service import find_free_port
from worker.launcher import build_service_processes

ROOT = Path(__file__).parents[2]
DESCRIPTORS = 256
LIMITS = {"PERENNIAL_HEAD_S": "3", "PERENNIAL_KEEP_ALIVE_S": "2", "PERENNIAL_SEND_IDLE_S": "4"}
START_S = 180.0
LEAST = 10
"""Minimum number of answers that the neighbour waits for, since some attacks end at once."""
CALM_S = 60.0
"""Time limit for the traces of an attack to disappear."""
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD_MB = 20


@dataclass(eq=False)
class Neighbour(threading.Thread):
    """Another client, which requests `/healthz` on new connections again and again."""

    port: int
    patience_s: float = 60.0
    answered: int = 0
    is_lease_lost: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.05):
            began = time.monotonic()
            try:
                said = self._send_request()
            except OSError as error:
                said = repr(error).encode()
            if said.startswith(b"HTTP/1.1 200 "):
                self.answered += 1
            else:
                self.is_lease_lost.append(said[:60].decode("latin-1"))
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def _send_request(self) -> bytes:
        with open_connection(self.port, "127.0.0.2", self.patience_s) as client:
            client.sendall(GET + b"Connection: close\r\n\r\n")
            return client.recv(1000)

    def stop(self) -> None:
        self._end.set()
        self.join()


@dataclass(eq=False)
class Target:
    """The API process under attack."""

    port: int
    process: psutil.Process

    def memory(self) -> float:
        """Return the present memory in MiB."""
        return self.process.memory_info().rss / (1 << 20)

    def descriptors(self) -> int:
        return self.process.num_fds()


@dataclass(eq=False)
class Seen:
    """The effects of an attack."""

    before_mb: float
    most_mb: float
    after_mb: float
    more_descriptors: int
    neighbour: Neighbour

    def __str__(self) -> str:
        return (
            f"{self.before_mb:5.0f} {self.most_mb:5.0f} {self.after_mb:5.0f}   "
            f"{self.neighbour.answered:4d} answered, {len(self.neighbour.is_lease_lost):3d} not, slowest "
            f"{self.neighbour.slowest_s:5.2f} s   {self.more_descriptors:+d}"
        )


def open_connection(
    port: int, source: str = "127.0.0.1", patience_s: float = 60.0
) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", port), timeout=patience_s, source_address=(source, 0)
    )


# The attacks: each ends by itself within some ten seconds.


def flood_everything(port: int) -> None:
    """Send endless heads: lines, a value, a name, a target, trailers, an extension, a size."""
    heads = [
        (GET, b"X-A: y\r\n"),
        (GET + b"X-A: ", b"y" * 64),
        (GET, b"y" * 64),
        (b"GET /", b"y" * 64),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", b"X-A: y\r\n"),
        (CHUNKED + b"5;", b"y" * 64),
        (CHUNKED, b"0" * 64),
    ]
    with ThreadPoolExecutor(len(heads)) as pool:
        list(pool.map(lambda head: _flood_connection(port, *head), heads))


def _flood_connection(port: int, begin: bytes, more: bytes) -> None:
    piece = more * ((256 << 10) // len(more))
    with open_connection(port) as client, contextlib.suppress(OSError):
        client.sendall(begin)
        for _ in range(4 * HEAD_MB):
            client.sendall(piece)
        client.recv(1000)


def send_endless_header(port: int) -> None:
    """Send a single endless header."""
    _flood_connection(port, GET + b"X-A: ", b"y" * 64)


def send_endless_header_lines(port: int) -> None:
    """Send endless header lines."""
    _flood_connection(port, GET, b"X-A: y\r\n")


def send_requests_at_once(port: int, seconds: float = 3.0) -> None:
    """Send thousands of requests in one piece, on many connections, and read no answer."""
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(open_connection(port))
            client.settimeout(1)
            with contextlib.suppress(OSError):
                client.sendall(b"GET /x HTTP/1.1\r\n\r\n" * 12_000)
        time.sleep(seconds)


def send_stray_bytes(port: int, seconds: float = 8.0) -> None:
    """Send a line end after an answer, or the beginning of a body that is never completed.

    Use 150 connections.
    """
    requests = (GET + b"\r\n", b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    _hold_connections(
        port, 150, seconds, lambda number: (requests[number % 2], (b"\r\n", b"x")[number % 2])
    )


def send_half_heads(port: int, seconds: float = 8.0) -> None:
    """Open more connections than are allowed, which send nothing or half a head."""
    _hold_connections(port, 400, seconds, lambda number: ((b"", GET)[number % 2], b""))


def _hold_connections(
    port: int, most: int, seconds: float, says: Callable[[int], tuple[bytes, bytes]]
) -> None:
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        for number in range(most):
            with contextlib.suppress(OSError):
                client = stack.enter_context(open_connection(port, patience_s=0.5))
                first, then = says(number)
                client.sendall(first)
                if then:
                    client.recv(2000)
                    client.sendall(then)
        time.sleep(max(0.0, end - time.monotonic()))


def read_slowly(port: int, seconds: float = 10.0) -> None:
    """Read large answers a byte at a time, on 30 connections."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 8
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(30)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(0.5)
            with contextlib.suppress(OSError):
                client.connect(("127.0.0.1", port))
                client.sendall(request)
        while time.monotonic() < end:
            for client in clients:
                with contextlib.suppress(OSError):
                    client.setblocking(False)
                    client.recv(1)
            time.sleep(0.3)


ATTACKS = (
    send_endless_header_lines,
    send_endless_header,
    flood_everything,
    send_requests_at_once,
    send_stray_bytes,
    send_half_heads,
    read_slowly,
)


def run_all_attacks(port: int) -> None:
    """Run all attacks in parallel."""
    with ThreadPoolExecutor(len(ATTACKS)) as pool:
        list(pool.map(lambda attack: attack(port), ATTACKS))


# What they did


def measure_attack(target: Target, attack: Callable[[int], None]) -> Seen:
    """Run an attack next to a neighbour, and wait until the process is calm again."""
    quiet = target.descriptors()
    seen = Seen(target.memory(), 0.0, 0.0, 0, Neighbour(target.port))
    seen.neighbour.start()
    attacker = threading.Thread(target=attack, args=(target.port,))
    attacker.start()
    while (
        attacker.is_alive() or len(seen.neighbour.is_lease_lost) + seen.neighbour.answered < LEAST
    ):
        seen.most_mb = max(seen.most_mb, target.memory())
        time.sleep(0.02)
    seen.neighbour.stop()
    deadline = time.monotonic() + CALM_S
    while target.descriptors() > quiet and time.monotonic() < deadline:
        time.sleep(0.05)
    seen.after_mb, seen.more_descriptors = target.memory(), target.descriptors() - quiet
    return seen


@contextmanager
def run_api(
    folder: Path, settings: Mapping[str, str] = LIMITS, descriptors: int = DESCRIPTORS
) -> Iterator[Target]:
    """Run an API process over that data folder, started as the launcher does it.

    It may open only this many descriptors.
    """
    port = find_free_port()
    command = build_service_processes(
        {"host": "127.0.0.1", "data_dir": str(folder), "embedded": True}, port
    )[0].command
    environment = {
        **os.environ,
        "PERENNIAL_DATA_DIR": str(folder),
        "PERENNIAL_PORT": str(port),
        "MALLOC_ARENA_MAX": "2",
        **settings,
    }
    with (folder / "api.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE, (descriptors, descriptors)
            ),
        )
    try:
        _wait_until_ready(port, process, folder / "api.log")
        yield Target(port, psutil.Process(process.pid))
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), open_connection(port) as client:
            client.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            if client.recv(1000).startswith(b"HTTP/1.1 200 "):
                return
        time.sleep(0.1)
    raise RuntimeError(f"The API did not start. {log.read_text()[-2000:]}")


def main() -> None:
    """Print the table, with a fresh process for each attack."""
    from core.database.migrate import upgrade_schema
    from core.database.session import Database
    from core.recipe.catalogue import load_recipe_catalogue
    from core.settings import Settings

    with tempfile.TemporaryDirectory() as name:
        settings = Settings(data_dir=Path(name))
        db = Database(settings.resolved_database_url)
        upgrade_schema(db)
        db.close()
        load_recipe_catalogue(settings)
        print(f"{'':18} MiB before, most, after   neighbour   descriptors")
        chosen = [
            attack for attack in (*ATTACKS, run_all_attacks) if attack.__name__ in sys.argv[1:]
        ]
        for attack in chosen or (*ATTACKS, run_all_attacks):
            with run_api(Path(name)) as target:
                print(f"{attack.__name__:18} {measure_attack(target, attack)}", flush=True)


if __name__ == "__main__":
    main()
