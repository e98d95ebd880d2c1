"""Pretrained weights through HTTP: fetched once from a server that speaks the Hub's protocol,
whatever happens meanwhile."""

import hashlib
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from hub_server import COMMIT, Hub
from weights_files import MODEL, NAME, REPOSITORY, build_random_weights

from perennial import types
from tests.e2e import small
from tests.rest import Rest
from tools import service

pytestmark = pytest.mark.slow

QUICK = {"method": "finetune", "depth": 1, "epochs": 1}
BATCH = small.thin_out(small.WEEKS[0])


def compute_digest_of_weights() -> str:
    """Return the digest of the weights.
    They are made at the first test, since collection needs no torchvision.
    """
    return hashlib.sha256(build_random_weights()).hexdigest()


@pytest.fixture(autouse=True)
def weights_are_there(hub: Hub, client: Rest) -> Iterator[None]:
    """Put the weights on the server; afterwards no model of this file has them."""
    hub.put(REPOSITORY, build_random_weights())
    yield
    hub.go_on.set()
    for model in client.items("/v1/models"):
        client.models.delete(model["id"])


def create_pretrained_model(client: Rest, name: str) -> types.Model:
    return client.models.create(name, recipe=QUICK, gate={"checks": "off"}, **MODEL)


# tests/core/execution/test_fetch.py has two jobs that ask at the same moment; the model whose first
# fetch fails, below, is the journey of each build.
@pytest.mark.campaign
def test_weights_come_once_for_models_of_the_same_moment_and_for_later_ones_not_at_all(
    hub: Hub, client: Rest
) -> None:
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda name: create_pretrained_model(client, name), ("one", "two")))
    for model in made:
        assert (model.state, model.line_head) == ("fetching", None)
        assert model.aliases == {"latest": None, "production": None}
        job = client.wait(model.job)
        assert (job.kind, job.state, job.task) == ("fetch", "succeeded", None)
    assert hub.gets == [(REPOSITORY, 0)]
    later = create_pretrained_model(client, "three")
    assert (later.state, later.job, later.aliases) == (
        "ready",
        None,
        {"latest": 0, "production": 0},
    )
    for name in ("one", "two", "three"):
        version = client.get(f"/v1/models/{name}/versions/production")
        assert version["manifest"]["base"] == {
            "name": NAME,
            "repository": REPOSITORY,
            "revision": COMMIT,
            "licence": "apache-2.0",
            "sha256": compute_digest_of_weights(),
            "bytes": len(build_random_weights()),
        }
        assert [(part["type"], part["sha256"]) for part in version["parts"]] == [
            ("base", compute_digest_of_weights())
        ]
    assert hub.gets == [(REPOSITORY, 0)]


@pytest.mark.campaign  # tests/api/test_pretrained.py; the batch after a failure waits, too
def test_batches_wait_for_the_weights_and_are_learned_then(hub: Hub, client: Rest) -> None:
    hub.stall_at = 200_000
    model = create_pretrained_model(client, "waiting")
    small.wait_until(lambda: client.get(f"/v1/jobs/{model.job}")["state"] == "running")
    task = client.submit("waiting", BATCH).id
    waiting = client.get(f"/v1/jobs/{task}")
    assert (waiting["state"], waiting["waiting_for"]["kind"]) == ("queued", "base")
    assert waiting["waiting_for"]["detail"].startswith(
        "This batch waits for the weights of its model's base"
    )
    early = client.http.get("/v1/models/waiting/versions/production")
    assert (early.status_code, early.json()["state"]) == (409, "fetching")
    small.wait_until(lambda: client.get(f"/v1/jobs/{model.job}")["progress"]["step"])
    hub.go_on.set()
    assert client.wait(task).state == "succeeded"
    found = client.get("/v1/models/waiting")
    assert (found["state"], found["job"], found["aliases"]) == (
        "ready",
        None,
        {"latest": 1, "production": 1},
    )
    assert client.get(f"/v1/jobs/{task}")["waiting_for"] is None


@pytest.mark.campaign  # tests/core/execution/test_fetch.py kills a worker at each point of a fetch
def test_a_worker_killed_in_mid_download_costs_no_byte_twice(
    hub: Hub, client: Rest, running: service.RunningService
) -> None:
    hub.stall_at = 500_000
    model = create_pretrained_model(client, "killed")
    kept = running.data_dir / "downloads" / REPOSITORY.replace("/", "--") / COMMIT
    small.wait_until(lambda: [p for p in kept.glob("*.part") if p.stat().st_size >= 400_000])
    (worker,) = [
        found
        for found in psutil.Process(running.process.pid).children(recursive=True)
        if "worker.loop" in found.cmdline()
    ]
    worker.kill()
    hub.stall_at = None
    with sqlite3.connect(
        running.data_dir / "perennial.db", timeout=60
    ) as db:  # nobody waits for its lease to end
        db.execute("UPDATE jobs SET lease_until = 0 WHERE id = ?", (model.job,))
    assert client.wait(model.job).state == "succeeded"
    first, second = hub.gets
    assert first == (REPOSITORY, 0) and 400_000 <= second[1] <= 500_000
    assert (
        client.get("/v1/models/killed/versions/0")["manifest"]["base"]["sha256"]
        == compute_digest_of_weights()
    )
    assert not kept.exists()


def test_a_failure_is_in_the_models_attention_with_the_request_that_tries_again(
    hub: Hub, client: Rest
) -> None:
    hub.digests[REPOSITORY, "model.safetensors"] = hashlib.sha256(b"other").hexdigest()
    model = create_pretrained_model(client, "unlucky")
    task = client.submit("unlucky", BATCH).id
    failed = client.wait(model.job)
    assert (failed.state, failed.error.kind) == ("failed", "weights")
    assert "the digest of model.safetensors is another one" in failed.error.detail
    assert f"pretrained/{NAME}.safetensors" in failed.error.detail
    (entry,) = client.get("/v1/models/unlucky")["attention"]
    assert (entry["kind"], entry["task"]) == ("base", None)
    assert failed.error.detail in entry["detail"]
    assert "could not be brought" in client.get(f"/v1/jobs/{task}")["waiting_for"]["detail"]
    hub.digests.clear()
    again = next(action for action in entry["actions"] if action["path"].endswith("/retry"))
    client.call(again["method"], again["path"], json=again["body"])
    assert client.wait(model.job).state == "succeeded"
    assert client.wait(task).state == "succeeded"
    assert client.get("/v1/models/unlucky")["attention"] == []


@pytest.mark.campaign  # tests/core/execution/test_fetch.py shows what to copy where
def test_a_file_that_a_person_put_there_is_taken_where_the_hub_has_nothing(
    hub: Hub, client: Rest, running: service.RunningService
) -> None:
    hub.files = {(REPOSITORY, "pytorch_model.bin"): b"pickle"}
    model = create_pretrained_model(client, "by-hand")
    failed = client.wait(model.job)
    assert failed.error.detail.startswith(f"The repository {REPOSITORY} has no model.safetensors")
    by_hand = running.data_dir / "pretrained" / f"{NAME}.safetensors"
    by_hand.write_bytes(build_random_weights())
    client.jobs.retry(model.job)
    assert client.wait(model.job).state == "succeeded"
    base = client.get("/v1/models/by-hand/versions/0")["manifest"]["base"]
    assert (base["sha256"], base["revision"]) == (compute_digest_of_weights(), None)
    by_hand.unlink()
    assert hub.gets == []


@pytest.mark.campaign  # tests/core/execution/test_fetch.py shows that the weights go with the last model
def test_what_no_model_names_any_more_is_deleted_and_fetched_again(hub: Hub, client: Rest) -> None:
    for _ in range(2):
        model = create_pretrained_model(client, "gone")
        assert client.wait(model.job).state == "succeeded"
        client.models.delete("gone")
    assert len(hub.gets) == 2
