"""An outage campaign: the servers below the service fail, and nothing else may fail.

    python tests/faults/outages.py [--only NAME …] [--list] [--lanes 2]

The large service (an API process and two Celery workers) runs over its own PostgreSQL, Redis and S3
servers. Each of these is behind a relay that can fail. Lanes of models learn through HTTP the whole
time, and one fault after the other happens. For each fault the campaign prints what clients saw. It
also prints how long after the fault's end the service was ready and all jobs had continued. In the
end nothing may be lost, doubled, changed or left over, and no job may have failed. Every answer
must have come within `onlookers.LIMIT_S`. A request that could not be fulfilled must have been
answered with a typed problem with `Retry-After`.

Full disks are small file systems in memory (`mount -t tmpfs`, so they need root). The small size
runs separately on one of them (`disk-small`). A worker's clock is moved by libfaketime, and the
machine's never is.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onlookers import KINDS, LIMIT_S, Answer, Onlookers
from running_site import (
    API,
    BATCHES,
    MODEL,
    WORKERS,
    Broken,
    Caller,
    Site,
    build_batch,
    check_invariants,
    run_site,
    submit_batches,
    wait_until_succeeded,
)

from outage_faults import (  # isort: skip
    ALL,
    CLOCKS,
    LARGE,
    SETTINGS,
    SMALL,
    Fault,
    run_backends,
    make_clock_faults,
    make_relay_faults,
    make_server_faults,
    mount_small_disk,
    make_small_faults,
)

BIG: dict[str, Any] = {**MODEL, "architecture": {"name": "mlp", "hidden": [1400]}}
"""A model with a part of more than a megabyte, which a download reads in several pieces."""
SIDE = 360
"""Side of the second batch's images in pixels.

Their archive takes more than one part of an upload.
"""
READY_S, GO_ON_S = 60.0, 120.0
"""Time limits after a fault: until the service is ready, and until its jobs continue."""


@dataclass
class Row:
    """The effect of a fault.

    Attributes:
        first_s: seconds from the fault's end until a job had finished.
        all_s: seconds from the fault's end until all open jobs had finished.
    """

    fault: Fault
    answers: list[Answer]
    ready_s: float
    first_s: float
    all_s: float
    open_jobs: int

    def __str__(self) -> str:
        seen = []
        for kind in KINDS:
            told = Counter(answer.told for answer in self.answers if answer.kind == kind)
            if told:
                counts = " ".join(f"{status}×{n}" for status, n in sorted(told.items()))
                slowest = max(answer.seconds for answer in self.answers if answer.kind == kind)
                seen.append(f"{kind} {counts} (≤ {slowest:.1f} s)")
        return (
            f"{self.fault.name}: {self.fault.what}, {self.fault.seconds:g} s\n    saw: "
            f"{'; '.join(seen)}\n    ready after {self.ready_s:.1f} s; a job finished after "
            f"{self.first_s:.1f} s, all {self.open_jobs} open ones after {self.all_s:.1f} s"
        )


class Outages:
    """A campaign that causes faults on a site while lanes learn; it fills `rows` and `wrong`."""

    def __init__(
        self, site: Site, faults: Sequence[Fault], lanes: int = 2, model: Any = BIG
    ) -> None:
        self._site, self._faults, self._model = site, faults, model
        self._batches = [build_batch(0), build_batch(1, SIDE), build_batch(2)][:BATCHES]
        self._lanes = lanes
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._models: list[str] = []
        self._open: set[str] = set()
        self._finished: list[float] = []
        self._jobs = 0
        self.rows: list[Row] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        """Run the campaign; raise Broken if data is lost, doubled, changed or left over.

        `wrong` has all other findings.
        """
        site = self._site
        key = site.prepare()
        for name in (API, *WORKERS):
            site.start(name)
        try:
            self._key = key
            last = self._learn("undisturbed")
            caller = self._caller()
            caller.call("POST", "/v1/models", "probe", json={**MODEL, "name": "probe"})
            self._seen = Onlookers(site.url, key, "undisturbed", last, "probe", build_batch(0))
            self._seen.start()
            lanes = [
                threading.Thread(target=self._lane, args=[n], daemon=True)
                for n in range(self._lanes)
            ]
            for lane in lanes:
                lane.start()
            follower = threading.Thread(target=self._follow, daemon=True)
            follower.start()
            for fault in self._faults:
                self._hurt(fault)
                print(self.rows[-1], flush=True)
            self._ending.set()
            for lane in lanes:
                lane.join()
            self._seen.stop()
            follower.join()
        finally:
            self._ending.set()
            site.stop()
        self.wrong += self._seen.wrong
        accepted = len(self._seen.accepted)
        check_invariants(site, self._models, self._jobs + accepted, {"probe": accepted})
        self.accepted = self._jobs + accepted

    # Those who use the service.

    def _caller(self) -> Caller:
        return Caller(self._site.url, self._key, lambda: False)

    def _lane(self, number: int) -> None:
        turn = 0
        while not self._ending.is_set():
            try:
                self._learn(f"lane-{number}-{turn}")
            except Exception as error:  # noqa: BLE001 - told at the end
                self.wrong.append(f"lane {number}: {error}")
            turn += 1

    def _follow(self) -> None:
        """Wait for the onlookers' batches, in order."""
        caller, number = self._caller(), 0
        while not self._seen.is_over or number < len(self._seen.accepted):
            if number == len(self._seen.accepted):
                time.sleep(0.05)
                continue
            try:
                wait_until_succeeded(caller, self._seen.accepted[number])
            except Broken as error:
                self.wrong.append(f"probe: {error}")
            with self._lock:
                self._finished.append(time.monotonic())
            number += 1

    def _learn(self, name: str) -> str:
        caller = self._caller()
        jobs = submit_batches(caller, name, self._batches, self._model)
        with self._lock:
            self._models.append(name)
            self._jobs += len(jobs)
            self._open |= set(jobs)
        for job in jobs:
            wait_until_succeeded(caller, job)
            with self._lock:
                self._finished.append(time.monotonic())
                self._open.discard(job)
        return jobs[-1]

    # What happens to it.

    def _hurt(self, fault: Fault) -> None:
        self._until(
            lambda: bool(self._open), GO_ON_S, time.monotonic(), f"{fault.name}: nobody learns"
        )
        self._drop_cache()
        begun, since = time.monotonic(), len(self._seen.answers)
        fault.begin()
        self._seen.submit_some()
        time.sleep(fault.seconds)
        told = [answer for answer in self._seen.answers[since:] if answer.kind == "readyz"]
        if fault.down and (not told or not fault.down.items() <= told[-1].ready.items()):
            self.wrong.append(
                f"{fault.name}: at its end /readyz said {told[-1] if told else 'nothing'}"
            )
        fault.end()
        ended = time.monotonic()
        with self._lock:
            left = set(self._open)
        waited = set(left)
        ready_s = self._until(
            lambda: self._ready(ended), READY_S, ended, f"{fault.name}: not ready"
        )
        first_s = self._until(
            lambda: any(at > ended for at in self._finished),
            GO_ON_S,
            ended,
            f"{fault.name}: no job went on",
        )
        all_s = self._until(
            lambda: not (left & self._open), GO_ON_S, ended, f"{fault.name}: jobs wait"
        )
        self._seen.submit_none()
        answers = [
            a
            for a in self._seen.answers[since:]
            if a.begun + a.seconds >= begun and a.begun <= ended + max(ready_s, 1.0)
        ]
        self.rows.append(Row(fault, answers, ready_s, first_s, all_s, len(waited)))

    def _drop_cache(self) -> None:
        """Delete the API's copies of blobs, so that a prediction needs the store."""
        with self._seen.predicting:
            for path in (self._site.data(API) / "cache").glob("blobs/*/*"):
                path.unlink(missing_ok=True)

    def _ready(self, since: float) -> bool:
        told = [a for a in list(self._seen.answers) if a.kind == "readyz" and a.begun >= since]
        return any(a.told == "200" and not {"down", "full"} & set(a.ready.values()) for a in told)

    def _until(self, so: Callable[[], bool], limit_s: float, since: float, otherwise: str) -> float:
        """Return the seconds from `since` until a condition holds."""
        while not so():
            if time.monotonic() - since > limit_s:
                self.wrong.append(f"{otherwise} within {limit_s:g} s")
                break
            time.sleep(0.05)
        return time.monotonic() - since


def main() -> int:
    """Run the campaign; return 1 if data was lost, or an answer was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ALL, default=[*ALL], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="name the faults")
    parser.add_argument("--lanes", type=int, default=2)
    options = parser.parse_args()
    if options.list:
        print("\n".join(ALL))
        return 0
    signal.signal(
        signal.SIGTERM, lambda _number, _frame: sys.exit(143)
    )  # servers and disks go away all the same
    wrong = 0
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        if set(options.only) & {*LARGE, *CLOCKS}:
            found = stack.enter_context(run_backends(folder))
        if set(options.only) & set(LARGE):
            made = stack.enter_context(run_site(folder / "large", "large", found.environment()))
            faults = [*make_relay_faults(found.relays), *make_server_faults(found, made)]
            wrong += _run_campaign(
                made, [f for f in faults if f.name in options.only], options.lanes
            )
        if set(options.only) & set(CLOCKS):
            found.postgres.empty()
            own = {**found.environment(), "PERENNIAL_STORE_URL": f"file://{folder / 'store'}"}
            made = stack.enter_context(run_site(folder / "clocks", "large", own))
            wrong += _run_campaign(
                made, [f for f in make_clock_faults(made) if f.name in options.only], options.lanes
            )
        if set(options.only) & set(SMALL):
            (folder / "small").mkdir()
            stack.enter_context(mount_small_disk(folder / "small" / "data", "256m"))
            made = stack.enter_context(run_site(folder / "small", "small", SETTINGS))
            wrong += _run_campaign(made, make_small_faults(made.data(API)), options.lanes)
    return min(wrong, 1)


def _run_campaign(made: Site, faults: Sequence[Fault], lanes: int) -> int:
    """Run the campaign, print its errors and the kept logs, and return the number of errors."""
    campaign, begun = Outages(made, faults, lanes), time.monotonic()
    try:
        campaign.run()
        found = [answer.seconds for row in campaign.rows for answer in row.answers]
        print(
            f"{len(faults)} faults in {time.monotonic() - begun:.0f} s, {campaign.accepted} "
            f"batches accepted, 0 lost, 0 doubled, 0 bit differences, nothing left over; answers: "
            f"{len(found)}, median {statistics.median(found):.3f} s, slowest {max(found):.1f} s "
            f"(limit {LIMIT_S:g} s)"
        )
    except Broken as broken:
        campaign.wrong.append(str(broken))
    if campaign.wrong:
        for text, n in Counter(campaign.wrong).most_common(40):
            print(f"WRONG ({n}×): {text}", file=sys.stderr)
        for log in sorted(made.folder.glob("*.log")):
            kept = Path(tempfile.gettempdir()) / f"outages-{log.name}"
            kept.write_bytes(log.read_bytes())
            print(f"log kept: {kept}", file=sys.stderr)
    return len(campaign.wrong)


if __name__ == "__main__":
    sys.exit(main())
