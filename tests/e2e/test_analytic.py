"""A stream learned in closed form, through HTTP: nothing is lost, sums are stored once, another method may follow."""

import json

import pytest

from perennial import APIError
from tests.rest import Rest
from tools import digits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.share(4, together=True)]

ANALYTIC = {"method": {"name": "analytic", "projection": 300}}
ARCHITECTURE = {"name": "mlp", "hidden": [200]}


def learn(client, model, task, **options):
    name, archive = digits.archives()[task - 1]
    job = client.wait(client.submit(model, archive, name=name, **options))
    assert job.state == "succeeded", job
    return job


@pytest.fixture(scope="module")
def stream(running):
    client = Rest(running.url, running.key)
    client.models.create("closed", architecture=ARCHITECTURE, recipe=ANALYTIC)
    for task in (1, 2, 3):
        learn(client, "closed", task)
    return "closed"


def test_old_classes_are_answered_as_well_as_new_ones(client, stream):
    summary = client.get(f"/v1/models/{stream}/metrics")["summary"]
    assert summary["acc"] > 0.9
    assert summary["forgetting"] < 0.1


def test_a_version_stores_the_sums_of_its_own_task_alone(client, stream):
    stored = [client.get(f"/v1/models/{stream}/versions/{v}")["parts"] for v in (1, 2, 3)]
    for number, parts in enumerate(stored, start=1):
        assert [p["name"] for p in parts if p["type"] == "statistics"] == [f"statistics.{number}"]
    shared = {p["name"] for p in stored[2] if p["shared_with"] is not None}
    assert shared == {"backbone.1", "projection"}


def test_a_batch_that_is_learned_again_after_a_rollback_adds_its_sums_once(client):
    client.models.create("again", architecture=ARCHITECTURE, recipe=ANALYTIC)
    for task in (1, 2):
        learn(client, "again", task)
    client.call("POST", "/v1/models/again/aliases/production/rollback", json={"version": 1})
    job = client.wait(client.call("POST", "/v1/models/again/tasks/2/relearn", json={}).json()["id"])
    assert job.state == "succeeded", job

    def classifier(version):
        parts = client.get(f"/v1/models/again/versions/{version}")["parts"]
        return {p["name"]: p["sha256"] for p in parts if p["type"] in ("own", "statistics")}

    assert job.version == 3
    assert classifier(3) == classifier(2)


def test_a_head_that_forgets_is_told_from_its_features_with_the_request_that_helps(client, stream):
    client.models.create("biased", architecture=ARCHITECTURE, recipe={"method": {"name": "finetune"}})
    ended = [learn(client, "biased", task) for task in (1, 2, 3)]
    assert ended[0].warnings == []
    (told,) = ended[2].warnings
    assert told.startswith("The features of version 3 tell the classes apart better than its head does: ")
    version = client.get("/v1/models/biased/versions/3")
    assert version["warnings"] == [told]
    last = client.wait(version["job"])
    events = client.get(f"/v1/jobs/{last.id}/events?limit=200")["items"]
    assert any(e["type"] == "log" and e["data"]["message"] == told for e in events)
    counts, summary = version["manifest"]["baseline_ncm"], client.get("/v1/models/biased/metrics")["summary"]
    assert summary["baseline_ncm"][-1] == counts["all"][0] / counts["all"][1] > summary["pooled"] + 0.05
    body = json.loads(told[told.index("POST /v1/models ") + len("POST /v1/models ") : -1])
    made = client.call("POST", "/v1/models", json=body).json()
    learn(client, made["name"], 1)
    assert client.get(f"/v1/models/{stream}/versions/3")["warnings"] == []


def test_another_method_starts_without_the_sums_and_they_are_not_taken_up_again(client, stream):
    job = learn(client, stream, 4, recipe={"method": "finetune", "depth": 5, "epochs": 1})
    task = client.get(f"/v1/models/{stream}/tasks/4")
    assert any("the method changed from analytic to finetune" in text for text in task["warnings"]), job
    with pytest.raises(APIError, match="version 4 was learned by finetune, which keeps none"):
        learn(client, stream, 5)
