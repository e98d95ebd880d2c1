"""One owner's key sees nothing of another's, whatever route of the OpenAPI document it tries."""

import re

import httpx
import numpy
import pytest
from safetensors.numpy import save

from tools import digits
from tools.client import Client

METHODS = ("get", "put", "post", "patch", "delete", "head")
OPEN = {"/healthz", "/readyz", "/openapi.json", "/docs"}


@pytest.fixture(scope="module")
def objects(running) -> dict[str, str]:
    """Ids of the first owner's objects, by the name of the path parameter."""
    client = Client(running.url, running.key)
    model = client.create_model("secret-birds", recipe={"method": "finetune", "epochs": 1})
    job = client.submit("secret-birds", digits.archives()[0][1], "hidden-batch")
    assert client.wait(job)["state"] == "succeeded"
    key = client.call("POST", "/v1/keys", json={"name": "k", "owner": "first", "scope": "read"}).json()
    weights = {"fc1.weight": numpy.zeros((4, 64), numpy.float32), "fc1.bias": numpy.zeros(4, numpy.float32)}
    query = {"architecture": '{"name": "mlp", "hidden": [4]}', "image_size": 8, "channels": 1}
    base = client.call("POST", "/v1/bases", params=query, content=save(weights)).json()
    return {
        "base": base["id"],
        "model": model["id"],
        "job_id": job,
        "job": job,
        "id": job,
        "number": "1",
        "n": "1",
        "version": "1",
        "v": "1",
        "part": "head",
        "alias": "production",
        "key_id": key["id"],
        "key": key["id"],
        "name": "finetune",
    }


@pytest.fixture(scope="module")
def stranger(running) -> str:
    """A write key of another owner."""
    client = Client(running.url, running.key)
    made = client.call("POST", "/v1/keys", json={"name": "s", "owner": "stranger", "scope": "write"}).json()
    return str(made["secret"])


def routes(running) -> list[tuple[str, str]]:
    document = httpx.get(f"{running.url}/openapi.json").json()
    return [(m, path) for path, item in document["paths"].items() for m in METHODS if m in item]


def test_another_owners_objects_are_not_found_on_any_route(running, objects, stranger):
    tried = 0
    for method, path in routes(running):
        parameters = re.findall(r"{(\w+)}", path)
        if not parameters or path.startswith(("/v1/methods", "/v1/architectures")):
            continue
        filled = re.sub(r"{(\w+)}", lambda found: objects[found.group(1)], path)
        answer = httpx.request(
            method,
            f"{running.url}{filled}",
            headers={"Authorization": f"Bearer {stranger}"},
            json=_body(path),
        )
        tried += 1
        assert answer.status_code in (403, 404), f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        assert "secret-birds" not in answer.text and "hidden-batch" not in answer.text
    assert tried >= 20


def test_lists_hold_nothing_of_another_owner(running, objects, stranger):
    for path in ("/v1/models", "/v1/jobs"):
        answer = httpx.get(f"{running.url}{path}", headers={"Authorization": f"Bearer {stranger}"})
        assert answer.status_code == 200
        assert answer.json()["items"] == []


def test_every_route_but_the_open_ones_wants_a_key(running, objects):
    for method, path in routes(running):
        if path in OPEN:
            continue
        filled = re.sub(r"{(\w+)}", lambda found: objects[found.group(1)], path)
        assert httpx.request(method, f"{running.url}{filled}").status_code == 401, f"{method} {path}"


def test_a_base_on_another_owners_version_is_not_found(running, objects, stranger):
    answer = httpx.post(
        f"{running.url}/v1/models",
        headers={"Authorization": f"Bearer {stranger}"},
        json={"name": "thief", "scenario": "class", "base": {"model": objects["model"], "version": 1}},
    )
    assert answer.status_code in (404, 422)
    assert "secret-birds" not in answer.text


def _body(path: str) -> dict[str, object] | None:
    if "/aliases/" in path and "rollback" not in path:
        return {"version": 1, "reason": "mine now"}
    return {}
