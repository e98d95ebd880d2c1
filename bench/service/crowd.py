r"""Many clients at once: what pollers and event streams cost a job that trains, and twenty uploads.

    python -m bench.service.crowd [--pollers 200] [--streams 20] [--pause 1] [--uploads 20] \
        [--megabytes 8] [--epochs 400]

The same batch is learned three times, each by a model of its own: alone, with all pollers and
streams on its job, and alone again; the ratio is the second time over the mean of the others (a
busy machine shows in how these differ). Then all uploads begin at once, each into a model of its
own; one that is refused with 429 comes again after Retry-After, under the same Idempotency-Key.
Exit 1 when anything was answered otherwise than 200, when a stream missed an event that the job's
list of events has, when an upload was not accepted at last, or when the digest kept is not that of
what was sent.
"""

import argparse
import asyncio
import collections
import hashlib
import io
import os
import sys
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from PIL import Image

from bench.service import load
from bench.service.resources import require_api_process
from perennial import JobHandle, Perennial, types
from tools import service

MB = 1e6
LONGEST_S = 600.0
TRIES = 50
RECIPE = {"method": {"name": "der++", "buffer": 20}}


def main() -> int:
    """Measure the service under many clients, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pollers", type=int, default=200)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument(
        "--pause", type=float, default=1.0, help="seconds between a poller's questions"
    )
    parser.add_argument("--uploads", type=int, default=20)
    parser.add_argument("--megabytes", type=int, default=8, help="per upload")
    parser.add_argument("--epochs", type=int, default=400, help="of the job")
    args = parser.parse_args()
    print(f"load average before {os.getloadavg()[0]:.1f}", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder) / "data", {"PERENNIAL_THREADS": "1"}) as running,
    ):
        wrong = _print_job_times_under_load_and_errors(running, args)
        if args.uploads:
            wrong += _send_uploads_concurrently(running, args.uploads, args.megabytes)
    print(f"load average after {os.getloadavg()[0]:.1f}")
    for error in wrong:
        print(f"WRONG: {error}")
    return 1 if wrong else 0


def _print_job_times_under_load_and_errors(
    running: service.RunningService, args: argparse.Namespace
) -> list[str]:
    """Measure a job alone, then with many readers of its events, then alone again."""
    client = Perennial(running.key, base_url=running.url)
    batch = _build_noise_batch(100, 16)
    _measure_job_seconds_without_load(
        client, "first", batch, 1
    )  # the worker's first job loads what the others find loaded
    before = _measure_job_seconds_without_load(client, "before", batch, args.epochs)
    job = _create_model_and_submit_batch(client, "crowd", batch, args.epochs)
    key = {"Authorization": f"Bearer {running.key}"}
    ended = threading.Event()
    with ThreadPoolExecutor(3) as side:
        polled = side.submit(
            load.measure_request_load, f"{running.url}/v1/jobs/{job.id}", args.pollers, LONGEST_S, key,
            warm_up=0, pause_s=args.pause, until=ended.is_set,
        )  # fmt: skip
        followed = side.submit(asyncio.run, _count_events_of_streams(running, job.id, args.streams))
        try:
            during = _compute_job_seconds(job.wait(LONGEST_S))
        finally:
            ended.set()
        got, streams = polled.result(), followed.result()
    after = _measure_job_seconds_without_load(client, "after", batch, args.epochs)
    events = sum(1 for _ in job.events())
    if args.pollers:
        print(
            f"{args.pollers} pollers every {args.pause:g} s: {got.per_s:.0f} answers/s, p50 "
            f"{got.p50_ms:.1f} ms, p99 {got.p99_ms:.1f} ms, by status {got.statuses}"
        )
    print(
        f"{args.streams} event streams: {sum(streams)} events received, {events} per job,"
        f" {min(streams, default=0)} to {max(streams, default=0)} per stream\n"
        f"job: alone {before:.1f} s, with the crowd {during:.1f} s, alone {after:.1f} s:"
        f" {during / ((before + after) / 2):.2f} times as long",
        flush=True,
    )
    wrong = [
        f"{count} pollers' answers of {status}"
        for status, count in got.statuses.items()
        if status != 200
    ]
    return wrong + [
        f"a stream had {count} of {events} events" for count in streams if count != events
    ]


def _measure_job_seconds_without_load(
    client: Perennial, name: str, batch: bytes, epochs: int
) -> float:
    return _compute_job_seconds(
        _create_model_and_submit_batch(client, name, batch, epochs).wait(LONGEST_S)
    )


def _create_model_and_submit_batch(
    client: Perennial, name: str, batch: bytes, epochs: int
) -> JobHandle:
    client.models.create(
        name,
        image={"size": 16, "channels": 3},
        recipe={**RECIPE, "epochs": epochs},
        architecture="small-cnn",
    )
    return client.submit(name, batch)


def _compute_job_seconds(job: types.Job) -> float:
    """Return the seconds of a job from its claim to publication."""
    begin, end = (datetime.fromisoformat(at or "") for at in (job.started_at, job.finished_at))
    return (end - begin).total_seconds()


async def _count_events_of_streams(
    running: service.RunningService, job: str, streams: int
) -> list[int]:
    """Follow a job in many event streams; return the number of events that each received."""
    parts = urlsplit(running.url)
    request = (
        f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: "
        f"text/event-stream\r\nAuthorization: Bearer {running.key}\r\nConnection: close\r\n\r\n"
    )

    async def count_stream_events() -> int:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(request.encode())
        count = 0
        while line := await reader.readline():
            count += line.startswith(b"id: ")
        writer.close()
        return count

    return await asyncio.gather(*(count_stream_events() for _ in range(streams)))


def _send_uploads_concurrently(
    running: service.RunningService, uploads: int, megabytes: int
) -> list[str]:
    """Send all uploads at the same time; return the errors."""
    client = Perennial(running.key, base_url=running.url)
    names = [f"upload-{number}" for number in range(uploads)]
    for name in names:
        client.models.create(
            name,
            image={"size": 16, "channels": 3},
            recipe={**RECIPE, "epochs": 1},
            architecture="small-cnn",
        )
    bodies = [_build_noise_batch(megabytes * 8, 200) for _ in names]
    statuses: collections.Counter[int] = collections.Counter()
    wrong: list[str] = []
    together = threading.Barrier(uploads)
    api = require_api_process(running.process.pid)
    before = peak_rss = api.memory_info().rss

    def send_batch_when_all_ready(name: str, body: bytes) -> None:
        headers = {"Authorization": f"Bearer {running.key}", "Idempotency-Key": name}
        together.wait()
        with httpx2.Client(base_url=running.url, headers=headers, timeout=120) as http:
            for _ in range(TRIES):
                response = http.post(f"/v1/models/{name}/tasks", content=body)
                statuses[response.status_code] += 1
                typed = response.headers["Content-Type"].startswith("application/problem+json")
                if response.status_code != 429 or not typed:
                    break
                time.sleep(float(response.headers["Retry-After"]))
        if response.status_code != 202:
            wrong.append(f"upload {name} → {response.status_code}: {response.text[:300]}")

    began = time.perf_counter()
    with ThreadPoolExecutor(uploads) as pool:
        ends = [
            pool.submit(send_batch_when_all_ready, name, body)
            for name, body in zip(names, bodies, strict=True)
        ]
        while not all(end.done() for end in ends):
            peak_rss = max(peak_rss, api.memory_info().rss)
            time.sleep(0.01)
        took = time.perf_counter() - began
    for end in ends:
        end.result()
    for name, body in zip(names, bodies, strict=True):
        stored_digests = [task.sha256 for task in client.tasks.list(name)]
        if stored_digests != [hashlib.sha256(body).hexdigest()]:
            wrong.append(f"{name} has the digests {stored_digests}")
    size = sum(map(len, bodies)) / MB
    print(
        f"{uploads} uploads at once, {size:.0f} MB: {took:.1f} s, answers by status "
        f"{dict(statuses)}; API "
        "process"
        f" {before / MB:.0f} MB, at most {peak_rss / MB:.0f}, at the end "
        f"{api.memory_info().rss / MB:.0f}",
        flush=True,
    )
    return wrong


def _build_noise_batch(count: int, side: int) -> bytes:
    """Build a zip batch with two classes of random images."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(count):
            png = io.BytesIO()
            Image.frombytes("RGB", (side, side), os.urandom(3 * side * side)).save(
                png, "PNG", compress_level=0
            )
            archive.writestr(f"{'ab'[number % 2]}/{number}.png", png.getvalue())
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
