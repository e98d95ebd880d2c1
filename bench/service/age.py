"""Measures the cost of an update as its model ages: updates of ten new classes each, or of more
images of known ones.

    python -m bench.service.age [--updates 60] [--methods analytic er] [--scenarios class data]
        [--side 32]

Each batch is uploaded to the API and learned by a worker, both in this process; the job runs in a
process of its own, on one thread. The store is a folder that gives out no local files, so that its
requests are those that S3 would get. With `PERENNIAL_DATABASE_URL` (an empty database) and
`PERENNIAL_STORE_URL`, updates run on PostgreSQL and S3. Printed for update 2, 5, 10 and every tenth, of the worker's
part alone: seconds; CPU seconds of the job process and of the worker; SQL statements; requests to
the store, and those of each kind; bytes that the version adds; bytes in the store. Then the last
updates over those around update 10, medians of three. Images are noise around a picture of their
class.
"""

import argparse
import io
import logging
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from sqlalchemy import Engine, event, select
from starlette.testclient import TestClient

from api.app import create_app
from core.database.migrate import upgrade_schema
from core.database.session import Database
from core.database.tables import Job, Version
from core.processes.garbage import exclude_existing_objects_from_gc
from core.settings import Settings
from tools.service import link_shared_test_catalogue
from worker.loop import Worker

CLASSES = 10
PER_CLASS = 30
SHOWN = {2, 5, 10}
FIRST = 10
"""The update that others are compared with."""
RECIPES: dict[str, dict[str, Any]] = {
    "analytic": {"method": "analytic"},
    "er": {"method": "er", "epochs": 1},
}
BASE = "perennial/resnet20-cifar100"
NAMES = ("seconds", "job_cpu_s", "worker_cpu_s", "statements", "requests", "new_bytes")


@dataclass(frozen=True)
class UpdateCost:
    """Cost of one update: seconds, statements, store requests and bytes."""

    seconds: float
    job_cpu_s: float
    worker_cpu_s: float
    statements: int
    requests: int
    new_bytes: int
    total_bytes: int


class RequestCountingStore:
    """Object store without local files that counts its requests by kind."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return repr(self.inner)

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.inner, name)
        if name in ("put_file", "put_bytes", "read", "stat", "delete", "list"):
            self.counts[name] += 1
        return operation

    def get_local_path(self, _key: str) -> Path | None:
        """Return None, as the S3 store does, which has no local files."""
        return None


class UpdateCostBench:
    """A model, and the worker that updates it, to measure how the cost of updates grows."""

    def __init__(
        self, folder: Path, method: str, scenario: str, side: int, base: str = BASE
    ) -> None:
        settings = Settings(data_dir=folder, auth="off", threads=1, broker_url="")
        link_shared_test_catalogue(folder)
        db = Database(settings.resolved_database_url)
        upgrade_schema(db)
        db.close()
        self._db = Database(settings.resolved_database_url)
        self._client = TestClient(create_app(settings), base_url="http://127.0.0.1:8000")
        self._client.__enter__()
        logging.getLogger().setLevel(logging.WARNING)  # between the rows of a table
        self._worker = Worker(settings, ring=lambda _job: None)
        self._store = RequestCountingStore(self._worker.store)
        self._worker.store = self._store
        self._worker.prepare_worker()
        exclude_existing_objects_from_gc()  # as API and worker do after their start
        self._scenario, self._side = scenario, side
        self._model = f"aging-{method}-{scenario}-{side}"
        model = {
            "name": self._model,
            "scenario": scenario,
            "base": base,
            "recipe": RECIPES[method],
            "gate": {"checks": "off"},
        }
        response = self._client.post("/v1/models", json=model)
        assert response.status_code == 201, response.text

    def learn_random_batch_and_measure_cost(self, number: int) -> UpdateCost:
        """Submit a batch of random images and learn it; return the update's cost."""
        return self.learn_batch_and_measure_cost(
            make_random_npz_batch(number, self._scenario, self._side)
        )

    def learn_batch_and_measure_cost(self, archive: bytes) -> UpdateCost:
        """Submit a batch and learn it; return the update's cost."""
        response = self._client.post(
            f"/v1/models/{self._model}/tasks",
            content=archive,
            headers={"Content-Type": "application/octet-stream"},
        )
        assert response.status_code == 202, response.text
        return self._run_waiting_job_and_measure_cost()

    def apply_edit_and_measure_cost(self, operations: list[dict[str, Any]]) -> UpdateCost:
        """Submit an edit and make its version; return the cost."""
        response = self._client.post(
            f"/v1/models/{self._model}/edits", json={"operations": operations}
        )
        assert response.status_code == 202, response.text
        return self._run_waiting_job_and_measure_cost()

    def _run_waiting_job_and_measure_cost(self) -> UpdateCost:
        """Let the worker run the waiting job, and return its cost."""
        zygote = psutil.Process(self._worker.ensure_fork_server_running().pid)
        current_process = psutil.Process()
        self._store.counts.clear()
        cpu, own_cpu_before, begin = (
            _get_cpu_seconds(zygote),
            _get_cpu_seconds(current_process),
            time.perf_counter(),
        )
        with _count_sql_statements() as counted:
            self._worker.run_jobs(lambda: False)
        seconds = time.perf_counter() - begin
        job_cpu_s, own_used = (
            _get_cpu_seconds(zygote) - cpu,
            _get_cpu_seconds(current_process) - own_cpu_before,
        )
        with self._db.read() as session:
            job = session.scalars(select(Job).order_by(Job.place.desc()).limit(1)).one()
            assert job.state == "succeeded", (job.state, job.error)
            named = session.scalar(select(Version.bytes_new).where(Version.job_id == job.id))
        return UpdateCost(
            seconds,
            job_cpu_s,
            own_used,
            counted[0],
            sum(self._store.counts.values()),
            named or 0,
            self._count_stored_bytes(),
        )

    def format_request_counts(self) -> str:
        """Format the number of store requests of the last update, by kind."""
        return " ".join(f"{name} {count}" for name, count in sorted(self._store.counts.items()))

    def close(self) -> None:
        """Stop the worker and the API of the measured stream."""
        self._worker.close_worker()
        self._client.__exit__(None, None, None)
        self._db.close()

    def _count_stored_bytes(self) -> int:
        return sum(info.size for info in self._store.inner.list(""))


def make_random_npz_batch(number: int, scenario: str, side: int) -> bytes:
    """Build an npz batch of `PER_CLASS` random images of each of ten classes."""
    first = 0 if scenario == "data" else CLASSES * (number - 1)
    draw = np.random.default_rng(number)
    images, labels = [], []
    for label in range(first, first + CLASSES):
        picture = np.random.default_rng(100_000 + label).integers(40, 216, (4, 4, 3))
        picture = picture.repeat(side // 4, 0).repeat(side // 4, 1)
        noise = draw.normal(0, 40, (PER_CLASS, side, side, 3))
        images.append((picture + noise).clip(0, 255).astype(np.uint8))
        labels += [label] * PER_CLASS
    out = io.BytesIO()
    np.savez(out, images=np.concatenate(images), labels=np.array(labels))
    return out.getvalue()


@contextmanager
def _count_sql_statements() -> Iterator[list[int]]:
    """Count SQL statements of this process in a list of one number."""
    counted = [0]

    def count_statement(*_: object) -> None:
        counted[0] += 1

    event.listen(Engine, "before_cursor_execute", count_statement)
    try:
        yield counted
    finally:
        event.remove(Engine, "before_cursor_execute", count_statement)


def _get_cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def run_stream_and_print_update_costs(method: str, scenario: str, updates: int, side: int) -> None:
    """Run one stream of updates, and print the cost of every tenth one."""
    print(f"\n{method}, scenario {scenario}, {side} px, {CLASSES * PER_CLASS} images a batch")
    print(
        "| update | s | job CPU s | worker CPU s | SQL | store | by kind | new bytes | stored "
        "bytes |"
    )
    print("|---:|---:|---:|---:|---:|---:|---|---:|---:|")
    costs: list[UpdateCost] = []
    with tempfile.TemporaryDirectory() as folder:
        stream = UpdateCostBench(Path(folder), method, scenario, side)
        try:
            for number in range(1, updates + 1):
                one = stream.learn_random_batch_and_measure_cost(number)
                costs.append(one)
                if number in SHOWN or number % 10 == 0 or number == updates:
                    print(
                        f"| {number} | {one.seconds:.2f} | {one.job_cpu_s:.2f} | "
                        f"{one.worker_cpu_s:.2f} | {one.statements} | {one.requests} | "
                        f"{stream.format_request_counts()} | {one.new_bytes:,} | {one.total_bytes:,} |",
                        flush=True,
                    )
        finally:
            stream.close()
    if updates > FIRST + 1:
        ratios = {
            name: _compute_median_update_cost(costs[-3:], name)
            / _compute_median_update_cost(costs[FIRST - 2 : FIRST + 1], name)
            for name in NAMES
        }
        print(
            "last ÷ update 10: "
            + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        )


def _compute_median_update_cost(costs: list[UpdateCost], name: str) -> float:
    return float(statistics.median(getattr(one, name) for one in costs))


def main() -> None:
    """Measure how the cost of updates grows with the number of tasks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--methods", nargs="+", choices=sorted(RECIPES), default=sorted(RECIPES))
    parser.add_argument(
        "--scenarios", nargs="+", choices=("class", "data"), default=["class", "data"]
    )
    parser.add_argument("--side", type=int, default=32)
    args = parser.parse_args()
    for method in args.methods:
        for scenario in args.scenarios:
            run_stream_and_print_update_costs(method, scenario, args.updates, args.side)


if __name__ == "__main__":
    main()
