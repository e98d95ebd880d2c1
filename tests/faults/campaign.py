"""A crash campaign: the running service is killed at named points and at random, and must end as if nothing was.

    python tests/faults/campaign.py [--kills 100] [--size small|large] [--lanes 4] [--seed 0]

An API process and two workers, restarted as soon as they end; lanes of models learn the same three batches again and
again through HTTP, with idempotency keys, while kill points are armed one after the other (`core/kill_points.py`) and,
every fourth time, a process of the service is killed at a random moment. `large` wants PERENNIAL_DATABASE_URL and the
settings of a broker and a store; `small` has a folder of its own.

In the end every accepted task has exactly one version, and versions are numbered without gaps; the parts of every
version are, bit for bit, those of a model that nobody disturbed; and no lease, snapshot, raw archive or scratch folder is
left. A job that was killed three times without progress fails by design: it is retried by the lane, and told.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from PIL import Image
from sqlalchemy import func, select

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from core.db import references  # noqa: E402
from core.db.session import Database  # noqa: E402
from core.db.states import LEASED  # noqa: E402
from core.db.tables import Job, Model, Part, Task, Version  # noqa: E402
from core.kill_points import POINTS  # noqa: E402
from core.settings import Settings  # noqa: E402
from core.store import Blobs, open_store  # noqa: E402
from core.work import sweep  # noqa: E402
from tools.service import free_port  # noqa: E402

BATCHES = 3
MODEL: dict[str, Any] = {
    "scenario": "class",
    "architecture": {"name": "mlp", "hidden": [16]},
    "image": {"size": 8, "channels": 3},
    "recipe": {"method": {"name": "er", "buffer": 20}, "epochs": 60, "batch_size": 8},
    "keep_training_data": False,
}
SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_LEASE_S": "2",
    "PERENNIAL_POLL_S": "0.1",
    "PERENNIAL_CHORES_S": "0.3",
    "PERENNIAL_SNAPSHOT_S": "0.1",
}
ARMED_S = 12.0
"""A point that nobody came by for so long is armed again later."""
RANDOM_EVERY = 4
WORKERS = ("one", "two")
API = "api"
DEADLINE_S = 180.0
"""For a lane to end after the last kill."""


class Broken(Exception):
    """The service lost, doubled, changed or left something."""


def batch(number: int) -> bytes:
    """A zip of two classes of 12 images; a pure function of its number."""
    draw = np.random.default_rng(number)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for label in (2 * number, 2 * number + 1):
            for index in range(12):
                pixels = draw.integers(0, 120, (8, 8, 3), dtype=np.uint8) + np.uint8(60 * (label % 2))
                png = io.BytesIO()
                Image.fromarray(pixels).save(png, "PNG")
                name = zipfile.ZipInfo(f"c{label}/{index:03d}.png", (2000, 1, 1, 0, 0, 0))
                file.writestr(name, png.getvalue())
    return out.getvalue()


@dataclass
class Site:
    """The processes of a service by name. `environment`: of all; the folder holds their data and logs."""

    folder: Path
    environment: Mapping[str, str]
    large: bool
    port: int = field(default_factory=free_port)
    processes: dict[str, psutil.Popen] = field(default_factory=dict)
    restarts: Counter[str] = field(default_factory=Counter)

    @property
    def points(self) -> Path:
        """Where points are armed."""
        return self.folder / "points"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def data(self, name: str) -> Path:
        """The data directory of a process: one for all in the small size."""
        return self.folder / (name if self.large else "data")

    def settings(self) -> Settings:
        """The service's own, for a look into its database and store."""
        known = {**SETTINGS, **self.environment, "PERENNIAL_DATA_DIR": str(self.data(API))}
        return Settings.model_validate({k.removeprefix("PERENNIAL_").lower(): v for k, v in known.items()})

    def environ(self, name: str) -> dict[str, str]:
        own = {"PERENNIAL_DATA_DIR": str(self.data(name)), "PERENNIAL_KILL_POINTS": str(self.points)}
        return {**os.environ, **SETTINGS, **self.environment, **own}

    def prepare(self) -> str:
        """Database, store and catalogue; the admin key."""
        self.points.mkdir(parents=True)
        for name in (API, *WORKERS):
            self.data(name).mkdir(exist_ok=True)
        command = [sys.executable, "-m", "worker.setup"]
        subprocess.run(command, cwd=ROOT, env=self.environ(API), check=True, stdout=subprocess.DEVNULL)
        return (self.data(API) / "admin-key").read_text().strip()

    def start(self, name: str) -> None:
        if name == API:
            command = ["-m", "uvicorn", "--factory", "api.app:create_app", "--port", str(self.port)]
        elif self.large:
            command = ["-m", "celery", "-A", "worker.celery_app", "worker", "-P", "solo", "-n", f"{name}@%h"]
            command += ["--without-gossip", "--without-mingle"]
        else:
            command = ["-m", "worker.loop"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = psutil.Popen(
                [sys.executable, *command], cwd=ROOT, env=self.environ(name), stdout=log, stderr=log
            )

    def revive(self) -> None:
        """Start again what has ended."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None:
                self.restarts[name] += 1
                self.start(name)

    def all(self) -> list[psutil.Process]:
        """Every process of the service: API, workers, zygotes, job processes, decoders."""
        found: list[psutil.Process] = []
        for process in self.processes.values():
            with suppress(psutil.NoSuchProcess):
                found += [psutil.Process(process.pid), *process.children(recursive=True)]
        return found

    def stop(self) -> None:
        """End all in order."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(40)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()


class Caller:
    """Requests that are made again until the service answers, with the same idempotency key."""

    def __init__(self, url: str, key: str, give_up: Callable[[], bool]) -> None:
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=20)
        self._give_up = give_up

    def call(self, method: str, path: str, key: str | None = None, **options: Any) -> Any:
        """The JSON of an answer below 300. Raises Broken for a refusal or when it takes too long."""
        headers = {**options.pop("headers", {}), **({"Idempotency-Key": key} if key else {})}
        while not self._give_up():
            try:
                answer = self._http.request(method, path, headers=headers, **options)
            except httpx.TransportError:
                time.sleep(0.1)
                continue
            in_flight = answer.status_code == 409 and "in-flight" in answer.text
            if answer.status_code in (429, 502, 503, 504) or in_flight:
                time.sleep(0.2)
                continue
            if answer.status_code >= 300:
                raise Broken(f"{method} {path} → {answer.status_code}: {answer.text[:500]}")
            return answer.json()
        raise Broken(f"{method} {path} was not answered in time")


@dataclass
class Report:
    """What happened. `failed`: jobs that were killed three times without progress, and retried."""

    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    models: list[str] = field(default_factory=list)
    jobs: int = 0
    failed: int = 0
    restarts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        points = "\n".join(f"  {n:5d}  {point}" for point, n in sorted(self.kills.items()))
        restarts = ", ".join(f"{name} {n}" for name, n in sorted(self.restarts.items()))
        return (
            f"{self.kills.total()} kills in {self.seconds:.0f} s:\n{points}\n"
            f"{len(self.models)} models, {self.jobs} jobs accepted, {self.failed} failed at the third strike and retried; "
            f"restarts: {restarts}\n0 lost, 0 doubled, 0 gaps, 0 bit differences, nothing left over"
        )


class Campaign:
    """Hurts a site until there were `kills` deaths, while lanes learn."""

    def __init__(self, site: Site, kills: int, lanes: int, seed: int) -> None:
        self._site, self._kills, self._lanes = site, kills, lanes
        self._draw = random.Random(seed)
        self._batches = [batch(number) for number in range(BATCHES)]
        self._over = threading.Event()
        self._deadline = float("inf")
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self.report = Report()

    def run(self) -> Report:
        """Raises Broken with what was lost, doubled, changed or left."""
        site, begun = self._site, time.monotonic()
        self._key = site.prepare()
        for name in (API, *WORKERS):
            site.start(name)
        keeper = threading.Thread(target=self._keep, daemon=True)
        keeper.start()
        try:
            self._deadline = time.monotonic() + DEADLINE_S
            self._learn("undisturbed")
            self._deadline = float("inf")
            lanes = [threading.Thread(target=self._lane, args=[n], daemon=True) for n in range(self._lanes)]
            for lane in lanes:
                lane.start()
            self._hurt()
            self._deadline = time.monotonic() + DEADLINE_S
            for lane in lanes:
                lane.join()
        finally:
            self._over.set()
            keeper.join()
            site.stop()
        if self._errors:
            raise self._errors[0]
        self.report.restarts = site.restarts
        self._check()
        self.report.seconds = time.monotonic() - begun
        return self.report

    # Those who use the service.

    def _lane(self, number: int) -> None:
        try:
            turn = 0
            while not self._enough():
                self._learn(f"lane-{number}-{turn}")
                turn += 1
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self._errors.append(error)

    def _learn(self, name: str) -> None:
        """A model of all batches, submitted at once."""
        caller = Caller(self._site.url, self._key, lambda: time.monotonic() > self._deadline)
        caller.call("POST", "/v1/models", f"{name}-model", json={**MODEL, "name": name})
        headers = {"Content-Type": "application/zip"}
        jobs = []
        for number, content in enumerate(self._batches):
            path, key = f"/v1/models/{name}/tasks", f"{name}-{number}"
            jobs.append(caller.call("POST", path, key, content=content, headers=headers)["job"]["id"])
        with self._lock:
            self.report.models.append(name)
            self.report.jobs += len(jobs)
        for job in jobs:
            self._see_through(caller, job)

    def _see_through(self, caller: Caller, job: str) -> None:
        while True:
            found = caller.call("GET", f"/v1/jobs/{job}")
            if found["state"] == "failed" and found["error"]["kind"] == "lost":
                with self._lock:
                    self.report.failed += 1
                job = caller.call("POST", f"/v1/jobs/{job}/retry", f"{job}-retry")["id"]
            elif found["is_terminal"]:
                if found["state"] != "succeeded":
                    raise Broken(f"{job} ended {found['state']}: {found['error']}")
                return
            time.sleep(0.2)

    # Those who hurt it.

    def _enough(self) -> bool:
        return self.report.kills.total() >= self._kills or bool(self._errors)

    def _keep(self) -> None:
        while not self._over.is_set():
            self._site.revive()
            time.sleep(0.05)

    def _hurt(self) -> None:
        points = list(POINTS)
        turn = 0
        while not self._enough():
            if turn % len(points) == 0:
                self._draw.shuffle(points)
            if turn % RANDOM_EVERY == 0:
                self._kill_someone()
            if not self._enough():
                self._kill_at(points[turn % len(points)])
            turn += 1

    def _kill_someone(self) -> None:
        time.sleep(self._draw.uniform(0.1, 1.5))
        processes = self._site.all()
        if processes:
            with suppress(psutil.NoSuchProcess):
                self._draw.choice(processes).kill()
                self.report.kills["at random"] += 1

    def _kill_at(self, point: str) -> None:
        armed = self._site.points / point
        armed.touch()
        until = time.monotonic() + ARMED_S
        while armed.exists() and time.monotonic() < until and not self._errors:
            if point == "release-asked":
                self._ask_to_stop()
            time.sleep(0.05)
        try:
            armed.unlink()
        except FileNotFoundError:
            self.report.kills[point] += 1

    def _ask_to_stop(self) -> None:
        """A worker that has a job gives it back when it is asked to end."""
        for name in WORKERS:
            process = self._site.processes[name]
            with suppress(psutil.NoSuchProcess):
                if len(process.children(recursive=True)) > 1:  # a zygote and a job process
                    process.terminate()
                    return

    # What must be so afterwards.

    def _check(self) -> None:
        settings = self._site.settings()
        db, store = Database(settings.resolved_database_url), open_store(settings)
        try:
            sweep.BLOB_DAYS = 0.0  # nothing is under way any more
            store.delete(sweep._MARK)
            sweep.sweep(db, store, Blobs(store, settings.folder("cache")), settings)
            found = {name: _versions(db, name) for name in self.report.models}
            with db.read() as session:
                leased = session.scalar(select(func.count()).where(Job.state.in_(sorted(LEASED))))
                tasks = session.scalar(select(func.count()).select_from(Task))
            wanted = found["undisturbed"]
            for name, versions in found.items():
                if [number for number, _ in versions] != list(range(BATCHES + 1)):
                    raise Broken(f"{name} has the versions {[number for number, _ in versions]}")
                for (number, parts), (_, same) in zip(versions, wanted, strict=True):
                    if parts != same:
                        raise Broken(f"version {number} of {name} differs from the undisturbed one")
            if tasks != self.report.jobs:
                raise Broken(f"{self.report.jobs} batches were accepted and {tasks} tasks are there")
            if leased:
                raise Broken(f"{leased} jobs are still leased")
            kinds = ("snapshots/", "anytime/", "archives/")
            left = [info.key for kind in kinds for info in store.list(kind)]
            with db.read() as session:
                stored = [info.key.rpartition("/")[2] for info in store.list("blobs/")]
                left += set(stored) - references.used(session, stored)
            left += [str(p) for name in (API, *WORKERS) for p in (self._site.data(name) / "spool").glob("*")]
            if left:
                raise Broken(f"left over: {', '.join(left[:10])}")
        finally:
            db.close()


def _versions(db: Database, model: str) -> list[tuple[int, list[tuple[str, str]]]]:
    """Numbers in order, each with (name, sha256) of its parts."""
    with db.read() as session:
        query = (
            select(Version.number, Part.name, Part.sha256)
            .join(Model, Model.id == Version.model_id)
            .outerjoin(Part, Part.version_id == Version.id)
            .where(Model.name == model)
            .order_by(Version.number, Part.position)
        )
        rows = session.execute(query).all()
    numbers = sorted({row.number for row in rows})
    return [(n, [(row.name, row.sha256) for row in rows if row.number == n and row.name]) for n in numbers]


@contextmanager
def site(folder: Path, size: str, environment: Mapping[str, str]) -> Iterator[Site]:
    """A site whose processes are gone afterwards, whatever happens."""
    made = Site(folder, environment, size == "large")
    try:
        yield made
    finally:
        for process in made.all():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)


def main() -> int:
    """1 when something was lost, doubled, changed or left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    own = (
        {k: v for k, v in os.environ.items() if k.startswith("PERENNIAL_")} if options.size == "large" else {}
    )
    with tempfile.TemporaryDirectory() as folder, site(Path(folder), options.size, own) as made:
        try:
            print(Campaign(made, options.kills, options.lanes, options.seed).run())
        except Broken as broken:
            print(f"BROKEN: {broken}", file=sys.stderr)
            for log in sorted(Path(folder).glob("*.log")):
                print(f"── {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
