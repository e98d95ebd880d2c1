"""A large upload: MB/s with sha256 and fsync, and how much the API process grows.

    python -m bench.service.upload [--megabytes 2048]

The body is a valid zip of stored, incompressible entries, generated while it is sent. Beside it, in
the same run: what the disk alone gives (write + fsync) and what sha256 alone gives. Goals: ≥ 400
MB/s where the disk gives 600; growth ≤ 64 MB.
"""

import argparse
import hashlib
import os
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import httpx2
import psutil

from perennial import Perennial
from tools import service

MB = 1_000_000


def main() -> None:
    """Measure upload rate and memory of the service, beside rates of disk and hashing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2048)
    size = parser.parse_args().megabytes * MB
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "large.zip"
        _write_large_archive(archive, size)
        total = archive.stat().st_size
        print(f"archive: {total / MB:,.0f} MB")
        print(
            f"disk alone (write + fsync): {_measure_disk_write_rate(Path(folder), total):,.0f} MB/s; sha256 alone: "
            f"{_measure_hash_rate(archive):,.0f} MB/s"
        )
        with service.run_temporary_service(Path(folder) / "data") as running:
            Perennial(running.key, base_url=running.url).models.create(
                "large", architecture="small-cnn"
            )
            api = _require_api_process(running)
            with _PeakMemorySampler(api) as peak:
                start = time.perf_counter()
                with archive.open("rb") as body:
                    response = httpx2.post(
                        f"{running.url}/v1/models/large/tasks?validate=only",
                        content=iter(lambda: body.read(1 << 20), b""),
                        headers={
                            "Authorization": f"Bearer {running.key}",
                            "Content-Type": "application/zip",
                            "Content-Length": str(total),
                        },
                        timeout=600,
                    )
                seconds = time.perf_counter() - start
            print(
                f"answer {response.status_code}: {total / MB / seconds:,.0f} MB/s in {seconds:.1f} s "
                "(goal ≥ 400)"
            )
            print(
                f"API process: {peak.before / MB:.0f} MB before, {peak.most / MB:.0f} MB at most: "
                f"+{(peak.most - peak.before) / MB:.0f} MB (goal ≤ 64)"
            )


def _write_large_archive(path: Path, size: int) -> None:
    """Write a large zip of entries that only look like images."""
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for number in range(size // MB):
            archive.writestr(f"{'ab'[number % 2]}/{number:05d}.png", os.urandom(MB))


def _measure_disk_write_rate(folder: Path, size: int) -> float:
    block, start = os.urandom(1 << 20), time.perf_counter()
    with (folder / "probe").open("wb") as file:
        for _ in range(size >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    (folder / "probe").unlink()
    return size / MB / seconds


def _measure_hash_rate(path: Path) -> float:
    start = time.perf_counter()
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    return path.stat().st_size / MB / (time.perf_counter() - start)


def _require_api_process(running: service.RunningService) -> psutil.Process:
    for process in psutil.Process(running.process.pid).children(recursive=True):
        if any("api.app" in word for word in process.cmdline()):
            return process
    raise RuntimeError("No API process under the launcher.")


class _PeakMemorySampler:
    """Samples the peak resident memory of a process while the block runs."""

    def __init__(self, process: psutil.Process) -> None:
        self.process, self.done = process, threading.Event()
        self.before = self.most = process.memory_info().rss

    def __enter__(self) -> "_PeakMemorySampler":
        self.thread = threading.Thread(target=self._record_peak_memory, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _record_peak_memory(self) -> None:
        while not self.done.wait(0.01):
            self.most = max(self.most, self.process.memory_info().rss)


if __name__ == "__main__":
    main()
