"""Whether the page of a job can stay open: the heap of a real browser while events arrive.

    python -m bench.service.open_page [--minutes 10] [--per-second 50]

A job of scikit-learn's digits is begun and paused, its page opened in Chromium, and events written
for it once a second, as a worker writes them: four of five tell the progress, the others are lines
of the log. After each minute the garbage is collected and what is left is measured. At the end the
page must show the last event. Exit 1 where it does not, or where the heap at the end is more than a
tenth above that of the second minute, when the page's bounded lists (5,000 points, 500 lines) are
full at 50 events a second.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, expect

from bench.service.browser import open_logged_in_page
from core.database import job_log
from core.database.session import Database
from core.database.tables import StoredJobEvent
from core.settings import Settings
from perennial import Perennial
from tools import digits, service

MODEL = "open-page"
LASTS = {"method": "finetune", "epochs": 10_000}
FROM_MINUTE, MOST = 2, 1.1
STEPS = 10**6


def main() -> None:
    """Keep a job's page open while events arrive, and print its memory once a minute."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--per-second", type=int, default=50)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder), {"PERENNIAL_THREADS": "1"}) as running,
    ):
        job = _submit_and_pause_job(running)
        writer = _JobEventWriter(
            Database(Settings(data_dir=Path(folder)).resolved_database_url), job, options.per_second
        )
        with open_logged_in_page(running) as page:
            page.goto(f"/ui/jobs/{job}")
            browser = page.context.new_cdp_session(page)
            browser.send("Performance.enable")
            writer.start()
            heaps = [
                _wait_and_print_page_memory(browser, minute, writer)
                for minute in range(1, options.minutes + 1)
            ]
            writer.ended.set()
            writer.join()
            expect(page.locator("#log")).to_contain_text(
                f"line {writer.lines - 1} of", timeout=30_000
            )
            expect(page.locator("#said")).to_contain_text(
                f"step {writer.steps - 1} of", timeout=30_000
            )
            print(f"the page shows the last of {writer.written:,} events")
    if len(heaps) >= FROM_MINUTE:
        ratio = heaps[-1] / heaps[FROM_MINUTE - 1]
        print(f"heap at the end / after minute {FROM_MINUTE}: {ratio:.2f} (goal ≤ {MOST})")
        sys.exit(ratio > MOST)


def _submit_and_pause_job(running: service.RunningService) -> str:
    """Submit a job, pause it after a moment of training, and return its id."""
    with Perennial(running.key, base_url=running.url) as client:
        client.models.create(MODEL, scenario="class", architecture="mlp", recipe=LASTS)
        name, batch = digits.build_digit_archives()[0]
        job = client.submit(MODEL, batch, name=name)
        while client.jobs.retrieve(job.id).state != "running":
            time.sleep(0.2)
        client.jobs.pause(job.id)
        while client.jobs.retrieve(job.id).state != "paused":
            time.sleep(0.2)
        return job.id


class _JobEventWriter(threading.Thread):
    """Thread that writes a given number of job events per second."""

    def __init__(self, db: Database, job: str, per_second: int) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.written = self.steps = self.lines = 0
        self._db, self._job, self._per_second = db, job, per_second

    def run(self) -> None:
        started_at = time.monotonic()
        while not self.ended.wait(
            max(0.0, started_at + self.written / self._per_second - time.monotonic())
        ):
            with self._db.write() as session:
                now = self._db.now(session)
                for number in range(self._per_second):
                    if number % 5:
                        progress = {
                            "phase": "train",
                            "step": self.steps,
                            "total_steps": STEPS,
                            "loss": 1 / (1 + self.steps),
                        }
                        session.add(
                            StoredJobEvent(job_id=self._job, type="progress", data=progress, at=now)
                        )
                        self.steps += 1
                    else:
                        text = f"This is line {self.lines} of a log that says much and often."
                        job_log.add_job_log_line(session, self._job, ("info", text), now)
                        self.lines += 1
            self.written += self._per_second


def _wait_and_print_page_memory(browser: CDPSession, minute: int, writer: _JobEventWriter) -> float:
    """Wait a minute, print the browser page's figures, and return its heap in megabytes."""
    time.sleep(60)
    browser.send("HeapProfiler.collectGarbage")
    metrics: dict[str, Any] = {
        one["name"]: one["value"] for one in browser.send("Performance.getMetrics")["metrics"]
    }
    heap = float(metrics["JSHeapUsedSize"]) / 1e6
    print(
        f"minute {minute:2}: {writer.written:7,} events, heap {heap:5.2f} MB, "
        f"{metrics['Nodes']:6,.0f} nodes, {metrics['JSEventListeners']:4.0f} listeners, script "
        f"{metrics['ScriptDuration']:6.1f} s",
        flush=True,
    )
    return heap


if __name__ == "__main__":
    main()
