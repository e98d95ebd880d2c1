"""A running service for fault campaigns: its processes, its callers, and the final check.

The crash campaign (`campaign.py`) and the outage campaign (`outages.py`) use it. It consists of an
API process and two workers in either size, and a caller that repeats its requests with the same
idempotency key. The final check requires that every accepted task has exactly one version and that
numbers have no gaps. Parts must equal those of an undisturbed model, and nothing may be left over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
from archives import build_archive
from sqlalchemy import func, select

ROOT = Path(__file__).resolve().parents[2]
for _folder in (ROOT, ROOT / "tests" / "services"):  # a campaign is a command too
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))

from large_size import build_api_command, build_worker_command  # noqa: E402

from core.database.session import Database  # noqa: E402
from core.database.states import LEASED  # noqa: E402
from core.database.tables import Job, Model, Task, Version, VersionPart  # noqa: E402
from core.retention import references  # noqa: E402
from core.settings import Settings  # noqa: E402
from core.storage import Blobs, ObjectStorage, open_object_store  # noqa: E402
from core.upkeep import sweep  # noqa: E402
from tools import service  # noqa: E402
from tools.service import find_free_port  # noqa: E402

BATCHES = 3
MENDED = 5
"""Number of versions of a model after `go_through_standings`.

These are two, one held, the second task's again, and the third's again.
"""
MODEL: dict[str, Any] = {
    "gate": {"checks": "off"},
    "scenario": "class",
    "architecture": {"name": "mlp", "hidden": [16]},
    "image": {"size": 8, "channels": 3},
    "recipe": {"method": {"name": "er", "buffer": 20}, "epochs": 60, "batch_size": 8},
    "keep_training_data": False,
}
SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_LEASE_S": "2",
    "PERENNIAL_CHORES_S": "0.3",
    "PERENNIAL_SNAPSHOT_S": "0.1",
}
WORKERS = ("one", "two")
API = "api"


class Broken(Exception):
    """The service lost, doubled or changed something, or left something over."""


def build_batch(number: int, side: int = 8) -> bytes:
    """Build the archive of a model's task: two new classes of 12 images of `side` pixels."""
    return build_archive(2 * number, per_class=12, size=side)


@dataclass
class Site:
    """The processes of a service by name; its folder holds their data and logs.

    Attributes:
        environment: settings of all processes.
    """

    folder: Path
    environment: Mapping[str, str]
    large: bool
    port: int = field(default_factory=find_free_port)
    processes: dict[str, psutil.Popen] = field(default_factory=dict)
    restarts: Counter[str] = field(default_factory=Counter)
    own: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings of individual processes, by their names."""
    other_apis: dict[str, int] = field(default_factory=dict)
    """Ports of API processes besides the first, by their names."""

    def port_of(self, name: str) -> int:
        """Return the port of an API process."""
        return self.other_apis.get(name, self.port)

    @property
    def points(self) -> Path:
        """Return the folder in which failpoints are armed."""
        return self.folder / "points"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def data(self, name: str) -> Path:
        """Return the data directory of a process; in the small size, all share one."""
        return self.folder / (name if self.large else "data")

    def settings(self) -> Settings:
        """Return the service's own settings, to look into its database and store."""
        known = {**SETTINGS, **self.environment, "PERENNIAL_DATA_DIR": str(self.data(API))}
        return Settings.model_validate(
            {k.removeprefix("PERENNIAL_").lower(): v for k, v in known.items()}
        )

    def environ(self, name: str) -> dict[str, str]:
        own = {
            "PERENNIAL_DATA_DIR": str(self.data(name)),
            "PERENNIAL_KILL_POINTS": str(self.points),
        }
        return {**os.environ, **SETTINGS, **self.environment, **own, **self.own.get(name, {})}

    def prepare(self) -> str:
        """Prepare database, store and catalogue, and return the admin key."""
        self.points.mkdir(parents=True)
        for name in (API, *self.other_apis, *WORKERS):
            self.data(name).mkdir(exist_ok=True)
            service.link_shared_test_catalogue(self.data(name))
        command = [sys.executable, "-m", "worker.setup"]
        subprocess.run(
            command, cwd=ROOT, env=self.environ(API), check=True, stdout=subprocess.DEVNULL
        )
        return (self.data(API) / "admin-key").read_text().strip()

    def start(self, name: str) -> None:
        if name == API or name in self.other_apis:
            command = build_api_command(self.port_of(name))
        elif self.large:
            command = build_worker_command(name)
        else:
            command = [sys.executable, "-m", "worker.loop"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = psutil.Popen(
                command, cwd=ROOT, env=self.environ(name), stdout=log, stderr=log
            )

    def revive(self) -> None:
        """Restart all processes that have ended."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None:
                self.restarts[name] += 1
                self.start(name)

    def all(self) -> list[psutil.Process]:
        """Return every process of the service: API, workers, zygotes, job processes, decoders."""
        found: list[psutil.Process] = []
        for process in self.processes.values():
            with suppress(psutil.NoSuchProcess):
                found += [psutil.Process(process.pid), *process.children(recursive=True)]
        return found

    def stop(self) -> None:
        """Stop all processes in order."""
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
    """A client that repeats requests with the same idempotency key until the service answers."""

    def __init__(self, url: str, key: str, give_up: Callable[[], bool]) -> None:
        self._http = httpx2.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=20
        )
        self._give_up = give_up

    def call(
        self,
        method: str,
        path: str,
        key: str | None = None,
        accept: Collection[int] = (),
        **options: Any,
    ) -> Any:
        """Return the JSON of an answer below 300, or of an answer with a status in `accept`.

        Raises:
            Broken: the request was refused, or not answered in time.
        """
        headers = {**options.pop("headers", {}), **({"Idempotency-Key": key} if key else {})}
        while not self._give_up():
            try:
                answer = self._http.request(method, path, headers=headers, **options)
            except httpx2.TransportError:
                time.sleep(0.1)
                continue
            in_flight = answer.status_code == 409 and "in-flight" in answer.text
            if answer.status_code in (429, 502, 503, 504, 507) or in_flight:
                time.sleep(0.2)
                continue
            if answer.status_code >= 300 and answer.status_code not in accept:
                raise Broken(f"{method} {path} → {answer.status_code}: {answer.text[:500]}")
            return answer.json()
        raise Broken(f"{method} {path} was not answered in time")


def submit_batches(
    caller: Caller, name: str, batches: Sequence[bytes], model: Mapping[str, Any] = MODEL
) -> list[str]:
    """Create a model, submit all batches at once, and return the ids of their jobs."""
    caller.call("POST", "/v1/models", f"{name}-model", json={**model, "name": name})
    headers = {"Content-Type": "application/zip"}
    jobs = []
    for number, content in enumerate(batches):
        path, key = f"/v1/models/{name}/tasks", f"{name}-{number}"
        jobs.append(
            str(caller.call("POST", path, key, content=content, headers=headers)["job"]["id"])
        )
    return jobs


def wait_until_succeeded(
    caller: Caller, job: str, lost: Callable[[str], object] | None = None
) -> None:
    """Wait until a job has succeeded.

    Args:
        lost: called with a job that failed at its third strike, which is then retried; None: no job
            may fail.

    Raises:
        Broken: the job ended in another way.
    """
    while True:
        found = caller.call("GET", f"/v1/jobs/{job}")
        if lost is not None and found["state"] == "failed" and found["error"]["kind"] == "lost":
            lost(job)
            # Idempotent by state: 409 says that an earlier call, whose answer was lost, did it.
            caller.call("POST", f"/v1/jobs/{job}/retry", accept=(409,))
        elif found["is_terminal"]:
            if found["state"] != "succeeded":
                raise Broken(f"{job} ended {found['state']}: {found['error']}")
            return
        time.sleep(0.2)


def go_through_standings(
    caller: Caller, name: str, batches: Sequence[bytes], lost: Callable[[str], object]
) -> None:
    """Bring a model through every standing of the lineage.

    Two batches are learned, the second is rolled back, and the third is held because it lacks the
    second. The second is learned again, the third is retried, and production follows again.

    Raises:
        Broken: a step had another result.
    """
    first, second = submit_batches(caller, name, batches[:2])
    for job in (first, second):
        wait_until_succeeded(caller, job, lost)
    path, again = (
        f"/v1/models/{name}",
        (409,),
    )  # 409: an earlier call, whose answer was lost, did it
    caller.call(
        "POST",
        f"{path}/aliases/production/rollback",
        accept=again,
        json={"version": 1, "reason": "worse"},
    )
    headers = {"Content-Type": "application/zip"}
    held = caller.call("POST", f"{path}/tasks", f"{name}-2", content=batches[2], headers=headers)[
        "job"
    ]["id"]
    wait_until_succeeded(caller, held, lost)
    require_outcome(caller, held, "held")
    relearned = caller.call("POST", f"{path}/tasks/2/relearn", accept=again)
    if "id" not in relearned:
        relearned = {"id": caller.call("GET", f"{path}/tasks/2")["job"]}
    wait_until_succeeded(caller, relearned["id"], lost)
    require_outcome(caller, relearned["id"], "published")
    retried = caller.call("POST", f"/v1/jobs/{held}/retry", accept=again)
    if "id" not in retried:
        retried = {"id": caller.call("GET", f"{path}/tasks/3")["job"]}
    wait_until_succeeded(caller, retried["id"], lost)
    require_outcome(caller, retried["id"], "published")
    caller.call("POST", f"{path}/aliases/production/follow")
    shown = caller.call("GET", path)
    if (shown["line_head"], shown["production_follows"], shown["attention"]) != (MENDED, True, []):
        raise Broken(f"{name} is not mended: {shown}")
    standings = [task["standing"] for task in caller.call("GET", f"{path}/tasks")["items"]]
    if standings != ["learned"] * BATCHES:
        raise Broken(f"the tasks of {name} stand as {standings}")


def require_outcome(caller: Caller, job: str, outcome: str) -> None:
    """Raise Broken unless a job's version was published, or held, as expected."""
    found = caller.call("GET", f"/v1/jobs/{job}")
    if found["outcome"] != outcome:
        raise Broken(f"the version of {job} is {found['outcome']} and not {outcome}")


def check_invariants(
    site: Site,
    models: Sequence[str],
    jobs: int,
    others: Mapping[str, int] | None = None,
    retried: Collection[str] = (),
    mended: Sequence[str] = (),
) -> int:
    """Check the invariants of a site that has ended, and return the number of compared versions.

    Versions are compared bit for bit.

    Args:
        models: models that learned all batches; "undisturbed", whose parts all must have, is among
            them.
        jobs: total number of accepted jobs.
        others: number of accepted batches for each of the other models.
        retried: models one of whose jobs failed at its third strike. The other jobs did not wait
            for its retry, so batches may have been learned in another order. Such models are not
            compared.
        mended: models that went through `go_through_standings`; "mended-undisturbed" is among them.

    Raises:
        Broken: something was lost, doubled, changed or left over.
    """
    settings = site.settings()
    db, store = Database(settings.resolved_database_url), open_object_store(settings)
    try:
        require_nothing_left(site, db, store)
        found = {name: list_versions_with_parts(db, name) for name in models}
        with db.read() as session:
            tasks = session.scalar(select(func.count()).select_from(Task))
        wanted, compared = found["undisturbed"], 0
        for name, made in found.items():
            if [number for number, _ in made] != list(range(BATCHES + 1)):
                raise Broken(f"{name} has the versions {[number for number, _ in made]}")
            learned, in_order = list_tasks_in_learning_order(db, name), list(range(1, BATCHES + 1))
            if sorted(learned) != in_order or (learned != in_order and name not in retried):
                raise Broken(f"{name} learned its tasks in the order {learned}")
            if learned != in_order:
                continue
            for (number, parts), (_, same) in zip(made, wanted, strict=True):
                if parts != same:
                    raise Broken(f"version {number} of {name} differs from the undisturbed one")
                compared += 1
        for name in mended:
            made = list_versions_with_parts(db, name)
            if made != list_versions_with_parts(db, "mended-undisturbed"):
                raise Broken(f"{name} differs from the undisturbed one: {made}")
            if len(made) != MENDED + 1 or made[4][1] != made[2][1]:
                raise Broken(f"what {name} learned again differs from what it had learned before")
            compared += len(made)
        for name, accepted in (others or {}).items():
            numbers = [number for number, _ in list_versions_with_parts(db, name)]
            if numbers != list(range(accepted + 1)):
                raise Broken(
                    f"{name}: {accepted} batches were accepted, and its versions are {numbers}"
                )
        if tasks != jobs:
            raise Broken(f"{jobs} batches were accepted and {tasks} tasks are there")
        return compared
    finally:
        db.close()


def require_nothing_left(site: Site, db: Database, store: ObjectStorage) -> None:
    """Sweep a site that has ended, and require that nothing is left over.

    Raises:
        Broken: a job is leased, or a snapshot, archive, blob or scratch folder is left over.
    """
    settings = site.settings()
    blobs = Blobs(store, settings.make_folder("cache"))
    sweep.run_sweep(db, store, blobs, settings, sweep.SweepOptions(0.0, whole=True))
    store.remove_incomplete_objects(0.0)  # nothing is under way any more
    with db.read() as session:
        leased = session.scalar(select(func.count()).where(Job.state.in_(sorted(LEASED))))
    if leased:
        raise Broken(f"{leased} jobs are still leased")
    left = [
        info.key for kind in ("snapshots/", "anytime/", "archives/") for info in store.list(kind)
    ]
    with db.read() as session:
        stored = [info.key.rpartition("/")[2] for info in store.list("blobs/")]
        left += set(stored) - references.find_digests_still_in_use(session, stored)
    for name in (API, *WORKERS):
        left += [
            str(p) for folder in ("spool", "work") for p in (site.data(name) / folder).glob("*")
        ]
        left += [str(p) for p in (site.data(name) / "cache").glob("blobs/*/.*")]
    left += [str(p) for p in (site.data(API) / "store" / ".incoming").glob("*")]
    if left:
        raise Broken(f"left over: {', '.join(left[:10])}")


def list_tasks_in_learning_order(db: Database, model: str) -> list[int]:
    """Return the numbers of a model's tasks, in the order of the versions that learned them."""
    with db.read() as session:
        query = select(Version.task_number).join(Model, Model.id == Version.model_id)
        mine = query.where(Model.name == model, Version.task_number.is_not(None))
        return [
            int(number)
            for number in session.scalars(mine.order_by(Version.number))
            if number is not None
        ]


def list_versions_with_parts(db: Database, model: str) -> list[tuple[int, list[tuple[str, str]]]]:
    """Return version numbers in order, each with (name, sha256) of its parts."""
    with db.read() as session:
        query = (
            select(Version.number, VersionPart.name, VersionPart.sha256)
            .join(Model, Model.id == Version.model_id)
            .outerjoin(VersionPart, VersionPart.version_id == Version.id)
            .where(Model.name == model)
            .order_by(Version.number, VersionPart.position)
        )
        rows = session.execute(query).all()
    numbers = sorted({row.number for row in rows})
    return [
        (n, [(row.name, row.sha256) for row in rows if row.number == n and row.name])
        for n in numbers
    ]


@contextmanager
def run_site(folder: Path, size: str, environment: Mapping[str, str]) -> Iterator[Site]:
    """Run a site whose processes end afterwards in any case."""
    made = Site(folder, environment, size == "large")
    try:
        yield made
    finally:
        for process in made.all():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
