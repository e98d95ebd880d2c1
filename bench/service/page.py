"""What the page of a model with very many versions and tasks costs.

    python -m bench.service.page [--size 1000] [--rounds 20]

A model of that many versions and tasks is written as rows, as `bench.service.metrics` does, and a
service asked for its page, one request after the other: as it is, the first tasks in order, and
with a cell opened. Then a Chromium opens it: until when something and the matrix are painted.
"""

import argparse
import re
import statistics
import tempfile
import time
from pathlib import Path

import httpx2

from bench.service.browser import open_logged_in_page
from bench.service.metrics import (
    build_generated_model_id,
    get_service_cpu_seconds_so_far,
    insert_model_with_measured_versions,
)
from core.database import migrate
from core.database.session import Database
from core.settings import Settings
from tools import service

GOALS = "goals: 300 ms, 400 kB, 5,000 elements"

_PAINTED = """() => new Promise(done => new PerformanceObserver(
    list => list.getEntriesByName("first-contentful-paint").length && done()
).observe({type: "paint", buffered: true}))"""
"""Resolves after the first paint. What is asked again and again is a string to evaluate, which the
pages forbid.
"""


def main() -> None:
    """Measure requests and paint times of the model page on a filled database."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1000, help="versions and tasks of the model")
    parser.add_argument("--rounds", type=int, default=20, help="requests of each kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), threads=1)
        db = Database(settings.resolved_database_url, statement_s=3600)
        migrate.upgrade_schema(db)
        insert_model_with_measured_versions(db, options.size)
        db.close()
        with service.run_temporary_service(Path(folder)) as running:
            _print_page_request_times(running, options.size, options.rounds)
            _print_page_paint_times(running, options.size, options.rounds)


def _print_page_request_times(running: service.RunningService, size: int, rounds: int) -> None:
    print(f"a model of {size:,} versions and tasks; {GOALS}")
    key = {"Authorization": f"Bearer {running.key}"}
    for query in ("", "?first=1", f"?last={size // 2}", f"?v={size}&t={size // 2}"):
        times, before = [], get_service_cpu_seconds_so_far(running)
        for _ in range(rounds):
            began = time.perf_counter()
            response = httpx2.get(
                f"{running.url}/ui/models/{build_generated_model_id(size)}{query}", headers=key
            )
            times.append(time.perf_counter() - began)
        response.raise_for_status()
        elements = len(re.findall(r"<[a-z]", response.text))
        median = 1000 * statistics.median(times)
        cpu_ms = 1000 * (get_service_cpu_seconds_so_far(running) - before) / rounds
        print(
            f"{query or '(as it is)':16} {median:6.0f} ms (CPU {cpu_ms:.0f} ms) "
            f"{len(response.content):9,} bytes {elements:7,} elements"
        )


def _print_page_paint_times(running: service.RunningService, size: int, rounds: int) -> None:
    """Print milliseconds from navigation to paint of the page, with cached files."""
    first, load_times, bytes_of_heap = [], [], 0.0
    with open_logged_in_page(running) as page:
        for _ in range(rounds + 1):
            page.goto(f"/ui/models/{build_generated_model_id(size)}", wait_until="load")
            page.evaluate(_PAINTED)
            first.append(
                page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            )
            load_times.append(
                page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
            )
        bytes_of_heap = page.evaluate("performance.memory.usedJSHeapSize")
    print(
        f"in Chromium: first paint {statistics.median(first[1:]):.0f} ms (cold {first[0]:.0f}), "
        f"all loaded {statistics.median(load_times[1:]):.0f} ms; heap {bytes_of_heap / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
