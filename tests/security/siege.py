"""One owner attacks in every way at once while a neighbour works.

`PYTHONPATH=. python -m tests.security.siege` runs it on a real service of either size. The attacker
is a process of its own, first with a read key, then with a write key, then with both. The neighbour
reads, submits batches, predicts and downloads all the time. The script prints the answers to each
of these in quiet and during each attack. No request of the neighbour may be refused.
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

from tests.core.ingest.hostile_corpus import build_zip
from tests.core.ingest.hostile_corpus import draw_pictures as honest_pictures
from tests.rest import Rest
from tests.security import admission, neighbours
from tests.security.neighbours import PAUSE_S, Answers, Site
from tests.security.owners import make_client, make_key, teach_models
from tools import service

ROOT = Path(__file__).resolve().parents[2]
SUBMIT_PAUSE_S = 1.0
BATCH = build_zip(honest_pictures(10))
ZIP = {"Content-Type": "application/zip"}
DOWNLOAD = "/v1/models/{}/versions/1/download"
LISTS = "/v1/models?limit=200"
WAYS = ("read", "write", "both")
Request = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A service under siege: its address, and the keys of its owners."""

    url: str
    reader: str
    writer: str
    neighbour: str


# The neighbour.


def send_requests_of_each_kind(place: Place, seconds: float) -> dict[str, Answers]:
    """Return the answers to the neighbour's requests of each kind within this many seconds.

    The kinds run in parallel.
    """
    asks: dict[str, tuple[float, Callable[[httpx2.Client], httpx2.Response]]] = {
        "read": (PAUSE_S, lambda http: http.get("/v1/models/own/tasks?limit=50")),
        "predict": (PAUSE_S, neighbours.predict_small_image),
        "download": (PAUSE_S, lambda http: http.get(DOWNLOAD.format("own"))),
        "submit": (
            SUBMIT_PAUSE_S,
            lambda http: http.post("/v1/models/inbox/tasks?again=true", content=BATCH, headers=ZIP),
        ),
    }
    enough = neighbours.stop_after_seconds(seconds)
    with ThreadPoolExecutor(len(asks)) as pool:
        begun = {
            kind: pool.submit(
                neighbours.send_until_enough, place.url, place.neighbour, one, enough, pause_s
            )
            for kind, (pause_s, one) in asks.items()
        }
        return {kind: answers.result() for kind, answers in begun.items()}


# The attacker.


def attack_until_ended(way: str, url: str, reader: str, writer: str) -> None:
    """Attack in every way at once with keys of these scopes, until this process is ended."""
    ended = threading.Event()
    jobs: list[Callable[[], None]] = []
    if way in ("read", "both"):
        site = Site(url, reader, "", ended)
        jobs += [
            _make_endless_attack(one.run, site)
            for one in neighbours.build_attacks().values()
            for _ in range(one.times)
        ]
        jobs += [_make_endless_requests(url, reader, lambda _: {"url": LISTS})] * 3
        jobs += [
            _make_endless_requests(url, reader, lambda _: {"url": DOWNLOAD.format("wide")})
        ] * 2
        jobs += [lambda: _leave_downloads_unread(site)]
    if way in ("write", "both"):
        jobs += [
            _make_endless_requests(url, writer, one)
            for one in (
                _make_recipe_request,
                _make_labels_request,
                _make_network_request,
                _make_batch_request,
            )
        ]
        jobs += [_make_endless_requests(url, writer, _make_base_request)] * 8
        jobs += [lambda: _drip_uploads(Site(url, writer, ""))]
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    ended.wait()


def _make_endless_attack(run: Callable[[Site], None], site: Site) -> Callable[[], None]:
    def repeat_attack_forever() -> None:
        while True:
            with contextlib.suppress(OSError, httpx2.TransportError, ValueError, IndexError):
                run(site)
            time.sleep(0.1)

    return repeat_attack_forever


def _make_endless_requests(
    url: str, key: str, request: Callable[[int], Request]
) -> Callable[[], None]:
    """Return a function that sends one request after the other, made by its number.

    A request is a POST if it has something to send.
    """

    def send_requests_forever() -> None:
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

    return send_requests_forever


def _make_model_request(name: str, scenario: str = "class", **fields: object) -> Request:
    return {"url": "/v1/models", "json": {"name": name, "scenario": scenario, **fields}}


def _make_recipe_request(number: int) -> Request:
    return _make_model_request(f"r{number}", recipe=admission.HUGE_RECIPE)


def _make_labels_request(number: int) -> Request:
    return _make_model_request(f"l{number}", "data", classes=admission.LONG_LABELS)


def _make_network_request(number: int) -> Request:
    return _make_model_request(f"n{number}", architecture=admission.HUGE_NETWORK)


def _make_batch_request(number: int) -> Request:
    return {"url": "/v1/models/wide/tasks", "content": BATCH, "headers": ZIP}


def _make_base_request(number: int) -> Request:
    return {
        "url": "/v1/bases",
        "params": admission.make_architecture_query(100 + number),
        "content": admission.TINY_BASE,
    }


def _leave_downloads_unread(site: Site) -> None:
    """Request downloads and lists without reading them, on 60 connections."""
    with ExitStack() as stack:
        for number in range(60):
            path = (DOWNLOAD.format("wide"), LISTS)[number % 2]
            head = (
                f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.attacker}\r\n\r\n"
            )
            site.connected(stack).sendall(head.encode())
        threading.Event().wait()


def _drip_uploads(site: Site) -> None:
    """Send batches whose bodies arrive in very small pieces.

    They are as many as one owner may have in progress.
    """
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


def prepare_owners(url: str, admin_key: str) -> Place:
    """Prepare two owners with models that have learned a batch."""
    admin = Rest(url, admin_key)
    neighbour, attacker = make_client(admin, "neighbour"), make_client(admin, "attacker")
    teach_models(neighbour, BATCH, "own", "inbox")
    teach_models(attacker, neighbours.build_batch_of_many_classes(), "wide")
    return Place(
        url,
        *(make_key(admin, "attacker", scope) for scope in ("read", "write")),
        make_key(admin, "neighbour"),
    )


@contextmanager
def run_attacker(place: Place, way: str) -> Iterator[None]:
    """Let the attacker work in a process of its own until the block ends."""
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


def format_answers(found: dict[str, Answers]) -> str:
    """Return a line of a table."""
    return "; ".join(f"{kind}: {answers}" for kind, answers in found.items())


def measure_siege(
    place: Place, seconds: float, ways: tuple[str, ...] = WAYS
) -> dict[str, dict[str, Answers]]:
    """Return the neighbour's answers in quiet and during each attack, and print them."""
    send_requests_of_each_kind(place, 3.0)  # helpers start
    found = {"quiet": send_requests_of_each_kind(place, seconds)}
    print(f"quiet {format_answers(found['quiet'])}", flush=True)
    for way in ways:
        with run_attacker(place, way):
            found[way] = send_requests_of_each_kind(place, seconds)
        print(f"{way:5} {format_answers(found[way])}", flush=True)
        time.sleep(3.0)
    return found


@contextmanager
def run_large_size(folder: Path) -> Iterator[tuple[str, str]]:
    """Run the large size over its own servers, and yield its address and admin key."""
    sys.path.append(str(ROOT / "tests" / "services"))
    import large_size
    import postgresql
    from redis_server import RedisServer
    from s3_server import S3Server

    from core.storage import open_object_store

    with ExitStack() as stack:
        database = postgresql.create_database()
        stack.callback(postgresql.drop_database, database)
        redis = RedisServer()
        redis.start()
        stack.callback(redis.close)
        s3 = S3Server.launch()
        stack.callback(s3.close)
        open_object_store(s3.settings(s3.root)).create_folder_or_bucket()
        running = large_size.run_large_size(folder, database, redis.url, s3)
        found, client = stack.enter_context(running)
        yield found.url, client.http.headers["Authorization"].split()[1]


@contextmanager
def run_small_size(folder: Path) -> Iterator[tuple[str, str]]:
    """Run the embedded service, and yield its address and admin key."""
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
        attack_until_ended(asked.attack, *asked.place)
        return
    with tempfile.TemporaryDirectory() as name:
        size = {"small": run_small_size, "large": run_large_size}[asked.size]
        with size(Path(name)) as (url, key):
            measure_siege(prepare_owners(url, key), asked.seconds)


if __name__ == "__main__":
    main()
