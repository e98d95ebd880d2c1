"""A crash campaign: a service is killed at named points and at random, and must lose nothing.

    python tests/faults/campaign.py [--kills 100] [--minutes M] [--size small|large] [--lanes 4]
        [--seed 0]

An API process and two workers are restarted as soon as they end. Lanes of models learn the same
three batches again and again through HTTP, with idempotency keys. Meanwhile failpoints are armed
one after the other (`core/failpoints.py`). Every fourth time, a process of the service is killed at
a random moment. `large` starts its own servers: PostgreSQL and redis-server must be installed, and
the S3 server is made on first use. In every other lane the model is rolled back, held by its gate,
learned again and retried.

In the end every accepted task has exactly one version, and versions are numbered without gaps. The
parts of every version are bit-identical to those of an undisturbed model. No lease, snapshot, raw
archive or scratch folder is left. A job that was killed three times without progress fails by
design: the lane retries it, and the report counts it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from running_site import (
    API,
    BATCHES,
    WORKERS,
    Broken,
    Caller,
    Site,
    build_batch,
    check_invariants,
    go_through_standings,
    run_site,
    submit_batches,
    wait_until_succeeded,
)
from servers import run_servers

from core.failpoints import POINTS

ARMED_S = 12.0
"""Seconds for a process to reach an armed point."""
RANDOM_EVERY = 4
DEADLINE_S = 180.0
"""Seconds for a lane to end after the last kill."""


@dataclass
class Report:
    """The outcome of a campaign.

    Attributes:
        retried: models of jobs that were retried after three kills without progress.
        edits: number of edits, purges and undos (`edit_campaign.py`).
    """

    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    models: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)
    jobs: int = 0
    retried: list[str] = field(default_factory=list)
    compared: int = 0
    edits: int = 0
    restarts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        points = "\n".join(f"  {n:5d}  {point}" for point, n in sorted(self.kills.items()))
        restarts = ", ".join(f"{name} {n}" for name, n in sorted(self.restarts.items()))
        return (
            f"{self.kills.total()} kills in {self.seconds:.0f} s:\n{points}\n"
            f"{len(self.models)} models and {len(self.mended)} that were held and rolled back, "
            f"{self.jobs} jobs accepted, {len(self.retried)} failed at the third strike and "
            f"retried; {self.edits} edits; restarts: {restarts}\n{self.compared} versions compared with undisturbed "
            "ones: 0 lost, 0 doubled, 0 gaps, 0 bit differences, nothing left over"
        )


class Campaign:
    """A campaign that disturbs a site until there were `kills` deaths, while lanes learn.

    Attributes:
        armed_at_once: number of points that wait for a process at the same time.
        armed_s: for how long a point waits; it is armed again later.
        deadline_s: for the lanes to end after the last kill, and for all that follows.
    """

    armed_at_once = 1
    armed_s = ARMED_S
    deadline_s = DEADLINE_S

    def __init__(
        self, site: Site, kills: int, lanes: int, seed: int, seconds: float = float("inf")
    ) -> None:
        self._site, self._kills, self._lanes = site, kills, lanes
        self._hurt_until = time.monotonic() + seconds
        self._draw = random.Random(seed)
        self._batches = [build_batch(number) for number in range(BATCHES)]
        self._over = threading.Event()
        self._deadline = float("inf")
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self.report = Report()

    def run(self) -> Report:
        """Run the campaign.

        Raises:
            Broken: something was lost, doubled, changed or left over.
        """
        site, begun = self._site, time.monotonic()
        self._key = site.prepare()
        for name in (API, *WORKERS):
            site.start(name)
        keeper = threading.Thread(target=self._keep, daemon=True)
        keeper.start()
        try:
            self._deadline = time.monotonic() + self.deadline_s
            self._begin()
            self._deadline = float("inf")
            lanes = [
                threading.Thread(target=self._lane, args=[n], daemon=True)
                for n in range(self._lanes)
            ]
            for lane in lanes:
                lane.start()
            self._hurt()
            self._deadline = time.monotonic() + self.deadline_s
            for lane in lanes:
                lane.join()
            if self._errors:
                raise self._errors[0]
            self._end()
        finally:
            self._over.set()
            keeper.join()
            site.stop()
        self.report.restarts = site.restarts
        self.report.compared = self._check()
        self.report.seconds = time.monotonic() - begun
        return self.report

    # Steps in which a campaign of another kind differs.

    def _begin(self) -> None:
        """Make the models that stay undisturbed."""
        self._learn("undisturbed")
        self._mend("mended-undisturbed")

    def _work(self, lane: int, turn: int) -> None:
        """Use the service once while it is disturbed."""
        # Every other lane goes through all standings of the line, one batch after the other.
        (self._mend if lane % 2 else self._learn)(f"lane-{lane}-{turn}")

    def _end(self) -> None:
        """Use the service once after all disturbances have ended."""

    def _check(self) -> int:
        """Check the invariants, and return the number of compared versions."""
        made = self.report
        return check_invariants(
            self._site, made.models, made.jobs, retried=made.retried, mended=made.mended
        )

    def _list_victims(self) -> list[psutil.Process]:
        """Return the processes one of which may be killed at random now."""
        return self._site.all()

    def _list_points(self) -> list[str]:
        # No model here has weights of the Hub, is exported or edited, no batch comes in pieces
        # (tests/faults/test_uploads.py), and nobody has a webhook
        # (tests/faults/test_deliveries.py).
        others = ("fetch-", "export-", "edit-", "trial-", "upload-", "delivery-")
        return [point for point in POINTS if not point.startswith(others)]

    # Those who use the service.

    def _lane(self, number: int) -> None:
        try:
            turn = 0
            while not self._enough():
                self._work(number, turn)
                turn += 1
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self._errors.append(error)

    def _learn(self, name: str) -> None:
        """Create a model, and learn all batches, which are submitted at once."""
        caller = Caller(self._site.url, self._key, lambda: time.monotonic() > self._deadline)
        jobs = submit_batches(caller, name, self._batches)
        with self._lock:
            self.report.models.append(name)
            self.report.jobs += len(jobs)
        for job in jobs:
            wait_until_succeeded(caller, job, lambda _job: self.report.retried.append(name))

    def _mend(self, name: str) -> None:
        """Create a model that is rolled back, held, and learned again."""
        caller = Caller(self._site.url, self._key, lambda: time.monotonic() > self._deadline)
        go_through_standings(
            caller, name, self._batches, lambda _job: self.report.retried.append(name)
        )
        with self._lock:
            self.report.mended.append(name)
            self.report.jobs += len(self._batches)

    # Those who hurt it.

    def _enough(self) -> bool:
        enough = self.report.kills.total() >= self._kills or bool(self._errors)
        return enough or time.monotonic() >= self._hurt_until

    def _keep(self) -> None:
        while not self._over.is_set():
            self._site.revive()
            time.sleep(0.05)

    def _hurt(self) -> None:
        points, turn = self._list_points(), 0
        armed: dict[str, float] = {}
        """Armed point → time at which it is given up."""
        while not self._enough():
            if turn % len(points) == 0:
                self._draw.shuffle(points)
            if turn % RANDOM_EVERY == 0:
                self._kill_someone()
            if not self._enough():
                self._arm(points[turn % len(points)], armed)
                self._wait_for_deaths(armed, self.armed_at_once - 1)
            turn += 1
        for point in armed:
            (self._site.points / point).unlink(missing_ok=True)

    def _kill_someone(self) -> None:
        time.sleep(self._draw.uniform(0.1, 1.5))
        processes = self._list_victims()
        if processes:
            with suppress(psutil.NoSuchProcess):
                self._draw.choice(processes).kill()
                self.report.kills["at random"] += 1

    def _arm(self, point: str, armed: dict[str, float]) -> None:
        if point not in armed:
            (self._site.points / point).touch()
            armed[point] = time.monotonic() + self.armed_s

    def _wait_for_deaths(self, armed: dict[str, float], left: int) -> None:
        """Count deaths at armed points until at most `left` points are armed."""
        while True:
            for point, until in list(armed.items()):
                path = self._site.points / point
                if path.exists() and time.monotonic() < until and not self._errors:
                    continue
                del armed[point]
                try:
                    path.unlink()
                except FileNotFoundError:
                    self.report.kills[point] += 1
            if len(armed) <= left or self._enough():
                return
            if "release-asked" in armed:
                self._ask_to_stop()
            time.sleep(0.05)

    def _ask_to_stop(self) -> None:
        """Ask a worker that has a job to end; it then gives the job back."""
        for process in self._list_busy_workers():
            with suppress(psutil.NoSuchProcess):
                process.terminate()
                return

    def _list_busy_workers(self) -> list[psutil.Process]:
        found = []
        for name in WORKERS:
            process = self._site.processes[name]
            with suppress(psutil.NoSuchProcess):
                if len(process.children(recursive=True)) > 1:  # a zygote and a job process
                    found.append(process)
        return found


def main(kind: type[Campaign] = Campaign, description: str | None = __doc__) -> int:
    """Run the campaign; return 1 if something was lost, doubled, changed or left over."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--minutes", type=float, help="stop killing then", default=float("inf"))
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        environment: dict[str, str] = {}
        if options.size == "large":
            environment = stack.enter_context(
                run_servers(Path(tempfile.gettempdir()))
            ).environment()
        hurt = stack.enter_context(run_site(Path(folder) / "site", options.size, environment))
        made = kind(hurt, options.kills, options.lanes, options.seed, 60 * options.minutes)
        try:
            print(made.run())
        except Broken as broken:
            print(f"BROKEN after {made.report.kills.total()} kills: {broken}", file=sys.stderr)
            for log in sorted(hurt.folder.glob("*.log")):
                print(f"── {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
