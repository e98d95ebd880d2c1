"""A key that may not, or that is another owner's, opens no route of the service and sees
nothing.
"""

import re
import sqlite3
from collections.abc import Iterator

import httpx2
import numpy
import pytest
from fastapi.routing import APIRoute
from safetensors.numpy import save

from api.app import create_app
from api.authentication.guard import find_key_scope_of_route
from core.requests.actor import COVERS
from core.settings import Settings
from tests.e2e import small
from tests.rest import Rest
from tools import service

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(admin: Rest) -> Rest:
    return admin


@pytest.fixture(scope="module")
def plain(running: service.RunningService) -> Iterator[httpx2.Client]:
    """A client without a key."""
    with httpx2.Client(base_url=running.url, timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def objects(client: Rest) -> dict[str, str]:
    """Ids of the first owner's objects, by the name of the path parameter."""
    model = small.create_small_model(client, "secret-birds", "finetune")
    (learned,) = small.learn_batches(client, "secret-birds", small.WEEKS[0], name="hidden-batch")
    job = learned.id
    key = client.call(
        "POST", "/v1/keys", json={"name": "k", "owner": "first", "scope": "read"}
    ).json()
    weights = {
        "fc1.weight": numpy.zeros((4, 64), numpy.float32),
        "fc1.bias": numpy.zeros(4, numpy.float32),
    }
    query = {"architecture": '{"name": "mlp", "hidden": [4]}', "image_size": 8, "channels": 1}
    base = client.call("POST", "/v1/bases", params=query, content=save(weights)).json()
    upload = client.call("POST", "/v1/uploads", headers={"Upload-Length": "9"}).json()
    url = {"url": "https://93.184.215.14/secret-birds"}
    hook = client.call("POST", "/v1/webhooks", json=url).json()["id"]
    delivery = client.call("POST", f"/v1/webhooks/{hook}/test").json()
    return {
        "base": base["id"],
        "upload": upload["id"],
        "webhook": hook,
        "delivery": delivery["id"],
        "version_id": client.get("/v1/models/secret-birds/versions/1")["id"],
        "model": model.id,
        "job_id": job,
        "job": job,
        "id": job,
        "number": "1",
        "n": "1",
        "version": "1",
        "v": "1",
        "part": "head",
        "split": "held_out",
        "i": "0",
        "alias": "production",
        "key_id": key["id"],
        "key": key["id"],
        "name": "finetune",
        "format": "onnx",
    }


def make_key(client: Rest, name: str, owner: str, scope: str, **more: str) -> dict[str, str]:
    """Make a key, and return its id and secret among other fields."""
    given = {"name": name, "owner": owner, "scope": scope, **more}
    made: dict[str, str] = client.call("POST", "/v1/keys", json=given).json()
    return made


@pytest.fixture(scope="module")
def stranger(client: Rest) -> str:
    """A write key of another owner."""
    return make_key(client, "s", "stranger", "write")["secret"]


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str]]:
    """(method, path, scope that it needs) of every route that wants a key."""
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("routes")))
    found = [
        (method, route)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    ]
    return sorted(
        (m, r.path, need) for m, r in found if (need := find_key_scope_of_route(r)) is not None
    )


@pytest.fixture(scope="module")
def wrong(
    running: service.RunningService, client: Rest, plain: httpx2.Client, stranger: str
) -> dict[str, str | None]:
    """Keys that must not open what they are tried on; None: no key at all."""
    expired = make_key(client, "e", "admin", "admin", expires_at="2199-01-01T00:00:00Z")
    with sqlite3.connect(
        running.data_dir / "perennial.db", timeout=60
    ) as db:  # as if its time had passed
        db.execute("UPDATE keys SET expires_at = 1 WHERE id = ?", (expired["id"],))
    revoked = make_key(client, "r", "admin", "admin")
    client.call("DELETE", f"/v1/keys/{revoked['id']}")
    for key in (expired, revoked):
        headers = {"Authorization": f"Bearer {key['secret']}"}
        small.wait_until(
            lambda headers=headers: plain.get("/v1/me", headers=headers).status_code == 401
        )
    return {
        "no key": None,
        "unknown": "pk_aaaaaaaaaaaa_" + "b" * 43,
        "expired": expired["secret"],
        "revoked": revoked["secret"],
        "other owner": stranger,
        "scrape scope": make_key(client, "prometheus", "admin", "scrape")["secret"],
        "read scope": make_key(client, "low", "admin", "read")["secret"],
        "write scope": make_key(client, "middle", "admin", "write")["secret"],
    }


@pytest.mark.parametrize(
    "who",
    [
        "no key",
        "other owner",
        "read scope",
        "write scope",
        # tests/api/authentication/ has keys of these kinds
        pytest.param("unknown", marks=pytest.mark.campaign),
        pytest.param("expired", marks=pytest.mark.campaign),
        pytest.param("revoked", marks=pytest.mark.campaign),
        pytest.param("scrape scope", marks=pytest.mark.campaign),
    ],
)
def test_a_wrong_key_opens_no_route_and_learns_nothing(
    client: Rest,
    plain: httpx2.Client,
    objects: dict[str, str],
    routes: list[tuple[str, str, str]],
    wrong: dict[str, str | None],
    who: str,
) -> None:
    tried = 0
    for method, path, need in routes:
        if who == "other owner" and (
            "{" not in path or path.startswith(("/v1/methods", "/v1/architectures"))
        ):
            continue  # lists are looked at below, the catalogue is everybody's
        if who.endswith(" scope") and need in COVERS[who.split()[0]]:
            continue
        verbs = {"/jobs/": "cancel", "/webhooks/": "test"}
        verb = next((verb for noun, verb in verbs.items() if noun in path), "discard")
        path = path.replace("{verb}", verb)
        filled = re.sub(r"{(\w+)}", lambda found: objects[found.group(1)], path)
        filled += "?rows=0" if path.endswith("/sheet.png") else ""
        filled += "?a=1&b=1" if "/compare" in path else ""
        filled += "?name=0" if (method, path[-14:]) == ("DELETE", "/class-aliases") else ""
        is_page = path.startswith("/ui")
        headers = {} if wrong[who] is None else {"Authorization": f"Bearer {wrong[who]}"}
        body = {"json": _make_body(path)}
        if is_page:
            headers["Origin"] = str(plain.base_url).rstrip("/")
            form = {"version": "1", "old": "1", "new": "1", "reason": "mine now", "sure": "yes"}
            body = {"data": form if method == "POST" else None}
        answer = plain.request(method, filled, headers=headers, **body)
        refused = {"other owner": (404, 403) if need == "admin" else (404,)}.get(
            who, (403,) if who.endswith("scope") else (303 if is_page else 401,)
        )
        assert answer.status_code in refused, (
            f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        )
        told = answer.text + str(answer.headers)
        assert not [
            word for word in ("secret-birds", "hidden-batch", objects["version_id"]) if word in told
        ]
        tried += 1
    print(f"{who}: {tried} routes, 0 leaks")
    assert tried >= {"read scope": 16, "write scope": 5}.get(who, 30)
    # Nothing was done either.
    assert client.get("/v1/models/secret-birds")["id"] == objects["model"]
    assert client.get(f"/v1/jobs/{objects['job']}")["state"] == "succeeded"


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("noun", ["models", "jobs", "uploads", "webhooks"])
def test_lists_hold_nothing_of_another_owner(
    plain: httpx2.Client, stranger: str, noun: str
) -> None:
    answer = plain.get(f"/v1/{noun}", headers={"Authorization": f"Bearer {stranger}"})
    assert (answer.status_code, answer.json()["items"]) == (200, [])


def test_a_base_on_another_owners_version_is_not_found(
    plain: httpx2.Client, objects: dict[str, str], stranger: str
) -> None:
    body = {"name": "thief", "scenario": "class", "base": {"model": objects["model"], "version": 1}}
    answer = plain.post("/v1/models", headers={"Authorization": f"Bearer {stranger}"}, json=body)
    assert answer.status_code in (404, 422)
    assert "secret-birds" not in answer.text


def _make_body(path: str) -> dict[str, object] | None:
    if "/aliases/" in path and "rollback" not in path:
        return {"version": 1, "reason": "mine now"}
    if path.endswith("/edits"):
        return {"operations": [{"drop": {"class": "0"}}]}
    if path.endswith("/choose"):
        return {"trial": 1}
    if path.endswith("/rebase"):
        return {"base": "perennial/resnet20-cifar100"}
    if path.endswith("/versions/{version}"):
        return {"note": "mine now"}
    return {}
