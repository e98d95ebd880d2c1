"""A house without its API: database, store and worker processes, to be hurt in every way.

Jobs are submitted with the API's own use-cases; workers are real `python -m worker.loop` processes with
short leases. The reference is the same stream on a house that nobody touches.
"""

import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import select

from core.catalogue import load_catalogue
from core.db.session import Database
from core.db.states import TERMINAL, Action
from core.db.tables import Alias, Event, Job, Key, Part, Version
from core.ingest.inspect import inspect
from core.ingest.limits import Limits
from core.requests import jobs, models, validations
from core.requests.actor import Actor
from core.requests.keys import ensure_admin_key
from core.requests.submission import Batch, Submission
from core.settings import Settings
from core.store import Blobs, open_store
from core.work import sweep
from tests.api.conftest import empty_database
from tools.service import lend_catalogue

__all__ = ["empty_database"]

sys.path.append(str(Path(__file__).parent))  # for the campaign, which is a command too

from archives import archive

ROOT = Path(__file__).parents[2]
RECIPE: dict[str, Any] = {"method": {"name": "er", "buffer": 20}, "epochs": 150, "batch_size": 8}
"""Some seconds of training with a method that has state: replay buffer and generators."""


class House:
    """One data directory and what happens in it."""

    def __init__(
        self, folder: Path, catalogue: dict[str, Any], schema: Path, environment: dict[str, str]
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        lend_catalogue(folder)
        shutil.copy(schema, folder / "perennial.db")
        self.environment = {
            "PERENNIAL_DATA_DIR": str(folder),
            "PERENNIAL_THREADS": "1",
            "PERENNIAL_LEASE_S": "2",
            "PERENNIAL_POLL_S": "0.1",
            "PERENNIAL_CHORES_S": "0.3",
            "PERENNIAL_SNAPSHOT_S": "0.2",
            "PERENNIAL_ANYTIME_S": "0.1",
            **environment,
        }
        fields = {name.removeprefix("PERENNIAL_").lower(): v for name, v in self.environment.items()}
        self.settings = Settings.model_validate(fields)
        self.db = Database(self.settings.resolved_database_url)
        self.store = open_store(self.settings)
        self.store.prepare()
        self.catalogue = catalogue
        ensure_admin_key(self.db, folder)
        with self.db.read() as session:
            key = session.execute(select(Key)).scalars().first()
            assert key is not None
            self.actor = Actor(key.owner_id, key.id, "admin")
        self.model = self.create("m")

    def create(self, name: str) -> str:
        """A class-scenario model of 8-pixel images."""
        given = {
            "name": name,
            "scenario": "class",
            "architecture": {"name": "mlp", "hidden": [16]},
            "image": {"size": 8, "channels": 3},
            "recipe": RECIPE,
        }
        answer, _ = models.create(
            self.db, Blobs(self.store, self.settings.folder("cache")), self.catalogue, self.actor, given
        )
        return str(answer["id"])

    def submit(self, data: bytes, model: str = "", recipe: dict[str, Any] | None = None) -> str:
        """Make a batch the next task; the id of its job."""
        batch = self._batch(data, recipe or {})
        answer, _ = Submission(
            self.db, self.store, self.catalogue, self.actor, model or self.model, batch, None
        ).submit()
        return str(answer["job"]["id"])

    def check(self, data: bytes) -> str:
        """Have a batch checked whole; the id of its job."""
        batch = self._batch(data, {})
        answer, _ = validations.begin(
            Submission(self.db, self.store, self.catalogue, self.actor, self.model, batch, None)
        )
        return str(answer["id"])

    def _batch(self, data: bytes, recipe: dict[str, Any]) -> Batch:
        path = self.settings.folder("spool") / f"{time.monotonic_ns()}.zip"
        path.write_bytes(data)
        return Batch(
            path=path,
            sha256=hashlib.sha256(data).hexdigest(),
            bytes=len(data),
            directory=inspect(path, "zip", Limits.of(self.settings)),
            name=None,
            recipe=recipe,
        )

    @contextmanager
    def worker(self, module: str = "worker.loop", **environment: str) -> Iterator[psutil.Popen]:
        """A worker process; ended, and everything it started shown to be gone, at the end."""
        log = (self.folder / "worker.log").open("ab")
        process = psutil.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={**os.environ, **self.environment, **environment},
            stdout=log,
            stderr=log,
        )
        log.close()
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                try:
                    process.wait(30)
                except psutil.TimeoutExpired:
                    process.kill()
                    process.wait()

    def log(self) -> str:
        """What the workers wrote."""
        return (self.folder / "worker.log").read_text(errors="replace")

    def job(self, job_id: str) -> Job:
        with self.db.read() as session:
            return session.get_one(Job, job_id)

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait for `condition` and return what it returned."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"Not within {seconds} s. The workers' log:\n{self.log()[-6000:]}")

    def finished(self, job_id: str, seconds: float = 60.0) -> Job:
        """Wait for a terminal state."""

        def look() -> Job | None:
            job = self.job(job_id)
            return job if job.state in TERMINAL else None

        job: Job = self.until(look, seconds)
        return job

    def training(self, job_id: str) -> None:
        """Wait until a snapshot was registered: the job is in the middle of its training."""
        self.until(lambda: self.job(job_id).state == "running" and self.job(job_id).snapshot)

    def child(self, worker: psutil.Popen) -> psutil.Process:
        """The job process of a worker: what its zygote forked."""

        def look() -> psutil.Process | None:
            found = [p for z in worker.children() if "worker.zygote" in z.cmdline() for p in z.children()]
            return found[0] if found else None

        process: psutil.Process = self.until(look)
        return process

    def act(self, job_id: str, action: str) -> None:
        """Cancel, pause or resume, as the API does."""
        jobs.act(self.db, self.actor, job_id, Action(action))

    def sweep(self) -> None:
        """What every worker's chores do from time to time."""
        sweep.sweep(self.db, self.store, Blobs(self.store, self.settings.folder("cache")), self.settings)

    def digests(self, model: str = "") -> list[list[tuple[str, str]]]:
        """(name, sha256) of every part of every version, in order."""
        with self.db.read() as session:
            query = (
                select(Version.number, Part.name, Part.sha256)
                .join(Part, Part.version_id == Version.id)
                .where(Version.model_id == (model or self.model))
                .order_by(Version.number, Part.position)
            )
            rows = session.execute(query).all()
        numbers = sorted({row.number for row in rows})
        return [[(row.name, row.sha256) for row in rows if row.number == number] for number in numbers]

    def events(self, job_id: str) -> list[Event]:
        with self.db.read() as session:
            return list(
                session.execute(select(Event).where(Event.job_id == job_id).order_by(Event.id)).scalars()
            )

    def production(self) -> int:
        with self.db.read() as session:
            return session.get_one(Alias, (self.model, "production")).version

    def left_over(self) -> list[str]:
        """What a finished house must not have: snapshots, best states, raw archives, scratch folders."""
        objects = [
            i.key for prefix in ("snapshots/", "anytime/", "archives/") for i in self.store.list(prefix)
        ]
        return objects + [p.name for p in self.settings.folder("work").iterdir()]


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The catalogue of the learning code, made once."""
    folder = tmp_path_factory.mktemp("catalogue")
    lend_catalogue(folder)
    return load_catalogue(Settings(data_dir=folder))


@pytest.fixture(scope="session")
def make_house(catalogue: dict[str, Any], empty_database: Path) -> Callable[..., House]:
    """Makes a house in a folder."""

    def make(folder: Path, environment: dict[str, str] | None = None) -> House:
        return House(folder, catalogue, empty_database, environment or {})

    return make


@pytest.fixture
def house(make_house: Callable[..., House], tmp_path: Path) -> Iterator[House]:
    """A fresh house on SQLite and a folder."""
    made = make_house(tmp_path)
    yield made
    made.db.close()


@pytest.fixture(scope="session")
def batches() -> list[bytes]:
    """Two uploads of two classes each."""
    return [archive(0), archive(2)]


@pytest.fixture(scope="session")
def undisturbed(
    make_house: Callable[..., House], batches: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> list[list[tuple[str, str]]]:
    """The part digests of the two batches learned without any fault, and without any snapshot."""
    made = make_house(tmp_path_factory.mktemp("undisturbed"), {"PERENNIAL_SNAPSHOT_S": "1000"})
    jobs = [made.submit(batch) for batch in batches]
    with made.worker():
        for job in jobs:
            assert made.finished(job).state == "succeeded", made.log()
    made.db.close()
    return made.digests()


@pytest.fixture
def all_gone() -> Callable[[list[psutil.Process]], bool]:
    """Whether these processes end within five seconds (zombies count as ended)."""

    def wait(processes: list[psutil.Process]) -> bool:
        def lives(process: psutil.Process) -> bool:
            try:
                return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            except psutil.NoSuchProcess:
                return False

        end = time.monotonic() + 5
        while time.monotonic() < end:
            if not any(lives(p) for p in processes):
                return True
            time.sleep(0.02)
        return False

    return wait
