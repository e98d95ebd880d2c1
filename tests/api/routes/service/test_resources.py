"""A batch that asks for a device, and what its job says while no worker has it."""

import json

from tests.api.conftest import create_model


def test_a_job_says_in_every_answer_that_no_worker_has_its_device(client, archive):
    model = create_model(client, recipe={"resources": {"device": "cuda", "gpus": 2}})
    job = client.post(f"/v1/models/{model}/tasks", content=archive(cat=2, dog=2)).json()["job"]
    assert job["recipe"]["resources"] == {"device": "cuda", "gpus": 2, "resume": "same"}
    assert job["waiting_for"]["kind"] == "device"
    assert "no worker with 2 CUDA devices has reported" in job["waiting_for"]["detail"]
    polled = client.get(f"/v1/jobs/{job['id']}")
    assert polled.json()["waiting_for"] == job["waiting_for"]
    assert "-device-" in polled.headers["etag"]


def test_a_device_that_does_not_exist_is_refused_with_those_that_do(client):
    body = {"name": "m", "scenario": "class", "recipe": {"resources": {"device": "tpu"}}}
    answer = client.post(
        "/v1/models", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "recipe.resources.device"
    assert "cuda" in answer.json()["errors"][0]["message"]
