"""A stream learned in closed form, through HTTP: nothing is lost, sums are stored once, another
method may follow.
"""

import json

import pytest

from perennial import APIError
from tests.e2e import small
from tests.e2e.small import WEEKS, learn_batches
from tests.rest import Rest

pytestmark = pytest.mark.slow

ANALYTIC = {"name": "analytic", "projection": 300}
ARCHITECTURE = {"name": "mlp", "hidden": [200]}


@pytest.fixture(scope="module")
def stream(client: Rest) -> str:
    """A model that learned three batches in closed form."""
    small.create_small_model(client, "closed", ANALYTIC, architecture=ARCHITECTURE)
    learn_batches(client, "closed", *WEEKS[:3])
    return "closed"


def test_old_classes_are_answered_as_well_as_new_ones(client: Rest, stream: str) -> None:
    summary = client.get(f"/v1/models/{stream}/metrics")["summary"]
    assert summary["acc"] > 0.8
    assert summary["forgetting"] < 0.1


def test_a_version_stores_the_sums_of_its_own_task_alone(client: Rest, stream: str) -> None:
    stored = [client.get(f"/v1/models/{stream}/versions/{v}")["parts"] for v in (1, 2, 3)]
    for number, parts in enumerate(stored, start=1):
        assert [p["name"] for p in parts if p["type"] == "statistics"] == [f"statistics.{number}"]
    shared = {p["name"] for p in stored[2] if p["shared_with"] is not None}
    assert shared == {"backbone.1", "projection"}


@pytest.mark.campaign  # tests/core/learning/methods/test_analytic.py shows that sums are added once
def test_a_batch_that_is_learned_again_after_a_rollback_adds_its_sums_once(client: Rest) -> None:
    small.create_small_model(client, "again", ANALYTIC, architecture=ARCHITECTURE)
    learn_batches(client, "again", *WEEKS[:2])
    client.call("POST", "/v1/models/again/aliases/production/rollback", json={"version": 1})
    job = client.wait(client.call("POST", "/v1/models/again/tasks/2/relearn", json={}).json()["id"])
    assert (job.state, job.version) == ("succeeded", 3), job

    def read_classifier_digests(version: int) -> dict[str, str]:
        parts = client.get(f"/v1/models/again/versions/{version}")["parts"]
        return {p["name"]: p["sha256"] for p in parts if p["type"] in ("own", "statistics")}

    assert read_classifier_digests(3) == read_classifier_digests(2)


@pytest.mark.campaign  # test_features_of_erased_tasks_judge_no_head_and_their_sums_stay shows it
def test_features_go_with_the_data_of_their_task_and_learning_goes_on(client: Rest) -> None:
    small.create_small_model(client, "gone", ANALYTIC, architecture=ARCHITECTURE)
    learn_batches(client, "gone", *WEEKS[:2])
    client.call("DELETE", "/v1/models/gone/tasks/1/data")

    def list_kept_features(version: int) -> list[str]:
        parts = client.get(f"/v1/models/gone/versions/{version}")["parts"]
        return [p["name"] for p in parts if p["type"] == "features" and p["deleted_at"] is None]

    assert (list_kept_features(1), list_kept_features(2)) == ([], ["features.2"])
    assert not any(
        "features" in f["name"] for f in client.items("/v1/models/gone/versions/2/files")
    )
    with pytest.raises(
        APIError, match="holds features of the training data and cannot be downloaded"
    ):
        client.get("/v1/models/gone/versions/2/files/features.2")
    learn_batches(client, "gone", WEEKS[2])
    method = client.get("/v1/models/gone/versions/3")["manifest"]["method"]
    images = sum(client.get(f"/v1/models/gone/tasks/{task}")["n_train"] for task in (2, 3))
    assert method["state"]["own"]["auto"]["images"] == images


@pytest.mark.campaign  # tests/core/publishing/test_biased_head.py shows it
def test_a_head_that_forgets_is_told_from_its_features_with_the_request_that_helps(
    client: Rest, stream: str
) -> None:
    small.create_small_model(
        client, "biased", "finetune", architecture=ARCHITECTURE, recipe={"epochs": 10}
    )
    ended = learn_batches(client, "biased", *WEEKS[:3])
    assert ended[0].warnings == []
    (told,) = ended[2].warnings
    assert told.startswith(
        "The features of version 3 tell the classes apart better than its head does: "
    )
    version = client.get("/v1/models/biased/versions/3")
    assert version["warnings"] == [told]
    events = client.items(f"/v1/jobs/{version['job']}/events")
    assert any(e["type"] == "log" and e["data"]["message"] == told for e in events)
    counts, summary = (
        version["manifest"]["baseline_ncm"],
        client.get("/v1/models/biased/metrics")["summary"],
    )
    assert (
        summary["baseline_ncm"][-1]
        == counts["all"][0] / counts["all"][1]
        > summary["pooled"] + 0.05
    )
    body = json.loads(told[told.index("POST /v1/models ") + len("POST /v1/models ") : -1])
    made = client.call("POST", "/v1/models", json=body).json()
    learn_batches(client, made["name"], WEEKS[0])
    assert client.get(f"/v1/models/{stream}/versions/3")["warnings"] == []


def test_another_method_starts_without_the_sums_and_they_are_not_taken_up_again(
    client: Rest, stream: str
) -> None:
    learn_batches(client, stream, WEEKS[3], recipe={"method": "finetune", "depth": 5, "epochs": 1})
    task = client.get(f"/v1/models/{stream}/tasks/4")
    assert any("the method changed from analytic to finetune" in text for text in task["warnings"])
    with pytest.raises(APIError, match="version 4 was learned by finetune, which keeps none"):
        client.submit(stream, WEEKS[4])
