r"""Eight workers against one: jobs per hour when the jobs themselves need no CPU (goal: 7.5 times
as many).

    python -m bench.service.workers --database postgresql+psycopg://… --broker redis://…
        [--workers 8] [--seconds 8]

Real Celery workers over PostgreSQL, Redis and a folder store, real claims, leases, heartbeats,
rings and publishing; only the learning is simulated: the zygote is replaced by one whose children
sleep for `--seconds` and then hand in the result of a job that learned nothing. Each job is of a
model of its own, so all may run at once. The sleep is long beside the CPU that a job takes to claim
and publish, or the cores of the machine would be what is measured. The clock runs from the first
claim to the last publish, as the database has them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis
from sqlalchemy import func, select, text
from sqlalchemy.engine import make_url

from core.contract.manifest import Manifest
from core.database.migrate import upgrade_schema
from core.database.session import Database
from core.database.tables import Alias, Job, Model, Owner, Task, Version
from core.ids import new_id
from core.settings import Settings
from core.storage import Blobs, open_object_store
from tools import service

GOAL = 0.9375
"""Of the ideal, as many times as there are workers: 7.5 of 8."""
ZYGOTE = "bench.service.sleeping_zygote"


def main() -> int:
    """Measure how the throughput of jobs grows with the number of workers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--database", required=True, help="a PostgreSQL server where databases may be made"
    )
    parser.add_argument("--broker", required=True, help="a Redis that nobody else uses")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8.0, help="that a simulated job sleeps")
    parser.add_argument("--jobs", type=int, default=6, help="per worker")
    options = parser.parse_args()
    per_hour = []
    for count in (1, options.workers):
        jobs = options.jobs * count
        took = _measure_seconds_to_finish_jobs(
            options.database, options.broker, count, jobs, options.seconds
        )
        per_hour.append(jobs / took * 3600)
        ideal = 3600 * count / options.seconds
        print(
            f"{count} workers: {jobs} jobs of {options.seconds:g} s in {took:.1f} s = "
            f"{per_hour[-1]:.0f} per "
            "hour"
            f" ({per_hour[-1] / ideal:.0%} of what sleeping alone allows); load average "
            f"{os.getloadavg()[0]:.1f}",
            flush=True,
        )
    ratio = per_hour[1] / per_hour[0]
    print(f"ratio {ratio:.2f} (goal ≥ {options.workers * GOAL:.1f})")
    return 0 if ratio >= options.workers * GOAL else 1


def _measure_seconds_to_finish_jobs(
    server: str, broker: str, workers: int, jobs: int, seconds: float
) -> float:
    """Return the seconds from the first claim to the last published version."""
    name = f"perennial_bench_workers_{os.getpid()}_{workers}"
    plain = make_url(server).set(drivername="postgresql").render_as_string(hide_password=False)
    with (
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(plain, autocommit=True) as connection,
    ):
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        url = make_url(server).set(database=name).render_as_string(hide_password=False)
        db = Database(url)
        try:
            upgrade_schema(db)
            settings = Settings(
                data_dir=Path(folder), database_url=url, store_url=f"file://{folder}/store"
            )
            with redis.Redis.from_url(broker) as client:
                client.flushdb()
            with _run_benchmark_workers(settings, broker, workers, seconds):
                time.sleep(2)  # the last zygote is as ready as the first
                _insert_decoded_tasks_and_jobs(db, settings, jobs)
                return _wait_for_jobs_and_get_seconds(db, jobs, seconds)
        finally:
            db.close()
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@contextmanager
def _run_benchmark_workers(
    settings: Settings, broker: str, count: int, seconds: float
) -> Iterator[None]:
    processes, logs = [], []
    for number in range(count):
        data = settings.data_dir / f"worker-{number}"
        data.mkdir()
        logs.append(data / "log")
        environment = {
            **os.environ,
            "PERENNIAL_DATA_DIR": str(data),
            "PERENNIAL_DATABASE_URL": settings.database_url,
            "PERENNIAL_STORE_URL": settings.store_url,
            "PERENNIAL_BROKER_URL": broker,
            "BENCH_SLEEP_S": str(seconds),
        }
        command = [sys.executable, "-m", "bench.service.sleeping_worker", f"bench-{number}@%h"]
        with logs[-1].open("wb") as log:
            processes.append(
                subprocess.Popen(command, cwd=service.ROOT, env=environment, stdout=log, stderr=log)
            )
    try:
        end = time.monotonic() + 120
        while not all("worker ready" in log.read_text(errors="replace") for log in logs):
            if time.monotonic() > end or any(process.poll() is not None for process in processes):
                raise RuntimeError(
                    "\n".join(log.read_text(errors="replace")[-1500:] for log in logs)
                )
            time.sleep(0.2)
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


def _insert_decoded_tasks_and_jobs(db: Database, settings: Settings, count: int) -> None:
    """Insert models with one decoded task each, whose jobs the workers then find."""
    blobs = Blobs(open_object_store(settings), settings.make_folder("cache"))
    path = settings.data_dir / "dataset"
    path.write_bytes(b"never read")
    sha256, _ = blobs.put_file(path)
    with db.write() as session:
        now = db.now(session)
        owner = new_id("own")
        session.add(Owner(id=owner, name="bench", created_at=now))
        session.flush()
        for number in range(count):
            model, task = new_id("mdl"), new_id("tsk")
            session.add(
                Model(
                    id=model, owner_id=owner, name=f"bench-{number}", scenario="class",
                    architecture={"name": "small-cnn"}, image={"size": 8, "channels": 3}, base="random",
                    recipe={},
                    gate={}, keep_training_data=False, held_out="keep", warnings=[], next_task=2,
                    next_place=2,
                    created_at=now,
                )
            )  # fmt: skip
            session.flush()
            session.add(
                Version(
                    id=new_id("ver"), model_id=model, number=0, status="published",
                    gate={"passed": True, "checks": []}, bytes=0, bytes_new=0, created_at=now,
                    manifest=Manifest.from_json(
                        {
                            "version": 0, "tasks": [], "init": {"kind": "random", "seed": 0}, "normalise": None,
                            "scenario": "class", "architecture": {"name": "small-cnn"},
                            "image": {"size": 8, "channels": 3},
                        }
                    ),
                )
            )  # fmt: skip
            session.add(Alias(model_id=model, name="production", version=0, updated_at=now))
            session.add(
                Task(
                    id=task, model_id=model, number=1, sha256="0" * 64, bytes=0, media_type="zip",
                    classes={"a": 1},
                    n_train=1, n_held_out=0, report={}, train_sha256=sha256, warnings=[], created_at=now,
                )
            )  # fmt: skip
            session.flush()
            session.add(
                Job(
                    id=new_id("job"), model_id=model, owner_id=owner, task_id=task, task_number=1, place=1,
                    state="queued", recipe_override={}, recipe={"method": {"name": "finetune"}, "seed": 0},
                    progress={}, created_at=now,
                )
            )  # fmt: skip


def _wait_for_jobs_and_get_seconds(db: Database, count: int, seconds: float) -> float:
    end = time.monotonic() + 120 + count * seconds * 2
    while time.monotonic() < end:
        with db.read() as session:
            by_state = select(Job.state, func.count()).group_by(Job.state)
            states = dict(row.tuple() for row in session.execute(by_state))
            if states.get("succeeded") == count:
                return float(
                    session.scalar(select(func.max(Job.finished_at) - func.min(Job.started_at)))
                    or 0.0
                )
            if set(states) - {"queued", "running", "succeeded"}:
                failed_jobs = session.execute(
                    text("SELECT state, error FROM jobs WHERE error IS NOT NULL LIMIT 3")
                ).all()
                raise RuntimeError(f"{states}: {failed_jobs}")
        time.sleep(0.5)
    raise TimeoutError(json.dumps(states))


if __name__ == "__main__":
    sys.exit(main())
