"""`GET /v1/jobs/{id}`, the route that clients poll, against a bare sync FastAPI route that reads
one row.

    python -m bench.service.api_read [--seconds 4]

Both servers are one uvicorn process on the same SQLite file and share the machine with the load
generator; each pair of figures is measured back to back. Goals: ≥ 2 × the reference when idle, ≥ 1
× while a job trains.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from bench.service import load
from perennial import Perennial
from tools import digits, service

CLIENTS = (1, 16, 64)


def main() -> None:
    """Measure the rate of API requests for one job, and print it beside a bare server's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="per figure")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with (
            service.run_temporary_service(data) as running,
            _BareServer(data / "perennial.db") as bare,
        ):
            client = Perennial(running.key, base_url=running.url)
            archives = digits.build_digit_archives()
            client.models.create("polled", recipe={"epochs": 1}, architecture="small-cnn")
            job = client.submit("polled", archives[0][1]).wait().id
            _print_read_request_rates("idle", running, bare, job, seconds)
            # A job that outlasts the measurement.
            client.models.create("busy", recipe={"epochs": 10_000}, architecture="small-cnn")
            busy = client.submit("busy", archives[1][1])
            while busy.refresh().progress.phase != "train":
                time.sleep(0.1)
            _print_read_request_rates("while a job trains", running, bare, job, seconds)
            busy.cancel()
            busy.wait(check=False)


def _print_read_request_rates(
    title: str, running: service.RunningService, bare: str, job: str, seconds: float
) -> None:
    url = f"{running.url}/v1/jobs/{job}"
    key = {"Authorization": f"Bearer {running.key}"}
    etag = httpx2.get(url, headers=key).headers["ETag"]
    print(f"\n{title}: requests/s (p50 / p99 ms), ratio to the bare route")
    print(f"{'clients':>8} {'bare':>24} {'GET':>32} {'GET, If-None-Match':>32}")
    for clients in CLIENTS:
        reference = load.measure_request_load(f"{bare}/jobs/{job}", clients, seconds)
        plain = load.measure_request_load(url, clients, seconds, key)
        cached = load.measure_request_load(url, clients, seconds, {**key, "If-None-Match": etag})
        assert (
            set(reference.statuses) == {200}
            and set(plain.statuses) == {200}
            and set(cached.statuses) == {304}
        )
        print(
            f"{clients:>8} {_format_rate_and_latencies(reference):>24} {_format_rate_and_latencies(plain):>24} "
            f"{plain.per_s / reference.per_s:6.2f}×"
            f" {_format_rate_and_latencies(cached):>24} {cached.per_s / reference.per_s:6.2f}×",
            flush=True,
        )


def _format_rate_and_latencies(load_result: load.RequestLoadResult) -> str:
    return f"{load_result.per_s:.0f} ({load_result.p50_ms:.1f} / {load_result.p99_ms:.1f})"


class _BareServer:
    """Run the reference server within the block, and yield its URL."""

    def __init__(self, database: Path) -> None:
        self.port = service.find_free_port()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "uvicorn",
                "bench.service.bare_route:app",
                "--port",
                str(self.port),
                "--no-access-log",
            ],
            env={**os.environ, "BARE_DATABASE_URL": f"sqlite:///{database}"},
            cwd=service.ROOT,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> str:
        url = f"http://127.0.0.1:{self.port}"
        for _ in range(200):
            try:
                httpx2.get(f"{url}/openapi.json", timeout=1)
                return url
            except httpx2.TransportError:
                time.sleep(0.05)
        raise RuntimeError("The reference server did not start.")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


if __name__ == "__main__":
    main()
