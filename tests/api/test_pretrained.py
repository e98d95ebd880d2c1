"""Models with pretrained weights as the API answers them, before any worker has looked at their
job.
"""

from typing import Any

from starlette.testclient import TestClient
from weights_files import ARCHITECTURE, MODEL, NAME

from api.app import create_app
from core.settings import Settings
from tools import digits


def create_pretrained_model(client: TestClient, name: str = "net", **fields: Any) -> Any:
    return client.post("/v1/models", json={"name": name, "scenario": "class", **MODEL, **fields})


def test_the_answer_names_the_job_that_brings_the_weights(client: TestClient) -> None:
    made = create_pretrained_model(client)
    assert made.status_code == 201, made.text
    model = made.json()
    assert (model["state"], model["line_head"]) == ("fetching", None)
    assert model["aliases"] == {"latest": None, "production": None}
    job = client.get(f"/v1/jobs/{model['job']}").json()
    assert (job["kind"], job["state"], job["task"], job["waiting_for"]) == (
        "fetch",
        "queued",
        None,
        None,
    )
    assert [found["id"] for found in client.get("/v1/jobs?kind=fetch").json()["items"]] == [
        job["id"]
    ]
    assert client.get("/v1/models/net/versions").json()["items"] == []


def test_what_needs_a_version_says_that_there_is_none_yet(client: TestClient) -> None:
    job = create_pretrained_model(client).json()["job"]
    asked = [
        client.get("/v1/models/net/versions/latest"),
        client.get("/v1/models/net/metrics"),
        client.get("/v1/models/net/memory"),
        client.get("/v1/models/net/versions/production/download"),
        client.post("/v1/models/net/aliases/production/follow"),
    ]
    for answer in asked:
        assert (answer.status_code, answer.json()["state"]) == (409, "fetching")
        assert job in answer.json()["detail"]
    assert client.put("/v1/models/net/aliases/production", json={"version": 0}).status_code in (
        404,
        409,
        422,
    )
    assert client.post("/v1/models/net/aliases/production/rollback", json={}).status_code == 404
    assert client.patch("/v1/models/net", json={"recipe": {"epochs": 2}}).status_code == 200


def test_a_batch_is_accepted_and_waits_for_the_base(client: TestClient) -> None:
    create_pretrained_model(client)
    sent = client.post("/v1/models/net/tasks", content=digits.build_digit_archives()[0][1])
    assert sent.status_code == 202, sent.text
    task, job = sent.json()["task"], sent.json()["job"]
    assert any("waits for the weights" in text for text in task["warnings"])
    assert (job["waiting_for"]["kind"], job["waiting_for"]["failed"]) == ("base", False)
    polled = client.get(f"/v1/jobs/{job['id']}")
    assert polled.json() == job
    listed = client.get("/v1/jobs?kind=learn").json()["items"][0]
    assert listed == job
    fetching = client.get("/v1/models/net").json()["job"]
    client.post(f"/v1/jobs/{fetching}/cancel")
    ended = client.get(f"/v1/jobs/{job['id']}")
    assert ended.headers["ETag"] != polled.headers["ETag"]
    why = ended.json()["waiting_for"]
    assert (why["job"], why["failed"]) == (fetching, True)
    assert f"Job {fetching} was cancelled." in why["detail"]
    assert f"bring them again with POST /v1/jobs/{fetching}/retry" in why["detail"]
    assert client.get("/v1/jobs?kind=learn").json()["items"][0] == ended.json()


def test_a_cancelled_job_waits_for_a_person_and_is_retried_by_the_request_that_attention_has(
    client: TestClient,
) -> None:
    job = create_pretrained_model(client).json()["job"]
    assert client.get("/v1/models/net").json()["attention"] == []
    client.post(f"/v1/jobs/{job}/cancel")
    (entry,) = client.get("/v1/models").json()["items"][0]["attention"]
    assert (entry["kind"], entry["version"], entry["task"]) == ("base", None, None)
    retry, delete = entry["actions"]
    assert (retry["path"], delete["method"]) == (f"/v1/jobs/{job}/retry", "DELETE")
    for _ in range(2):  # the second one changes nothing
        answer = client.post(retry["path"], json=retry["body"])
        assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    assert client.get("/v1/models/net").json()["attention"] == []
    assert client.delete(delete["path"]).status_code == 204
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "cancelled"


def test_an_unknown_name_is_refused_with_the_nearest(client: TestClient) -> None:
    refused = create_pretrained_model(
        client, architecture={**ARCHITECTURE, "model": "test_resnet.r160_in1"}
    )
    assert refused.status_code == 422
    assert NAME in refused.json()["detail"]


def test_an_architecture_without_weights_by_name_is_refused(client: TestClient) -> None:
    refused = create_pretrained_model(client, architecture="mlp")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "base"
    assert "POST /v1/bases" in refused.json()["detail"]


def test_where_the_hub_is_off_the_way_by_hand_is_named_and_nothing_is_made(
    settings: Settings, client: TestClient
) -> None:
    app = create_app(settings.model_copy(update={"hub": "off"}))
    with TestClient(app, headers={"Authorization": client.headers["Authorization"]}) as closed:
        refused = create_pretrained_model(closed)
        assert refused.status_code == 422
        assert "PERENNIAL_HUB=off" in refused.json()["detail"]
        assert "POST /v1/bases?architecture=" in refused.json()["detail"]
        assert closed.get("/v1/models").json()["items"] == []


def test_an_owner_with_as_many_jobs_as_he_may_have_begins_no_other(
    settings: Settings, client: TestClient
) -> None:
    app = create_app(settings.model_copy(update={"max_open_jobs": 1}))
    with TestClient(app, headers={"Authorization": client.headers["Authorization"]}) as narrow:
        assert create_pretrained_model(narrow).status_code == 201
        assert create_pretrained_model(narrow, "other").status_code == 429
        assert len(narrow.get("/v1/models").json()["items"]) == 1


def test_the_same_request_again_begins_no_other_job(client: TestClient) -> None:
    body = {"name": "net", "scenario": "class", **MODEL}
    asked = {"json": body, "headers": {"Idempotency-Key": "same"}}
    first, second = (client.post("/v1/models", **asked) for _ in range(2))
    assert first.json() == second.json()
    assert len(client.get("/v1/jobs?kind=fetch").json()["items"]) == 1
