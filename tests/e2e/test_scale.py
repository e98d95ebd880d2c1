"""The large size: API process and two Celery workers over PostgreSQL, Redis and a real S3 server.

The same batches, learned embedded at the same number of threads, must give the same accuracy matrix and
the same part digests; jobs of one model run in order, those of different models on both workers.
"""

from typing import Any

import large_size
import pytest

from tests.rest import Rest
from tools import digits, service

pytestmark = [pytest.mark.campaign, pytest.mark.services, pytest.mark.timeout(900)]

MODELS = {
    "plain": {"method": "finetune", "epochs": 2},
    "replay": {"method": {"name": "der++", "buffer": 100}, "epochs": 2, "seed": 1},
    "curved": {"method": "ewc-online", "epochs": 2, "seed": 2},
}
TASKS = 4


def test_three_models_on_two_workers_match_the_embedded_run(postgres_url, redis_url, s3, tmp_path):
    with large_size.running(tmp_path, postgres_url, redis_url, s3) as (large, client):
        learn(client)
        scaled_seen = {model: seen(client, model) for model in MODELS}
    published = {name: large.log(name).count('"event": "published"') for name in large_size.WORKERS}
    assert sum(published.values()) == TASKS * len(MODELS) and min(published.values()) > 0, published
    for model in MODELS:
        order = started_in_order(large, model)
        assert order == list(range(1, TASKS + 1)), (model, order)

    with service.running(tmp_path / "embedded", {"PERENNIAL_THREADS": "1"}) as running:
        client = Rest(running.url, running.key)
        learn(client)
        for model in MODELS:
            assert seen(client, model) == scaled_seen[model]


def learn(client: Rest) -> None:
    """Submit the tasks of all models interleaved, then wait for every job."""
    for model, recipe in MODELS.items():
        client.models.create(model, recipe=recipe, architecture="small-cnn")
    archives = digits.archives()
    jobs = [client.submit(model, archives[task][1]).id for task in range(TASKS) for model in MODELS]
    for job in jobs:
        end = client.wait(job)
        assert end.state == "succeeded", end


def seen(client: Rest, model: str) -> dict[str, Any]:
    """What must not depend on the size of the service: numbers, R, and the digest of every part."""
    metrics = client.get(f"/v1/models/{model}/metrics")
    versions = client.get(f"/v1/models/{model}/versions?limit=50")["items"]
    assert sorted(v["number"] for v in versions) == list(range(TASKS + 1))
    parts = {v["number"]: {p["name"]: p["sha256"] for p in v["parts"]} for v in versions}
    tasks = {v["number"]: v["task"] for v in versions}
    return {"R": metrics["accuracy_matrix"], "parts": parts, "tasks": tasks}


def started_in_order(large: large_size.LargeSize, model: str) -> list[int]:
    """Task numbers of a model in the order in which their jobs were first started."""
    query = (
        "SELECT task_number FROM jobs JOIN models ON models.id = jobs.model_id"
        " WHERE models.name = :model ORDER BY started_at"
    )
    return [row[0] for row in large.rows(query, model=model)]
