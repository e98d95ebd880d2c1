"""The metrics of a model with a large accuracy matrix, and what publishing costs at its end.

    python -m bench.service.metrics
        [--database postgresql+psycopg://postgres@127.0.0.1:5432/postgres]

Two models, of 100 versions and tasks and of 1,000, are written as rows (no training). A service
answers four clients, which ask the same again: the whole matrix of the first, a window of the
second. Then one client, whose answers must be computed again. Then versions are published by the
worker's own code, in turn on a model with 10 versions and on the one with 1,000; each is measured
on all tasks before it.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import psycopg
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from bench.service import load
from core.contract.figures import VersionFigures
from core.contract.jobs.job_result import MeasuredMatrixCell
from core.contract.manifest import Manifest
from core.database import migrate
from core.database.measurements import replace_manifest_figures_by_null
from core.database.session import Database
from core.database.tables import Model, Version
from core.publishing.job_measurements import NewVersionMeasurements, store_version_measurements
from core.publishing.publish import publish_or_hold_job_result
from core.scheduling import claim as claims
from core.settings import Settings
from core.storage import open_object_store
from tools import service

CLIENTS = 4
SECONDS = 8.0
ANEW = 10
PUBLISHED = 15
LABELS = ("cat", "dog")
Json = dict[str, Any]


def main() -> None:
    """Measure reading and publishing of accuracy matrices on a filled database."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", default="", help="a PostgreSQL server; default: SQLite")
    parser.add_argument("--sizes", default="100,1000", help="of the matrices that are asked for")
    parser.add_argument("--ends", default="10,1000", help="versions of the models that publish")
    options = parser.parse_args()
    sizes, ends = ([int(n) for n in text.split(",") if n] for text in (options.sizes, options.ends))
    with (
        tempfile.TemporaryDirectory() as folder,
        _create_temporary_database_url(options.database) as url,
    ):
        settings = Settings(data_dir=Path(folder) / "data", database_url=url, threads=1)
        db = Database(settings.resolved_database_url, statement_s=3600)
        migrate.upgrade_schema(db)
        began = time.perf_counter()
        for size in sorted({*sizes, *ends}):
            insert_model_with_measured_versions(db, size)
        if not url:
            # Otherwise the service's first reader waits for gigabytes.
            with db.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                # Half a million rows are new, which autovacuum analyzes within minutes.
                connection.exec_driver_sql("VACUUM ANALYZE")
        print(
            f"load average {os.getloadavg()[0]:.1f}; rows written in "
            f"{time.perf_counter() - began:.1f} s"
        )
        with service.run_temporary_service(
            settings.data_dir, {"PERENNIAL_DATABASE_URL": url}
        ) as running:
            for size in sizes:
                _print_metrics_times(running, size, "")
                if size > 100:
                    _print_metrics_times(
                        running, size, f"?from={size - 99}&to={size}&tasks={size - 99},{size}"
                    )
        if ends:
            _print_publishing_seconds(db, settings, ends)
        db.close()


@contextmanager
def _create_temporary_database_url(server: str) -> Iterator[str]:
    """Yield the URL of an empty database: PostgreSQL on a given server, or SQLite."""
    if not server:
        yield ""
        return
    name, url = f"perennial_metrics_{os.getpid()}", make_url(server)
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    yield url.set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def _print_metrics_times(running: service.RunningService, size: int, window: str) -> None:
    url = f"{running.url}/v1/models/m-{size}/metrics{window}"
    key = {"Authorization": f"Bearer {running.key}"}
    began = time.perf_counter()
    try:
        response = httpx2.get(url, headers=key, timeout=300)
    except httpx2.TimeoutException:
        print(
            f"GET metrics{window or ' (whole)'} of {size} × {size}: no answer in 300 s", flush=True
        )
        return
    alone = time.perf_counter() - began
    report = (
        f"GET metrics{window or ' (whole)'} of {size} × {size}: {response.status_code},"
        f" {len(response.content):,} bytes, alone {alone * 1e3:.0f} ms"
    )
    if response.status_code == 200 and alone < 20:
        before = get_service_cpu_seconds_so_far(running)
        load_result = load.measure_request_load(url, CLIENTS, SECONDS, key, warm_up=0)
        cpu_ms = (
            (get_service_cpu_seconds_so_far(running) - before) * 1e3 / len(load_result.latencies_ms)
        )
        report += (
            f"; {CLIENTS} clients p50 {load_result.p50_ms:.1f} ms, p99 {load_result.p99_ms:.1f} ms,"
            f" {load_result.per_s:.1f} per s, CPU {cpu_ms:.1f} ms each; "
            + _measure_and_format_uncached_time(running, url, key, size)
        )
    print(report, flush=True)


def _measure_and_format_uncached_time(
    running: service.RunningService, url: str, key: dict[str, str], size: int
) -> str:
    """Measure the seconds of a request for the accuracy matrix that cannot be cached."""
    times, before = [], get_service_cpu_seconds_so_far(running)
    for turn in range(ANEW):
        last = size + 1 + turn
        other = url.replace(f"to={size}", f"to={last}") if "to=" in url else f"{url}?to={last}"
        began = time.perf_counter()
        httpx2.get(other, headers=key, timeout=300).raise_for_status()
        times.append((time.perf_counter() - began) * 1e3)
    cpu_ms = (get_service_cpu_seconds_so_far(running) - before) * 1e3 / ANEW
    return f"computed again {statistics.median(times):.1f} ms, CPU {cpu_ms:.1f} ms"


def get_service_cpu_seconds_so_far(running: service.RunningService) -> float:
    """Return the CPU seconds that the service's processes have used so far."""
    processes = [
        p.cpu_times() for p in psutil.Process(running.process.pid).children(recursive=True)
    ]
    return float(sum(times.user + times.system for times in processes))


def _print_publishing_seconds(db: Database, settings: Settings, ends: list[int]) -> None:
    """Print the median seconds of publishing a version, by number of tasks in the model."""
    store = open_object_store(settings)
    store.create_folder_or_bucket()
    cases = [(size, 10**6) for size in ends] + [(ends[-1], ends[0] + 1)]
    times_by_case: list[list[float]] = [[] for _ in cases]
    last = {size: size for size in ends}
    folder = settings.data_dir / "result"
    for turn in range(PUBLISHED + 1):
        for (size, max_tasks), times in zip(cases, times_by_case, strict=True):
            last[size] += 1
            _insert_next_task_and_job(db, size, last[size])
            claim = claims.claim_job(db, "bench", 600.0)
            assert claim is not None
            _write_random_job_result(folder, last[size], max_tasks)
            began = time.perf_counter()
            publish_or_hold_job_result(db, store, claim, folder)
            if turn:
                times.append((time.perf_counter() - began) * 1e3)
    first = statistics.median(times_by_case[0])
    for (size, max_tasks), times in zip(cases, times_by_case, strict=True):
        median = statistics.median(times)
        description = (
            f"publish behind version {size}, measured on {min(size + 1, max_tasks)} tasks or more: "
            f"{median:.1f} ms"
        )
        print(f"{description}, {median / first:.2f} times the first")


def _write_random_job_result(folder: Path, task: int, max_tasks: int) -> None:
    """Write a made-up job result for a task, measured on at most `max_tasks` earlier tasks."""
    tasks = range(max(1, task - max_tasks + 1), task + 1)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "parts").mkdir(parents=True)
    parts = []
    for name, size in (("backbone.1", 1 << 20), ("head", 1 << 13)):
        (folder / "parts" / name).write_bytes(os.urandom(size))
        parts.append({"name": name, "type": name.partition(".")[0], "file": f"parts/{name}"})
    cells = [("base", task), ("parent", task), *(("new", n) for n in tasks)]
    document = {
        "parts": parts, "classes": list(LABELS), "heads": [], "steps": 3, "images": 24,
        "normalise": {"mean": [0.5], "std": [0.25]},
        "method": {"name": "finetune", "hyper": {}, "state": {}},
        "environment": {"torch": "2", "cpu_capability": "x", "threads": 1, "device": "cpu"},
        "trainable": 1, "parameters": 1,
        **_build_generated_job_measurements(tasks),
        "results": [
            {"version": v, "task": n, "correct": 100 + n % 50, "total": 150,
             "per_class": {"cat": [60, 75], "dog": [55, 75]}}
            for v, n in cells
        ],
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(document, sort_keys=True))


def _build_generated_job_measurements(tasks: range) -> Json:
    numbers = sorted(map(str, tasks))
    return {
        "update_norm": {"backbone": 1.2, "head": 0.8, "relative": 0.1},
        "drift": 2.5,
        "changes": {n: {"regressed": 3, "improved": 5, "total": 150} for n in numbers},
        "knn_probe": {"all": [80, 150], "tasks": {n: [80, 150] for n in numbers},
                      "before": {"base": [50, 150], "parent": [70, 150]}},
    }  # fmt: skip


def _insert_rows(table: str, session: Any, rows: list[Json]) -> None:
    names = list(rows[0])
    marks = (
        f"CAST(:{n} AS JSON)"
        if n in _JSON and session.bind.dialect.name == "postgresql"
        else f":{n}"
        for n in names
    )
    statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(marks)})"  # noqa: S608
    session.execute(text(statement), rows)


_JSON = {
    *(
        "architecture",
        "image",
        "base",
        "recipe",
        "gate",
        "warnings",
        "classes",
        "report",
    ),
    *("recipe_override", "progress"),
}


def insert_model_with_measured_versions(db: Database, size: int) -> None:
    """Insert a model with `size` versions and tasks, measured on all tasks."""
    model, empty = build_generated_model_id(size), "{}"
    with db.write() as session:
        if not session.execute(text("SELECT 1 FROM owners WHERE id = 'own_b'")).first():
            _insert_rows("owners", session, [{"id": "own_b", "name": "bench", "created_at": 0.0}])
        row = {
            "id": model, "owner_id": "own_b", "name": f"m-{size}", "scenario": "class", "created_at": 0.0,
            "fence": 0,
            "architecture": '{"name": "small-cnn"}', "image": '{"size": 32, "channels": 3}',
            "base": '"random"',
            "recipe": empty, "gate": '{"max_forgetting": 0.9, "min_acc": '
                '0.01}', "keep_training_data": False,
            "held_out": "keep", "warnings": "[]", "training_data_days": 7.0, "on_held": "stop",
            "on_rejected": "continue",
            "on_failed": "continue", "allow_lost_classes": False, "head": size, "production_follows": True,
            "next_task": size + 1, "next_place": size + 1, "next_version": size + 1,
        }  # fmt: skip
        _insert_rows("models", session, [row])
        aliases = ("production", "latest")
        _insert_rows(
            "aliases",
            session,
            [{"model_id": model, "name": n, "version": size, "updated_at": 0.0} for n in aliases],
        )
        _insert_rows(
            "tasks", session, [_build_task_row(size, n, "learned") for n in range(1, size + 1)]
        )
        for number in range(size + 1):
            _insert_version(session, size, number)


def _insert_version(session: Session, size: int, number: int) -> None:
    """Insert a version with its measurements, as publishing writes it."""
    model = session.get_one(Model, build_generated_model_id(size))
    tasks = range(1, number + 1)
    manifest = Manifest.from_json(
        {
            "format": 1,
            "version": number,
            "scenario": "class",
            "architecture": {"name": "small-cnn"},
            "image": {"size": 32, "channels": 3},
            "tasks": list(tasks),
            **(_build_generated_job_measurements(tasks) if number else {}),
        }
    )
    version = Version(
        id=f"ver_{size}_{number}",
        model_id=model.id,
        number=number,
        parent=number - 1 if number else None,
        task_number=number or None,
        status="published",
        gate={"passed": True, "checks": []},
        manifest=replace_manifest_figures_by_null(manifest),
        bytes=988_212,
        bytes_new=12_044,
        created_at=0.0,
    )
    session.add(version)
    session.flush()
    if number:
        cells = [("base", number), ("parent", number), *(("new", task) for task in tasks)]
        measured = [_build_accuracy_matrix_cell(which, number, task) for which, task in cells]
        figures = VersionFigures(**manifest.get_explicitly_set_field_values())
        store_version_measurements(
            session, model, version, NewVersionMeasurements(measured, figures, {}), set()
        )


def build_generated_model_id(size: int) -> str:
    """Return the id of the generated model with this number of versions."""
    return f"mdl_{size:0>26}"


def _build_accuracy_matrix_cell(which: str, version: int, task: int) -> MeasuredMatrixCell:
    correct = 100 + (version * 7 + task) % 50
    per_class = {"cat": [60, 75], "dog": [55, 75]}
    return MeasuredMatrixCell(
        version=which, task=task, correct=correct, total=150, per_class=per_class
    )


def _build_task_row(size: int, number: int, standing: str | None) -> Json:
    return {
        "id": f"tsk_{size}_{number}", "model_id": build_generated_model_id(size),
        "number": number, "name": f"week {number}",
        "sha256": "0" * 64, "bytes": 1, "media_type": "zip", "classes": '{"cat": 500, "dog": 500}',
        "n_train": 850,
        "n_held_out": 150, "report": "{}", "standing": standing, "stops": False, "warnings": "[]",
        "created_at": 0.0,
        "train_sha256": "0" * 64, "train_deleted_at": 1.0,
    }  # fmt: skip


def _insert_next_task_and_job(db: Database, size: int, number: int) -> None:
    """Insert the next decoded task of a model, and its job."""
    job = {
        "id": f"job_{size}_{number}", "model_id": build_generated_model_id(size), "owner_id": "own_b",
        "task_id": f"tsk_{size}_{number}",
        "task_number": number, "place": number, "again": False, "state": "queued", "revision": 1,
        "recipe_override": "{}",
        "recipe": '{"method": {"name": "finetune"}, "seed": '
            '0}', "attempt": 0, "strikes": 0, "progress": "{}",
        "warnings": "[]", "created_at": 0.0,
    }  # fmt: skip
    with db.write() as session:
        _insert_rows(
            "tasks", session, [{**_build_task_row(size, number, None), "train_deleted_at": None}]
        )
        _insert_rows("jobs", session, [job])
        session.execute(
            text("UPDATE models SET next_task = :n, next_place = :n WHERE id = :m"),
            {"n": number + 1, "m": build_generated_model_id(size)},
        )


if __name__ == "__main__":
    main()
