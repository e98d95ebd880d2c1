"""A service without its API: a database, a store and real worker processes that tests disturb.

Batches are submitted by the functions that the API calls. One worker, the standing one, serves all
tests of the session. A test that ends it leaves the next one to `Backend.standing_worker`, which
starts another. Whether a fault hits at the right moment never depends on speed: points of
`core.failpoints` kill or hold a process.
"""

import errno
import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import select, update

from core.database.session import Database
from core.database.states import TERMINAL, JobAction
from core.database.tables import AccessKey, Alias, Job, StoredJobEvent, Task, Version, VersionPart
from core.ingest.inspect import summarise_archive_and_digest_content
from core.ingest.limits import ArchiveLimits
from core.jobs import jobs
from core.keys.keys import ensure_admin_key_and_write_file
from core.models import models
from core.recipe.catalogue import load_recipe_catalogue
from core.requests.actor import Actor
from core.requests.resources import UseCaseResources
from core.settings import Settings
from core.storage import Blobs, open_object_store
from core.tasks import validations
from core.tasks.submission import BatchSubmission
from core.tasks.submitted_batch import SpooledBatch
from core.upkeep import sweep
from tests.api.conftest import empty_database
from tests.descendants import list_descendants
from tools.service import link_shared_test_catalogue

__all__ = ["empty_database"]

sys.path.append(str(Path(__file__).parent))  # for the campaign, which is a command too

from archives import build_archive
from running_site import Site
from upload_sites import run_apis

ROOT = Path(__file__).parents[2]
EMBEDDED = ("-m", "worker.loop")
MEMORY_BYTES = 200_000_000
"""Memory limit of one job."""
RECIPE: dict[str, Any] = {"method": {"name": "er", "buffer": 20}, "epochs": 8, "batch_size": 8}
"""A short training by a method that has state: replay buffer and generators."""
ENDLESS = {"epochs": 10_000}
"""A training of minutes, whose end no test waits for."""
PATIENCE_S = 240.0
"""Time limit for a condition, or for the end of a process, on a busy machine."""
Digests = list[list[tuple[str, str]]]


class Backend:
    """One data directory and the processes on it.

    Args:
        environment: settings of all workers besides those of every test here.
        worker: the arguments of Python that start the standing worker.
    """

    def __init__(
        self,
        folder: Path,
        catalogue: dict[str, Any],
        schema: Path,
        environment: dict[str, str],
        worker: Sequence[str] = EMBEDDED,
    ) -> None:
        self.folder = folder
        self.points = folder / "points"
        self.points.mkdir(parents=True, exist_ok=True)
        link_shared_test_catalogue(folder)
        shutil.copy(schema, folder / "perennial.db")
        self.environment = {
            "PERENNIAL_DATA_DIR": str(folder), "PERENNIAL_KILL_POINTS": str(self.points),
            "PERENNIAL_THREADS": "1", "PERENNIAL_LEASE_S": "6",
            "PERENNIAL_CHORES_S": "0.3", "PERENNIAL_SNAPSHOT_S": "1000", "PERENNIAL_ANYTIME_S": "0.1",
            "PERENNIAL_JOB_MEMORY_BYTES": str(MEMORY_BYTES), "PERENNIAL_WEBHOOK_ALLOW": "127.0.0.0/8",
            **environment,
        }  # fmt: skip
        fields = {
            name.removeprefix("PERENNIAL_").lower(): v for name, v in self.environment.items()
        }
        fields.pop("kill_points")
        self.settings = Settings.model_validate(fields)
        self.db = Database(self.settings.resolved_database_url)
        self.store = open_object_store(self.settings)
        self.store.create_folder_or_bucket()
        self.catalogue = catalogue
        ensure_admin_key_and_write_file(self.db, folder)
        with self.db.read() as session:
            key = session.execute(select(AccessKey)).scalars().first()
            assert key is not None
            self.actor = Actor(key.owner_id, key.id, "admin")
        self._command, self._standing = worker, None
        self._names = (f"m{number}" for number in itertools.count())

    def close(self) -> None:
        """End the standing worker and the connections."""
        if self._standing is not None:
            end_worker(self._standing)
        self.db.close()

    # What people ask of the API.

    def create(self, **given: Any) -> str:
        """Create a class-scenario model of 8-pixel images, and return its id."""
        shape = {
            "architecture": {"name": "mlp", "hidden": [16]},
            "image": {"size": 8, "channels": 3},
        }
        body = {"name": next(self._names), "scenario": "class", **shape, "recipe": RECIPE, **given}
        body["gate"] = {
            "checks": "off",
            **given.get("gate", {}),
        }  # these tests are about jobs that end
        blobs = Blobs(self.store, self.settings.make_folder("cache"))
        answer, _ = models.create_model(
            UseCaseResources(self.db, blobs, self.catalogue), self.actor, body
        )
        return str(answer["id"])

    def submit(self, model: str, data: bytes, recipe: dict[str, Any] | None = None) -> str:
        """Make a batch the next task, and return the id of its job."""
        batch = self._batch(data, recipe or {})
        made = (
            BatchSubmission(self.db, self.store, self.catalogue, self.actor, model, batch)
            .submit_as_next_task()
            .response
        )
        return str(made["job"]["id"])

    def check(self, model: str, data: bytes) -> str:
        """Have a batch checked as a whole, and return the id of the job."""
        batch = self._batch(data, {})
        asked = BatchSubmission(self.db, self.store, self.catalogue, self.actor, model, batch)
        return validations.queue_batch_validation(asked).job

    def _batch(self, data: bytes, recipe: dict[str, Any]) -> SpooledBatch:
        path = self.settings.make_folder("spool") / f"{time.monotonic_ns()}.zip"
        path.write_bytes(data)
        sha256, directory = (
            hashlib.sha256(data).hexdigest(),
            summarise_archive_and_digest_content(
                path, "zip", ArchiveLimits.from_settings(self.settings)
            ),
        )
        return SpooledBatch(path, sha256, len(data), directory, None, recipe)

    def act(self, job_id: str, action: str) -> None:
        """Cancel, pause or resume a job."""
        jobs.apply_job_action(self.db, self.actor, job_id, JobAction(action))

    # Workers, and what is done to them.

    def standing_worker(self) -> psutil.Popen:
        """Return the worker that serves all tests; start it if necessary."""
        if self._standing is None or self._standing.poll() is not None:
            self._standing = self._start(self._command)
        return self._standing

    @contextmanager
    def worker(self, **environment: str) -> Iterator[psutil.Popen]:
        """Start another worker that runs until the block ends."""
        process = self._start(EMBEDDED, **environment)
        try:
            yield process
        finally:
            end_worker(process)

    def _start(self, arguments: Sequence[str], **environment: str) -> psutil.Popen:
        with (self.folder / "worker.log").open("ab") as log:
            return psutil.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env={**os.environ, **self.environment, **environment},
                stdout=log,
                stderr=log,
            )

    def arm(self, point: str, number: int | None = None) -> Path:
        """Kill the next process that reaches a point, or send it another signal."""
        armed, new = self.points / point, self.points / ".new"
        new.write_text("" if number is None else str(int(number)))
        return new.replace(armed)

    def hold_job(
        self, model: str, data: bytes, recipe: dict[str, Any] | None = None
    ) -> tuple[str, psutil.Process]:
        """Send a batch, and hold its job before its first step.

        Return the job and the process that learns it.
        """
        return self.hold(lambda: self.submit(model, data, recipe))

    def hold(self, begin: Callable[[], Any]) -> tuple[Any, psutil.Process]:
        """Call `begin`, which lets a job run, and hold its process before its first step.

        Return the answer of `begin` and the process.
        """
        armed = self.arm("job-train", signal.SIGSTOP)
        answer, worker = begin(), self.standing_worker()

        def list_stopped_processes() -> list[psutil.Process]:
            if armed.exists():
                return []
            return [p for p in list_descendants(worker.pid) if p.status() == psutil.STATUS_STOPPED]

        found: list[psutil.Process] = self.until(list_stopped_processes)
        return answer, found[0]

    def freeze(self, worker: psutil.Popen, point: str, begin: Callable[[], Any]) -> Any:
        """Call `begin`, and stop the worker when one of its threads is at the point.

        Return the answer of `begin`. A signal from the point itself could stop another thread
        during a write, which locks SQLite for all. The thread therefore waits at the point, reading
        its file, a pipe. The test writes while the process stops.
        """
        pipe = self.points / point
        os.mkfifo(pipe)
        answer = begin()

        def open_where_read() -> int | None:
            try:
                return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return None

        descriptor = self.until(open_where_read)
        with self.db.write():
            worker.suspend()
        os.write(descriptor, b"0")  # the signal that changes nothing
        os.close(descriptor)
        pipe.unlink()
        return answer

    def release_stopping(self, process: psutil.Process) -> None:
        """Release a held process once its worker has asked it to stop.

        It then stops at its first step.
        """
        self.until(lambda: self.has_logged("job process is asked to stop", pid=process.pid))
        process.resume()

    def pause(self, model: str, data: bytes, recipe: dict[str, Any] | None = None) -> str:
        """Send a batch, and pause its job after one step; the job then has a snapshot."""
        job, process = self.hold_job(model, data, recipe)
        self.act(job, "pause")
        self.release_stopping(process)
        self.until(lambda: self.job(job).state == "paused")
        assert self.job(job).snapshot is not None
        return job

    def end_lease(self, job_id: str, at: float = 1.0) -> None:
        """Let the lease of a dead or frozen worker run out at a time, in Unix seconds.

        By default this time has passed.
        """
        with self.db.write() as session:
            session.execute(update(Job).where(Job.id == job_id).values(lease_until=at))

    def has_logged(self, event: str, **fields: Any) -> bool:
        """Return whether a worker has logged an event with these fields."""
        wanted = {"event": event, **fields}.items()
        lines = (
            line for line in self.log().splitlines() if line.startswith("{") and line.endswith("}")
        )
        return any(wanted <= json.loads(line).items() for line in lines if event in line)

    def log(self) -> str:
        """Return the output of the workers."""
        return (self.folder / "worker.log").read_text(errors="replace")

    # What has become of it.

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
        """Wait for `condition`, and return what it returned."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := condition():
                return found
            time.sleep(0.05)  # often enough; a look costs a tenth of that
        raise AssertionError(f"Not within {seconds} s. The workers' log:\n{self.log()[-6000:]}")

    def job(self, job_id: str) -> Job:
        with self.db.read() as session:
            return session.get_one(Job, job_id)

    def is_run_finished(self, job_id: str) -> Job:
        """Wait for a terminal state of a job, and return the job."""
        self.until(lambda: self.job(job_id).state in TERMINAL)
        return self.job(job_id)

    def digests(self, model: str) -> Digests:
        """Return (name, sha256) of every part of every version, in order."""
        with self.db.read() as session:
            query = (
                select(Version.number, VersionPart.name, VersionPart.sha256)
                .join(VersionPart, VersionPart.version_id == Version.id)
                .where(Version.model_id == model)
                .order_by(Version.number, VersionPart.position)
            )
            rows = session.execute(query).all()
        numbers = sorted({row.number for row in rows})
        return [
            [(row.name, row.sha256) for row in rows if row.number == number] for number in numbers
        ]

    def events(self, job_id: str) -> list[StoredJobEvent]:
        with self.db.read() as session:
            return list(
                session.scalars(
                    select(StoredJobEvent)
                    .where(StoredJobEvent.job_id == job_id)
                    .order_by(StoredJobEvent.id)
                )
            )

    def production(self, model: str) -> int:
        with self.db.read() as session:
            return session.get_one(Alias, (model, "production")).version

    def await_nothing_left(self, model: str) -> None:
        """Wait until a finished model has left nothing over.

        There must be no snapshot, best state, raw archive or scratch folder.
        """
        with self.db.read() as session:
            ids = {*session.scalars(select(Job.id).where(Job.model_id == model))}
            ids |= {*session.scalars(select(Task.id).where(Task.model_id == model))}

        def is_clean() -> bool:
            sweep.run_sweep(
                self.db,
                self.store,
                Blobs(self.store, self.settings.make_folder("cache")),
                self.settings,
            )  # as every worker does from time to time
            kinds = ("snapshots/", "anytime/", "archives/")
            left = [info.key for prefix in kinds for info in self.store.list(prefix)]
            left += [
                name for _, names, _ in os.walk(self.settings.make_folder("work")) for name in names
            ]
            return not any(one in name for name in left for one in ids)

        self.until(is_clean)


def end_worker(process: psutil.Popen) -> None:
    """End a worker, with SIGTERM if possible."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the catalogue of the learning code, which is made only once."""
    folder = tmp_path_factory.mktemp("catalogue")
    link_shared_test_catalogue(folder)
    return load_recipe_catalogue(Settings(data_dir=folder))


@pytest.fixture(scope="session")
def make_backend(catalogue: dict[str, Any], empty_database: Path) -> Callable[..., Backend]:
    """Return a function that makes a backend in a folder."""

    def build_backend(
        folder: Path, environment: dict[str, str] | None = None, **options: Any
    ) -> Backend:
        return Backend(folder, catalogue, empty_database, environment or {}, **options)

    return build_backend


@pytest.fixture
def backend(make_backend: Callable[..., Backend], tmp_path: Path) -> Iterator[Backend]:
    """Return a backend of one test, on SQLite and a folder."""
    made = make_backend(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def shared(
    make_backend: Callable[..., Backend], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """Return the backend whose standing worker serves all tests of the session.

    Each test has its own models.
    """
    made = make_backend(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def batches() -> list[bytes]:
    """Return two uploads of two classes each."""
    return [build_archive(0), build_archive(2)]


@pytest.fixture(scope="session")
def undisturbed(shared: Backend, batches: list[bytes]) -> Digests:
    """Return the part digests of the two batches, learned without any fault."""
    model = shared.create()
    jobs = [shared.submit(model, batch) for batch in batches]
    shared.standing_worker()
    assert [shared.is_run_finished(job).state for job in jobs] == ["succeeded"] * 2, shared.log()
    return shared.digests(model)


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return one API process over SQLite and a folder; each test uses up or deletes its uploads."""
    with run_apis(tmp_path_factory.mktemp("api"), "small", {}) as (found,):
        yield found


@pytest.fixture
def all_gone() -> Callable[[list[psutil.Process]], bool]:
    """Return a function that waits until processes have ended (zombies count as ended)."""

    def is_process_alive(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def wait_until_all_gone(processes: list[psutil.Process]) -> bool:
        end = time.monotonic() + PATIENCE_S
        while any(is_process_alive(process) for process in processes) and time.monotonic() < end:
            time.sleep(0.02)
        return not any(is_process_alive(process) for process in processes)

    return wait_until_all_gone
