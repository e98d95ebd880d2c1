"""The large size: API process and two Celery workers over PostgreSQL, Redis and a real S3 server.

The same batches, learned embedded at the same number of threads, must give the same accuracy matrix and
the same part digests; jobs of one model run in order, those of different models on both workers.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy

from tools import digits, service
from tools.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(900)]

MODELS = {
    "plain": {"method": "finetune", "epochs": 2},
    "replay": {"method": {"name": "der++", "buffer": 100}, "epochs": 2, "seed": 1},
    "curved": {"method": "ewc-online", "epochs": 2, "seed": 2},
}
TASKS = 4
WORKERS = ("one", "two")


def test_three_models_on_two_workers_match_the_embedded_run(postgres_url, redis_url, s3, tmp_path):
    with scaled(tmp_path, postgres_url, redis_url, s3) as client:
        learn(client)
        scaled_seen = {model: seen(client, model) for model in MODELS}
    published = {
        name: (tmp_path / name / "log").read_text().count('"event": "published"') for name in WORKERS
    }
    assert sum(published.values()) == TASKS * len(MODELS) and min(published.values()) > 0, published
    for model in MODELS:
        order = started_in_order(postgres_url, model)
        assert order == list(range(1, TASKS + 1)), (model, order)

    with service.running(tmp_path / "embedded", {"PERENNIAL_THREADS": "1"}) as running:
        client = Client(running.url, running.key)
        learn(client)
        for model in MODELS:
            assert seen(client, model) == scaled_seen[model]


def learn(client: Client) -> None:
    """Submit the tasks of all models interleaved, then wait for every job."""
    for model, recipe in MODELS.items():
        client.create_model(model, recipe=recipe)
    archives = digits.archives()
    jobs = [client.submit(model, archives[task][1]) for task in range(TASKS) for model in MODELS]
    for job in jobs:
        end = client.wait(job)
        assert end["state"] == "succeeded", end


def seen(client: Client, model: str) -> dict[str, Any]:
    """What must not depend on the size of the service: numbers, R, and the digest of every part."""
    metrics = client.get(f"/v1/models/{model}/metrics")
    versions = client.get(f"/v1/models/{model}/versions?limit=50")["items"]
    assert sorted(v["number"] for v in versions) == list(range(TASKS + 1))
    parts = {v["number"]: {p["name"]: p["sha256"] for p in v["parts"]} for v in versions}
    tasks = {v["number"]: v["task"] for v in versions}
    return {"R": metrics["accuracy_matrix"], "parts": parts, "tasks": tasks}


def started_in_order(url: str, model: str) -> list[int]:
    """Task numbers of a model in the order in which their jobs were first started."""
    query = (
        "SELECT task_number FROM jobs JOIN models ON models.id = jobs.model_id"
        " WHERE models.name = :model ORDER BY started_at"
    )
    return [row[0] for row in _rows(url, query, model=model)]


def _rows(url: str, query: str, **values: str) -> list[Any]:
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        rows = list(connection.execute(sqlalchemy.text(query), values))
    engine.dispose()
    return rows


@contextmanager
def scaled(folder: Path, database: str, broker: str, s3: Any) -> Iterator[Client]:
    """Start the README's three commands by hand (two workers); a client with an admin key."""
    common = {
        **os.environ,
        **s3.environment(),
        "PERENNIAL_DATABASE_URL": database,
        "PERENNIAL_BROKER_URL": broker,
        "PERENNIAL_THREADS": "1",
        "PERENNIAL_CHORES_S": "1",
    }
    here = Path(sys.executable).parent
    port = service.free_port()
    subprocess.run(
        [here / "alembic", "upgrade", "head"],
        cwd=service.ROOT,
        env={**common, "PERENNIAL_DATA_DIR": str(folder / "migrate")},
        check=True,
    )
    commands = {
        "api": [here / "uvicorn", "--factory", "api.app:create_app", "--port", str(port)],
        **{
            name: [
                here / "celery",
                *("-A", "worker.celery_app", "worker", "-P", "solo", "--without-gossip", "--without-mingle"),
                *("-n", f"{name}@%h"),
            ]
            for name in WORKERS
        },
    }
    processes = []
    for name, command in commands.items():
        data = folder / name
        data.mkdir()
        with (data / "log").open("wb") as log:
            environment = {**common, "PERENNIAL_DATA_DIR": str(data)}
            processes.append(
                subprocess.Popen(command, cwd=service.ROOT, env=environment, stdout=log, stderr=log)
            )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, folder / "api" / "log")
        yield Client(url, (folder / "api" / "admin-key").read_text().strip())
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


def _wait(url: str, log: Path) -> None:
    for _ in range(600):
        try:
            if httpx.get(f"{url}/readyz", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass  # not listening yet
        time.sleep(0.1)
    raise RuntimeError(f"The API did not get ready: {log.read_text()[-4000:]}")
