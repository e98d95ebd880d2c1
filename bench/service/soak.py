"""The whole embedded service under mixed traffic for a while: does memory, or do file descriptors,
grow?

    python -m bench.service.soak [--minutes 30]

Small batches are really learned, models come and go, versions are read, downloaded and asked to
predict, event streams are opened and left, and requests fail in every common way, uploads that
break off among them. Before the clock starts thousands of those that fail and break off come
without a pause, for malloc's heap takes so many to reach its size (then it levels off), and a crowd
that reads at once, for which the pool opens all its connections. After a warm-up of a fifth of the
time too the growth per hour of each process is printed with its uncertainty
(`bench.service.resources`). Exit 1 when a process grows by more than `MEMORY_PER_HOUR`,
`FDS_PER_HOUR` or `THREADS_PER_HOUR` for certain, when one was restarted, when a request was
answered otherwise than it should, or when a job did not succeed.
"""

import argparse
import collections
import io
import os
import random
import socket
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from PIL import Image

from bench.service.resources import ProcessResourceWatch, fit_growth_slope
from tools import service

MB = 1e6
MEMORY_PER_HOUR = 12 * MB
"""A process that grew so fast would reach twice its size in a working day."""
FDS_PER_HOUR = 3.0
THREADS_PER_HOUR = 3.0
WARM_UP = 0.2
FILLING = 1500
"""Broken uploads, and failures, before the clock starts."""
CROWD = 20
"""Readers at once before the clock starts."""
TASKS = 4
"""Batches per model; then the model is deleted and another made."""


class MixedRequestTraffic:
    """Mixed requests of many clients to a service, each kind in a thread of its own.

    Args:
        url, key: of the service.
        scratch: folder for downloads.
    """

    def __init__(self, url: str, key: str, scratch: Path) -> None:
        self.url, self.key, self.scratch = url, key, scratch
        self.seen: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.model = ""
        self.job = ""
        self.published = 0
        self._end = threading.Event()
        self._random = random.Random(1)
        kinds: list[tuple[Callable[[httpx2.Client], None], float]] = [
            (self.create_learn_and_delete_model, 0.5), (self.request_lists_and_details, 0.2),
            (self.send_predict_requests, 0.5), (self.send_download_requests, 2.0),
            (self.stream_job_events, 0.5), (self.send_faulty_request, 0.5),
            (self.begin_and_break_off_upload, 2.0),
        ]  # fmt: skip
        self._threads = [
            threading.Thread(target=self._repeat_until_ended, args=kind, daemon=True)
            for kind in kinds
        ]

    def send_initial_traffic(self) -> None:
        """Send broken-off uploads and faulty requests without a pause, then requests of lists and
        details from a crowd of clients at once.
        """
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx2.Client(base_url=self.url, headers=headers, timeout=60) as client:
            self.model = "fill"
            small = {"name": self.model, "scenario": "class", "base": "perennial/resnet20-cifar100"}
            self._send_request(client, "POST", "/v1/models", {201}, json=small)
            for _ in range(FILLING):
                self.begin_and_break_off_upload(client)
                self.send_faulty_request(client)
            with ThreadPoolExecutor(CROWD) as crowd:
                list(crowd.map(lambda _: self.request_lists_and_details(client), range(CROWD)))

    def send_all_traffic(self, seconds: float) -> None:
        """Send all kinds of requests for some seconds."""
        for thread in self._threads:
            thread.start()
        time.sleep(seconds)
        self._end.set()
        for thread in self._threads:
            thread.join(120)

    def create_learn_and_delete_model(self, client: httpx2.Client) -> None:
        """Create a model, learn some batches, and delete it while other clients still read it."""
        name = f"soak-{time.time_ns()}"
        recipe = {"epochs": 2, "method": {"name": "der++", "buffer": 20}}
        body = {
            "name": name,
            "scenario": "class",
            "image": {"size": 16, "channels": 3},
            "recipe": recipe,
        }
        body["gate"] = {"checks": "off"}
        self._send_request(client, "POST", "/v1/models", {201}, json=body)
        for task in range(TASKS):
            response = self._send_request(
                client, "POST", f"/v1/models/{name}/tasks", {202}, content=build_batch_archive(task),
                headers={"Idempotency-Key": f"{name}-{task}"},
            )  # fmt: skip
            job = response.json()["job"]["id"]
            self.job = job
            state, etag = "", ""
            while state not in {"succeeded", "failed", "rejected", "cancelled"}:
                if self._end.wait(0.2):
                    return
                response = self._send_request(
                    client, "GET", f"/v1/jobs/{job}", {200, 304}, headers={"If-None-Match": etag}
                )
                if response.status_code == 200:
                    state, etag = response.json()["state"], response.headers["ETag"]
            self.seen[f"job {state}"] += 1
            if state != "succeeded":
                self.wrong.append(f"job {job}: {response.text[:300]}")
                return
            self.model, self.published = name, task + 1
            self._end.wait(0.5)
        self._send_request(client, "DELETE", f"/v1/models/{name}", {204})

    def request_lists_and_details(self, client: httpx2.Client) -> None:
        """Request lists and details; objects that were just deleted may be missing."""
        model = self.model or "none"
        for path in (
            "/v1/models", "/v1/jobs?limit=20", f"/v1/models/{model}", f"/v1/models/{model}/tasks",
            f"/v1/models/{model}/versions", f"/v1/models/{model}/metrics", f"/v1/models/{model}/memory",
            f"/v1/models/{model}/aliases/production/history", "/v1/usage", "/v1/audit?limit=20",
            "/v1/methods",
            "/metrics", "/readyz", f"/v1/jobs?model={model}",
        ):  # fmt: skip
            self._send_request(client, "GET", path, {200, 404})
            self._end.wait(0.05)

    def send_predict_requests(self, client: httpx2.Client) -> None:
        """Send images to predict, as numbers and as files."""
        path = f"/v1/models/{self.model or 'none'}/versions/latest/predict"
        if self._random.random() < 0.5:
            pixels = [[[[self._random.randrange(256)] * 3] * 16] * 16] * 2
            self._send_request(client, "POST", path, {200, 404, 409}, json={"images": pixels})
        else:
            files = [("image", ("a.png", _make_single_colour_png((9, 9, 9)), "image/png"))] * 3
            self._send_request(client, "POST", path, {200, 404, 409}, files=files)

    def send_download_requests(self, client: httpx2.Client) -> None:
        """Download a whole version, a range of it, and one part."""
        path = f"/v1/models/{self.model or 'none'}/versions/{self._random.randint(1, max(1, self.published))}"
        self._send_request(client, "GET", f"{path}/download", {200, 404})
        self._send_request(
            client, "GET", f"{path}/download", {206, 404}, headers={"Range": "bytes=100-9999"}
        )
        self._send_request(client, "HEAD", f"{path}/download", {200, 404})
        self._send_request(client, "GET", f"{path}/files/head", {200, 404})

    def stream_job_events(self, client: httpx2.Client) -> None:
        """Follow the events of the current job; half of the readers leave early."""
        if not self.job:
            return
        headers = {"Accept": "text/event-stream"}
        with client.stream(
            "GET", f"/v1/jobs/{self.job}/events", headers=headers, timeout=30
        ) as response:
            self._count_response("GET", "events (stream)", response.status_code, {200})
            leave = self._random.random() < 0.5
            for number, _line in enumerate(response.iter_lines()):
                if self._end.is_set() or (leave and number > 5):
                    return

    def send_faulty_request(self, client: httpx2.Client) -> None:
        """Send one of several faulty requests, and check that it is refused."""
        kind = self._random.randrange(7)
        if kind == 0:
            self._send_request(
                client, "GET", "/v1/models", {401}, headers={"Authorization": "Bearer pk_wrong"}
            )
        elif kind == 1:
            self._send_request(client, "GET", f"/v1/models/{time.time_ns()}", {404})
        elif kind == 2:
            self._send_request(
                client,
                "POST",
                "/v1/models",
                {422},
                json={"name": "UPPER", "scenario": "none", "x": 1},
            )
        elif kind == 3:
            path = f"/v1/models/{self.model or 'none'}/tasks"
            self._send_request(client, "POST", path, {404, 415, 422}, content=os.urandom(200_000))
        elif kind == 4:
            self._send_request(client, "GET", "/v1/jobs?cursor=nonsense", {422})
        elif kind == 5:
            path = f"/v1/models/{self.model or 'none'}/versions/latest/predict"
            bad = [("image", ("a.png", b"\x89PNG\r\n\x1a\n" + os.urandom(500), "image/png"))]
            self._send_request(client, "POST", path, {404, 409, 422}, files=bad)
        else:
            self._send_request(client, "PUT", "/v1/models", {405})

    def begin_and_break_off_upload(self, client: httpx2.Client) -> None:
        """Begin an upload and close the connection in the middle."""
        parts = urlsplit(self.url)
        head = (
            f"POST /v1/models/{self.model or 'none'}/tasks HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Authorization: Bearer {self.key}\r\nContent-Length: 10000000\r\n\r\n"
        )
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
            connection.sendall(head.encode() + b"PK\x03\x04" + os.urandom(300_000))
        self.seen["upload broken off"] += 1

    def _send_request(
        self, client: httpx2.Client, method: str, path: str, expected: set[int], **options: object
    ) -> httpx2.Response:
        response = client.request(method, path, **options)  # type: ignore[arg-type]
        self._count_response(method, path, response.status_code, expected)
        if response.status_code not in expected:
            self.wrong[-1] += f": {response.text[:300]}"
        return response

    def _count_response(self, method: str, path: str, status: int, expected: set[int]) -> None:
        self.seen[f"{status}"] += 1
        if status not in expected:
            self.wrong.append(f"{method} {path} → {status}, not {sorted(expected)}")

    def _repeat_until_ended(self, kind: Callable[[httpx2.Client], None], pause_s: float) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx2.Client(base_url=self.url, headers=headers, timeout=60) as client:
            while not self._end.is_set():
                try:
                    kind(client)
                except (httpx2.HTTPError, OSError) as error:
                    self.wrong.append(f"{kind.__name__}: {type(error).__name__}: {error}")
                self._end.wait(pause_s)


def _make_single_colour_png(colour: tuple[int, int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 16), colour).save(out, "PNG")
    return out.getvalue()


def build_batch_archive(task: int) -> bytes:
    """Build a batch archive with two classes of twenty images each."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for label in range(2):
            for number in range(20):
                colour = (60 * task + number, 120 * label + number, (time.time_ns() + number) % 256)
                archive.writestr(
                    f"{'ab'[label]}{task}/{number}.png", _make_single_colour_png(colour)
                )
    return out.getvalue()


def main() -> int:
    """Run mixed requests on a service for a long time, and report growing resources."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    seconds = parser.parse_args().minutes * 60
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with service.run_temporary_service(scratch / "data", {"PERENNIAL_THREADS": "1"}) as running:
            traffic = MixedRequestTraffic(running.url, running.key, scratch)
            traffic.send_initial_traffic()
            with ProcessResourceWatch(running.process.pid) as watch:
                traffic.send_all_traffic(seconds)
    grown = _print_process_growth_and_find_excess(watch, seconds)
    print(f"answers and jobs: {dict(sorted(traffic.seen.items()))}")
    print(f"load average before {load[0]:.1f}, after {os.getloadavg()[0]:.1f}")
    for problem in (*grown, *collections.Counter(traffic.wrong).most_common(20)):
        print(f"WRONG: {problem}")
    return 1 if grown or traffic.wrong else 0


def _print_process_growth_and_find_excess(watch: ProcessResourceWatch, seconds: float) -> list[str]:
    """Print the resource growth of each process, and return what grows too much."""
    wrong = [f"{name}: replaced {count} times" for name, count in watch.restarts.items()]
    print(
        f"{'process':<15}{'memory, MB':>20}{'MB per hour':>18}"
        f"{'descriptors':>14}{'per hour':>16}{'threads':>12}"
    )
    for name, samples in watch.samples.items():
        steady_samples = [s for s in samples if s.at > seconds * WARM_UP]
        at = [s.at for s in steady_samples]
        memory, fds, threads = (
            fit_growth_slope(at, [float(getattr(s, field)) for s in steady_samples])
            for field in ("rss", "fds", "threads")
        )
        print(
            f"{name:<15}{memory.first / MB:9.1f} → {memory.last / MB:7.1f}"
            f"{memory.per_hour / MB:+9.2f} ± {memory.uncertainty / MB:5.2f}"
            f"{fds.first:6.1f} → {fds.last:4.1f}{fds.per_hour:+8.2f} ± {fds.uncertainty:4.2f}"
            f"{threads.first:6.1f} → {threads.last:4.1f}",
            flush=True,
        )
        for what, growth, limit in (
            ("memory", memory, MEMORY_PER_HOUR), ("descriptors", fds, FDS_PER_HOUR),
            ("threads", threads, THREADS_PER_HOUR),
        ):  # fmt: skip
            if growth.is_significantly_above(limit):
                wrong.append(
                    f"{name}: {what} grow by {growth.per_hour:.3g} ± {growth.uncertainty:.2g} per "
                    f"hour"
                )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
