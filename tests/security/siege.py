"""One owner attacks in every way at once, and a neighbour works:
`PYTHONPATH=. python -m tests.security.siege`.

A real service of either size. The attacker is a process of its own, first with a read key, then
with a write key, then with both. The neighbour reads, submits batches, predicts and downloads all
the while. Prints how each of these was answered in quiet and during each attack; nothing of the
neighbour's may be refused.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.core.ingest.hostile_corpus import honest_zip
from tests.core.ingest.hostile_corpus import pictures as honest_pictures
from tests.rest import Rest
from tests.security import admission, neighbours
from tests.security.neighbours import PAUSE_S, Answers, Site
from tests.security.owners import make_client, make_key, teach
from tools import service

ROOT = Path(__file__).resolve().parents[2]
SUBMIT_PAUSE_S = 1.0
BATCH = honest_zip(honest_pictures(10))
ZIP = {"Content-Type": "application/zip"}
DOWNLOAD = "/v1/models/{}/versions/1/download"
LISTS = "/v1/models?limit=200"
WAYS = ("read", "write", "both")
Request = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A service under siege: its address, and the keys of who lives there."""

    url: str
    reader: str
    writer: str
    neighbour: str


# The neighbour.


def ask(place: Place, seconds: float) -> dict[str, Answers]:
    """The answers to the neighbour's requests of each kind for so many seconds; kinds side by
    side.
    """
    asks: dict[str, tuple[float, Callable[[httpx2.Client], httpx2.Response]]] = {
        "read": (PAUSE_S, lambda http: http.get("/v1/models/own/tasks?limit=50")),
        "predict": (PAUSE_S, neighbours.predict),
        "download": (PAUSE_S, lambda http: http.get(DOWNLOAD.format("own"))),
        "submit": (
            SUBMIT_PAUSE_S,
            lambda http: http.post("/v1/models/inbox/tasks?again=true", content=BATCH, headers=ZIP),
        ),
    }
    enough = neighbours.seconds(seconds)
    with ThreadPoolExecutor(len(asks)) as pool:
        begun = {
            kind: pool.submit(neighbours.asked, place.url, place.neighbour, one, enough, pause_s)
            for kind, (pause_s, one) in asks.items()
        }
        return {kind: answers.result() for kind, answers in begun.items()}


# The attacker.


def attack(way: str, url: str, reader: str, writer: str) -> None:
    """Everything at once with a key of that scope, until this process is ended."""
    ended = threading.Event()
    jobs: list[Callable[[], None]] = []
    if way in ("read", "both"):
        site = Site(url, reader, "", ended)
        jobs += [
            _repeated(one.run, site)
            for one in neighbours.attacks().values()
            for _ in range(one.times)
        ]
        jobs += [_again(url, reader, lambda _: {"url": LISTS})] * 3
        jobs += [_again(url, reader, lambda _: {"url": DOWNLOAD.format("wide")})] * 2
        jobs += [lambda: _unread(site)]
    if way in ("write", "both"):
        jobs += [_again(url, writer, one) for one in (_recipe, _labels, _network, _batch)]
        jobs += [_again(url, writer, _base)] * 8
        jobs += [lambda: _dripping_uploads(Site(url, writer, ""))]
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    ended.wait()


def _repeated(run: Callable[[Site], None], site: Site) -> Callable[[], None]:
    def work() -> None:
        while True:
            with contextlib.suppress(OSError, httpx2.TransportError, ValueError, IndexError):
                run(site)
            time.sleep(0.1)

    return work


def _again(url: str, key: str, request: Callable[[int], Request]) -> Callable[[], None]:
    """One request after the other, made by its number: a POST where it has something to send."""

    def work() -> None:
        with httpx2.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300
        ) as http:
            number = 0
            while True:
                made = request(number)
                with contextlib.suppress(httpx2.TransportError):
                    http.request("POST" if made.keys() & {"json", "content"} else "GET", **made)
                number += 1
                time.sleep(0.01)

    return work


def _model(name: str, scenario: str = "class", **fields: object) -> Request:
    return {"url": "/v1/models", "json": {"name": name, "scenario": scenario, **fields}}


def _recipe(number: int) -> Request:
    return _model(f"r{number}", recipe=admission.HUGE_RECIPE)


def _labels(number: int) -> Request:
    return _model(f"l{number}", "data", classes=admission.LONG_LABELS)


def _network(number: int) -> Request:
    return _model(f"n{number}", architecture=admission.HUGE_NETWORK)


def _batch(number: int) -> Request:
    return {"url": "/v1/models/wide/tasks", "content": BATCH, "headers": ZIP}


def _base(number: int) -> Request:
    return {
        "url": "/v1/bases",
        "params": admission.architecture(100 + number),
        "content": admission.TINY_BASE,
    }


def _unread(site: Site) -> None:
    """Downloads and lists that nobody reads: 60 connections."""
    with ExitStack() as stack:
        for number in range(60):
            path = (DOWNLOAD.format("wide"), LISTS)[number % 2]
            head = (
                f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.attacker}\r\n\r\n"
            )
            site.connected(stack).sendall(head.encode())
        threading.Event().wait()


def _dripping_uploads(site: Site) -> None:
    """Batches whose bodies come in drops: as many as one owner may have under way."""
    with ExitStack() as stack:
        head = (
            f"POST /v1/models/wide/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            f"{site.attacker}\r\n"
            "Content-Type: application/zip\r\nContent-Length: 100000000\r\n\r\n"
        ).encode()
        clients = [site.connected(stack) for _ in range(16)]
        for client in clients:
            client.sendall(head)
        while True:
            time.sleep(0.2)
            for client in clients:
                with contextlib.suppress(OSError):
                    client.sendall(b"-" * 400)


# The site.


def settle(url: str, admin_key: str) -> Place:
    """Two owners with models that have learned a batch."""
    admin = Rest(url, admin_key)
    neighbour, attacker = make_client(admin, "neighbour"), make_client(admin, "attacker")
    teach(neighbour, BATCH, "own", "inbox")
    teach(attacker, neighbours.many_classes(), "wide")
    return Place(
        url,
        *(make_key(admin, "attacker", scope) for scope in ("read", "write")),
        make_key(admin, "neighbour"),
    )


@contextmanager
def besieged(place: Place, way: str) -> Iterator[None]:
    """The attacker at work, in a process of its own."""
    command = [sys.executable, "-m", "tests.security.siege", "--attack", way]
    process = subprocess.Popen([*command, place.url, place.reader, place.writer], cwd=ROOT)
    try:
        time.sleep(2.0)
        yield
        if process.poll() is not None:
            raise RuntimeError("the attacker has given up")
    finally:
        process.kill()
        process.wait()


def told(found: dict[str, Answers]) -> str:
    """A line of a table."""
    return "; ".join(f"{kind}: {answers}" for kind, answers in found.items())


def siege(
    place: Place, seconds: float, ways: tuple[str, ...] = WAYS
) -> dict[str, dict[str, Answers]]:
    """The neighbour's answers in quiet and under each attack; prints each."""
    ask(place, 3.0)  # helpers start
    found = {"quiet": ask(place, seconds)}
    print(f"quiet {told(found['quiet'])}", flush=True)
    for way in ways:
        with besieged(place, way):
            found[way] = ask(place, seconds)
        print(f"{way:5} {told(found[way])}", flush=True)
        time.sleep(3.0)
    return found


@contextmanager
def large(folder: Path) -> Iterator[tuple[str, str]]:
    """The large size over servers of its own: address and admin key."""
    sys.path.append(str(ROOT / "tests" / "services"))
    import large_size
    import postgresql
    from redis_server import RedisServer
    from s3_server import S3Server

    from core.storage import open_object_store

    with ExitStack() as stack:
        database = postgresql.create()
        stack.callback(postgresql.drop, database)
        redis = RedisServer()
        redis.start()
        stack.callback(redis.close)
        s3 = S3Server.launch()
        stack.callback(s3.close)
        open_object_store(s3.settings(s3.root)).create_folder_or_bucket()
        running = large_size.running(folder, database, redis.url, s3)
        found, client = stack.enter_context(running)
        yield found.url, client.http.headers["Authorization"].split()[1]


@contextmanager
def small(folder: Path) -> Iterator[tuple[str, str]]:
    """The embedded service: address and admin key."""
    with service.run_temporary_service(folder / "data", {"PERENNIAL_THREADS": "1"}) as running:
        yield running.url, running.key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attack", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("place", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.attack:
        attack(asked.attack, *asked.place)
        return
    with tempfile.TemporaryDirectory() as name:
        size = {"small": small, "large": large}[asked.size]
        with size(Path(name)) as (url, key):
            siege(settle(url, key), asked.seconds)


if __name__ == "__main__":
    main()
