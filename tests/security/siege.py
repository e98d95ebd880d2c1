"""One owner attacks in every way at once, and a neighbour works: `PYTHONPATH=. python -m tests.security.siege`.

A real service of either size. The attacker is a process of its own, first with a read key, then with a write key, then
with both. The neighbour reads, submits batches, predicts and downloads all the while. Prints how each of these was
answered in quiet and during each attack; nothing of the neighbour's may be refused.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tests.core.ingest.hostile_corpus import honest_zip, png
from tests.core.ingest.hostile_corpus import pictures as honest_pictures
from tests.rest import Rest
from tests.security import admission, neighbours
from tests.security.neighbours import Answers, Site
from tools import service

ROOT = Path(__file__).resolve().parents[2]
PAUSE_S = 0.05
SUBMIT_PAUSE_S = 1.0
PATIENCE_S = 60.0
RECIPE = {"method": "finetune", "epochs": 1}
NETWORK = {"name": "mlp", "hidden": [4]}
WAYS = ("read", "write", "both")


@dataclass(frozen=True)
class Place:
    """A service under siege: its address, and the keys of who lives there."""

    url: str
    reader: str
    writer: str
    neighbour: str


# The neighbour.


def ask(place: Place, seconds: float) -> dict[str, Answers]:
    """How the neighbour's requests of each kind are answered for so many seconds; kinds side by side."""
    asks: dict[str, tuple[float, Callable[[httpx2.Client], httpx2.Response]]] = {
        "read": (PAUSE_S, lambda http: http.get("/v1/models/own/tasks?limit=50")),
        "predict": (PAUSE_S, _predict),
        "download": (PAUSE_S, lambda http: http.get("/v1/models/own/versions/1/download")),
        "submit": (SUBMIT_PAUSE_S, _submit),
    }
    found = {kind: Answers() for kind in asks}
    end = time.monotonic() + seconds

    def work(kind: str) -> None:
        pause, one = asks[kind]
        headers = {"Authorization": f"Bearer {place.neighbour}"}
        with httpx2.Client(base_url=place.url, headers=headers, timeout=PATIENCE_S) as http:
            while time.monotonic() < end:
                began = time.monotonic()
                status = one(http).status_code
                found[kind].seconds.append(time.monotonic() - began)
                found[kind].statuses.append(200 if status == 202 else status)
                time.sleep(pause)

    threads = [threading.Thread(target=work, args=[kind]) for kind in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _predict(http: httpx2.Client) -> httpx2.Response:
    return http.post(neighbours.PREDICT.format("own"), files={"image": ("a.png", png(1), "image/png")})


def _submit(http: httpx2.Client) -> httpx2.Response:
    headers = {"Content-Type": "application/zip"}
    return http.post("/v1/models/inbox/tasks", content=honest_zip(honest_pictures(10)), headers=headers)


# The attacker.


def attack(way: str, url: str, reader: str, writer: str) -> None:
    """Everything at once with a key of that scope, until this process is ended."""
    ended = threading.Event()
    jobs: list[Callable[[], None]] = []
    if way in ("read", "both"):
        site = Site(_Url(url), reader, "", ended)  # type: ignore[arg-type]
        jobs += [_repeated(one.run, site) for one in neighbours.attacks().values() for _ in range(one.times)]
        jobs += [_again(url, reader, _list)] * 3
        jobs += [_again(url, reader, _export)] * 2
        jobs += [lambda: _unread(url, reader)]
    if way in ("write", "both"):
        jobs += [_again(url, writer, one) for one in (_recipe, _labels, _network, _batch)]
        jobs += [_again(url, writer, _base)] * 8
        jobs += [lambda: _dripping_uploads(url, writer)]
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    ended.wait()


@dataclass(frozen=True)
class _Url:
    url: str


def _repeated(run: Callable[[Site], None], site: Site) -> Callable[[], None]:
    def work() -> None:
        while True:
            with contextlib.suppress(OSError, httpx2.TransportError, ValueError, IndexError):
                run(site)
            time.sleep(0.1)

    return work


def _again(url: str, key: str, one: Callable[[httpx2.Client, int], object]) -> Callable[[], None]:
    def work() -> None:
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as http:
            number = 0
            while True:
                with contextlib.suppress(httpx2.TransportError):
                    one(http, number)
                number += 1
                time.sleep(0.01)

    return work


def _list(http: httpx2.Client, number: int) -> object:
    return http.get("/v1/models?limit=200")


def _export(http: httpx2.Client, number: int) -> object:
    return http.get("/v1/models/wide/versions/1/download")


def _recipe(http: httpx2.Client, number: int) -> object:
    body = {"name": f"r{number}", "scenario": "class", "recipe": admission.HUGE_RECIPE}
    return http.post("/v1/models", json=body)


def _labels(http: httpx2.Client, number: int) -> object:
    labels = [f"{n:05}".ljust(90, "x") for n in range(10_000)]
    return http.post("/v1/models", json={"name": f"l{number}", "scenario": "data", "classes": labels})


def _network(http: httpx2.Client, number: int) -> object:
    body = {"name": f"n{number}", "scenario": "class", "architecture": admission.HUGE_NETWORK}
    return http.post("/v1/models", json=body)


def _batch(http: httpx2.Client, number: int) -> object:
    headers = {"Content-Type": "application/zip"}
    return http.post("/v1/models/wide/tasks", content=honest_zip(honest_pictures(10)), headers=headers)


def _base(http: httpx2.Client, number: int) -> object:
    query = {"architecture": f'{{"name": "mlp", "hidden": [{100 + number}]}}'}
    return http.post("/v1/bases", params=query, content=(2).to_bytes(8, "little") + b"{}")


def _unread(url: str, key: str) -> None:
    """Downloads and event streams that nobody reads: 60 connections."""
    address = _address(url)
    with ExitStack() as stack:
        for number in range(60):
            path = ("/v1/models/wide/versions/1/download", "/v1/models?limit=200")[number % 2]
            client = stack.enter_context(neighbours.socket.create_connection(address))
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
            client.sendall(head.encode())
        threading.Event().wait()


def _dripping_uploads(url: str, key: str) -> None:
    """Batches whose bodies come in drops: as many as one owner may have under way."""
    address = _address(url)
    with ExitStack() as stack:
        head = (
            f"POST /v1/models/wide/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/zip\r\nContent-Length: 100000000\r\n\r\n"
        ).encode()
        clients = [stack.enter_context(neighbours.socket.create_connection(address)) for _ in range(16)]
        for client in clients:
            client.sendall(head)
        while True:
            time.sleep(0.2)
            for client in clients:
                with contextlib.suppress(OSError):
                    client.sendall(b"-" * 400)


def _address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


# The site.


def settle(url: str, admin_key: str) -> Place:
    """Two owners with models that have learned a batch."""
    admin = Rest(url, admin_key)
    keys = {}
    for owner, models, batch in (
        ("neighbour", ("own", "inbox"), honest_zip(honest_pictures(10))),
        ("attacker", ("wide",), neighbours.many_classes()),
    ):
        keys[owner] = neighbours.key_of(admin, owner, "write")
        client = Rest(url, keys[owner])
        for model in models:
            client.models.create(model, architecture=NETWORK, recipe=RECIPE)
            job = client.wait(client.submit(model, batch))
            if job.state != "succeeded":
                raise RuntimeError(f"an honest batch ended as {job.state}: {job.error}")
    return Place(url, neighbours.key_of(admin, "attacker", "read"), keys["attacker"], keys["neighbour"])


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


def siege(place: Place, seconds: float, ways: tuple[str, ...] = WAYS) -> dict[str, dict[str, Answers]]:
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

    from core.store import open_store

    with ExitStack() as stack:
        database = postgresql.create()
        stack.callback(postgresql.drop, database)
        redis = RedisServer()
        redis.start()
        stack.callback(redis.close)
        s3 = S3Server.launch()
        stack.callback(s3.close)
        open_store(s3.settings(s3.root)).prepare()
        running = large_size.running(folder, database, redis.url, s3)
        found, client = stack.enter_context(running)
        yield found.url, client.http.headers["Authorization"].split()[1]


@contextmanager
def small(folder: Path) -> Iterator[tuple[str, str]]:
    """The embedded service: address and admin key."""
    with service.running(folder / "data", {"PERENNIAL_THREADS": "1"}) as running:
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
