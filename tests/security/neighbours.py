"""Effects of one owner's predictions on another owner.

`python tests/security/neighbours.py [ATTACK …]` makes all attacks, or those that are named. A real
service has an owner who attacks with a read key, and a neighbour. The neighbour has one small image
predicted after the other, first in quiet and then during each attack. The script prints the answers
to the neighbour, and memory.
"""

import argparse
import contextlib
import functools
import io
import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx2
import numpy as np

from tests.core.ingest.hostile_corpus import build_zip, draw_png
from tests.core.ingest.hostile_corpus import draw_pictures as honest_pictures
from tests.rest import Rest
from tests.security import pictures
from tests.security.memory import Memory
from tests.security.owners import make_client, make_key, teach_models
from tools import service

SETTINGS = {"PERENNIAL_THREADS": "1", "PERENNIAL_UPLOAD_IDLE_S": "3"}
CLASSES = 400
PREDICT = "/v1/models/{}/versions/latest/predict"
SECONDS = 5.0
PAUSE_S = 0.02
PATIENCE_S = 60.0
MB = 1 << 20


@dataclass
class Answers:
    """The answers that a client got: each status, and the seconds that it took for the client."""

    statuses: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    @property
    def refused(self) -> int:
        return sum(status not in (200, 202) for status in self.statuses)

    def after(self, share: float) -> float:
        """Return the seconds in which this share of all answers had come."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]

    def __str__(self) -> str:
        p50, p99 = (1000 * self.after(share) for share in (0.5, 0.99))
        return (
            f"{len(self.statuses):4} asked, {self.refused:3} refused, p50 {p50:7.0f} ms, p99 "
            f"{p99:7.0f} ms"
        )


@dataclass
class Site:
    """A service with two owners, each with a model and a read key."""

    url: str
    attacker: str
    neighbour: str
    ended: threading.Event = field(default_factory=threading.Event)
    told: Counter[int] = field(default_factory=Counter)
    """Number of the attacker's answers by status."""
    took: list[float] = field(default_factory=list)
    """Seconds that each of the attacker's requests with a 200 took."""
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """A semaphore that each thread of an attack releases around its first request.

    A thread releases it once it has sent something, or is about to.
    """

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def connected(self, stack: contextlib.ExitStack) -> socket.socket:
        """Return a connection of the attacker that stays open as long as the stack."""
        return stack.enter_context(socket.create_connection(self.address))

    def head(self, length: int, query: str = "") -> bytes:
        """Return the head of one of the attacker's requests, in the format of `build_form`."""
        return (
            f"POST {PREDICT.format('wide')}{query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            f"{self.attacker}\r\nContent-Type: multipart/form-data; boundary=xx\r\nContent-Length: "
            f"{length}\r\n\r\n"
        ).encode()


def prepare_site(running: service.RunningService) -> Site:
    """Let two owners teach their models, and return the site."""
    admin = Rest(running.url, running.key)
    teach_models(make_client(admin, "neighbour"), build_zip(honest_pictures(10)), "own")
    teach_models(make_client(admin, "attacker"), build_batch_of_many_classes(), "wide")
    found = Site(
        running.url, make_key(admin, "attacker", "read"), make_key(admin, "neighbour", "read")
    )
    predict_as_neighbour(found, stop_after_answers(1))  # the helpers start
    return found


Enough = Callable[[Answers], bool]


def stop_after_answers(count: int) -> Enough:
    """Return a condition that holds after this many answers."""
    return lambda answers: len(answers.statuses) >= count


def stop_after_seconds(length: float) -> Enough:
    """Return a condition that holds after this many seconds."""
    return lambda answers: time.monotonic() >= answers.begun + length


def send_until_enough(
    url: str,
    key: str,
    one: Callable[[httpx2.Client], httpx2.Response],
    enough: Enough,
    pause_s: float = PAUSE_S,
) -> Answers:
    """Send one request after the other until there are enough answers."""
    answers = Answers()
    with httpx2.Client(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_S
    ) as http:
        while not enough(answers):
            began = time.monotonic()
            answers.statuses.append(one(http).status_code)
            answers.seconds.append(time.monotonic() - began)
            time.sleep(pause_s)
    return answers


def predict_small_image(http: httpx2.Client) -> httpx2.Response:
    """Have one small image predicted by the neighbour's model."""
    return http.post(PREDICT.format("own"), files={"image": ("a.png", draw_png(1), "image/png")})


def predict_as_neighbour(found: Site, enough: Enough) -> Answers:
    """Predict one small image after the other, as the neighbour, until there are enough answers."""
    return send_until_enough(found.url, found.neighbour, predict_small_image, enough)


def predict_during_attack(found: Site, attack: "Attack", enough: Enough | None = None) -> Answers:
    """Predict while the attacker attacks, by default for `SECONDS`."""
    found.ended.clear()
    found.told.clear()
    found.took.clear()
    threads = [
        threading.Thread(target=attack.run, args=[found], daemon=True) for _ in range(attack.times)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        found.begun.acquire(timeout=PATIENCE_S)
    try:
        return predict_as_neighbour(found, enough or stop_after_seconds(SECONDS))
    finally:
        found.ended.set()
        for thread in threads:
            thread.join(PATIENCE_S)


@dataclass(frozen=True)
class Attack:
    """An action that the attacker repeats in several threads at once, until the site has ended."""

    name: str
    run: Callable[[Site], None]
    times: int = 1


def _announce_bodies(found: Site) -> None:
    """Announce bodies of 64 MB that are never sent."""
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            found.connected(stack).sendall(found.head(64 * MB))
        found.begun.release()
        found.ended.wait(PATIENCE_S)


def _drip_bodies(found: Site) -> None:
    """Send bodies one byte at a time."""
    with contextlib.ExitStack() as stack:
        opened = [found.connected(stack) for _ in range(40)]
        for connection in opened:
            connection.sendall(found.head(64 * MB))
        found.begun.release()
        while not found.ended.wait(0.2):
            for connection in opened:
                with contextlib.suppress(OSError):
                    connection.sendall(b"-")


def _withhold_last_bytes(found: Site) -> None:
    """Send bodies except for their last byte."""
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            connection = found.connected(stack)
            connection.settimeout(2)
            with contextlib.suppress(OSError):
                connection.sendall(found.head(64 * MB) + bytes(64 * MB - 1))
        found.begun.release()
        found.ended.wait(PATIENCE_S)


def _leave_answers_unread(found: Site) -> None:
    """Request answers, and do not read them."""
    body = build_form([draw_png(1)] * 256)
    with contextlib.ExitStack() as stack:
        opened = []
        for query in ["?top_k=1000"] * 4 + [f"?top_k={10_000 // 256}"] * 8:
            connection = found.connected(stack)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(found.head(len(body), query) + body)
            opened.append(connection)
        found.begun.release()
        found.ended.wait(PATIENCE_S)
        for connection in opened:
            found.told[int(connection.recv(12).split()[1])] += 1


def _make_repeated_requests(*images: bytes, kind: str = "files") -> Callable[[Site], None]:
    """Return an attack that sends one request after the other with these images."""

    def repeat_requests(found: Site) -> None:
        content = build_form(list(images)) if kind == "files" else images[0]
        said = "multipart/form-data; boundary=xx" if kind == "files" else "application/json"
        headers = {"Authorization": f"Bearer {found.attacker}", "Content-Type": said}
        with httpx2.Client(base_url=found.url, headers=headers, timeout=PATIENCE_S) as client:
            found.begun.release()
            while not found.ended.is_set():
                began = time.monotonic()
                with contextlib.suppress(httpx2.TransportError):
                    status = client.post(PREDICT.format("wide"), content=content).status_code
                    found.told[status] += 1
                    if status == 200:
                        found.took.append(time.monotonic() - began)

    return repeat_requests


NAMES = ("silent", "dripping", "full", "unread", "crowd", "large", "mpo", "chunks", "arrays")


@functools.cache
def build_attacks() -> dict[str, Attack]:
    """Return all attacks by name, in the order of `NAMES`; building their bodies takes a second."""
    made = [
        Attack("silent", _announce_bodies),
        Attack("dripping", _drip_bodies),
        Attack("full", _withhold_last_bytes),
        Attack("unread", _leave_answers_unread),
        Attack("crowd", _make_repeated_requests(draw_png(1)), 40),
        Attack("large", _make_repeated_requests(*[pictures.build_large_jpeg()] * 128), 2),
        Attack("mpo", _make_repeated_requests(*[pictures.build_mpo(3000, 2048)] * 4), 2),
        Attack("chunks", _make_repeated_requests(pictures.build_png_of_many_chunks(3_000_000)), 2),
        Attack("arrays", _make_repeated_requests(_build_arrays(15 * MB), kind="arrays"), 2),
    ]
    return {attack.name: attack for attack in made}


def build_form(images: list[bytes]) -> bytes:
    """Build a multipart body."""
    head = b'--xx\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    return b"".join(head + data + b"\r\n" for data in images) + b"--xx--\r\n"


def _build_arrays(size: int) -> bytes:
    row = b"[" + b",".join([b"[1,2,3]"] * 1000) + b"]"
    return b"[[" + b",".join([row] * (size // len(row))) + b"]]"


def build_batch_of_many_classes() -> bytes:
    """Build a batch of small images of many classes with long names."""
    rng, each = np.random.default_rng(0), 4
    images = rng.integers(0, 256, (each * CLASSES, 8, 8, 3), dtype=np.uint8)
    labels = np.repeat(np.arange(CLASSES), each)
    out = io.BytesIO()
    classes = np.array([f"{i:04}" + "é" * 96 for i in range(CLASSES)])
    np.savez(out, images=images, labels=labels, classes=classes)
    return out.getvalue()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder) / "data", SETTINGS) as running,
    ):
        found = prepare_site(running)
        print(f"{'quiet':10} {predict_as_neighbour(found, stop_after_seconds(asked.seconds))}")
        for name in asked.attacks or build_attacks():
            memory = Memory(running.process.pid)
            memory.start()
            answers = predict_during_attack(
                found, build_attacks()[name], stop_after_seconds(asked.seconds)
            )
            peaks = {role: round(mb) for role, mb in memory.stop().items()}
            print(
                f"{name:10} {answers}; attacker {dict(found.told)}; MiB {json.dumps(peaks)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
