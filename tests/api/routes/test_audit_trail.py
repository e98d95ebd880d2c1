"""Every call that changes something leaves one row of the audit trail, in the transaction of the change."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fastapi.routing import APIRoute
from safetensors.numpy import save
from sqlalchemy import event, select
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from core.db.session import Database
from core.db.tables import Audit, Job, Table, Task

READS_ONLY = {
    "POST /v1/models/{model}/versions/{version}/predict": "answers from a version and stores nothing",
    "OPTIONS /v1/uploads": "says what uploads may be",
    "PATCH /v1/uploads/{upload}": "one piece of hundreds: the upload's begin has a row, and so has what becomes of it",
}
"""Calls that are no GET and leave no row, and why."""

OF_PAGES = {
    "POST /ui/login": "begins a session: tests/core/requests/test_sessions.py",
    "POST /ui/logout": "ends one: the same",
    "POST /ui/models/{model}/delete": "model.delete",
    "POST /ui/models/{model}/aliases/production": "alias.set",
    "POST /ui/models/{model}/aliases/production/rollback": "alias.rollback",
    "POST /ui/models/{model}/aliases/production/follow": "alias.follow",
    "POST /ui/models/{model}/tasks/{n}/{verb}": "task.continue, task.discard, task.relearn",
    "POST /ui/models/{model}/tasks/{n}/data": "task.delete-data",
    "POST /ui/jobs/{job}/{verb}": "job.cancel, job.pause, job.resume, job.retry",
    "POST /ui/models/new": "model.create",
    "POST /ui/models/{model}/submit": "task.submit",
    "POST /ui/models/{model}/submit/plan": "nothing: says what a recipe would mean",
    "POST /ui/models/{model}/submit/check": "nothing: says what a batch would meet",
    "POST /ui/models/{model}/versions/{version}/predict": "nothing: answers",
    "POST /ui/models/{model}/versions/{version}/export/{format}": "what GET …/download?format= leaves",
    "POST /ui/admin/keys": "key.create",
    "POST /ui/admin/keys/{key}/revoke": "key.revoke",
    "POST /ui/webhooks": "webhook.create",
    "POST /ui/webhooks/{webhook}/{verb}": "webhook.test, webhook.rotate, webhook.change, webhook.delete",
    "POST /ui/webhooks/{webhook}/deliveries/{delivery}/redeliver": "webhook.redeliver",
}
"""Forms of the pages, and what they leave by the functions that the calls below have: tests/api/pages/."""

ACTIONS = {
    "POST /v1/bases": "base.create",
    "DELETE /v1/bases/{base}": "base.delete",
    "POST /v1/uploads": "upload.create",
    "DELETE /v1/uploads/{upload}": "upload.delete",
    "POST /v1/keys": "key.create",
    "DELETE /v1/keys/{key}": "key.revoke",
    "POST /v1/models": "model.create",
    "PATCH /v1/models/{model}": "model.change",
    "DELETE /v1/models/{model}": "model.delete",
    "DELETE /v1/models/{model}/memory": "memory.delete",
    "POST /v1/models/{model}/tasks": "task.submit",
    "DELETE /v1/models/{model}/tasks/{n}/data": "task.delete-data",
    "PATCH /v1/models/{model}/versions/{version}": "version.change",
    "PUT /v1/models/{model}/aliases/{alias}": "alias.set",
    "DELETE /v1/models/{model}/aliases/{alias}": "alias.delete",
    "POST /v1/models/{model}/aliases/{alias}/rollback": "alias.rollback",
    "POST /v1/models/{model}/aliases/{alias}/follow": "alias.follow",
    "POST /v1/models/{model}/tasks/{n}/continue": "task.continue",
    "POST /v1/models/{model}/tasks/{n}/discard": "task.discard",
    "POST /v1/models/{model}/tasks/{n}/relearn": "task.relearn",
    "POST /v1/jobs/{job}/cancel": "job.cancel",
    "POST /v1/jobs/{job}/pause": "job.pause",
    "POST /v1/jobs/{job}/resume": "job.resume",
    "POST /v1/jobs/{job}/retry": "job.retry",
    "POST /v1/webhooks": "webhook.create",
    "PATCH /v1/webhooks/{webhook}": "webhook.change",
    "DELETE /v1/webhooks/{webhook}": "webhook.delete",
    "POST /v1/webhooks/{webhook}/test": "webhook.test",
    "POST /v1/webhooks/{webhook}/rotate": "webhook.rotate",
    "POST /v1/webhooks/{webhook}/deliveries/{delivery}/redeliver": "webhook.redeliver",
}
FLOATS = np.zeros((4, 64), np.float32)
WEBHOOK = {"url": "https://93.184.215.14/hook"}
BASE = save({"fc1.weight": FLOATS, "fc1.bias": np.zeros(4, np.float32)})


@pytest.fixture
def calls(
    client: TestClient, model: str, publish: Callable[..., int], archive: Callable[..., bytes]
) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Of every route a call that changes something: route → (method, path, arguments)."""
    publish(model)
    memory = {"buffer": {"images": np.zeros((2, 8, 8, 3), np.uint8)}}
    publish(model, memory, types={"buffer": "buffer"})
    jobs = [_job(client, archive, name) for name in ("to-cancel", "to-pause", "to-resume", "to-retry")]
    assert client.post(f"/v1/jobs/{jobs[2]}/pause").status_code == 200
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        failed = session.get_one(Job, jobs[3])
        failed.state, failed.finished_at = "failed", 1.0
    for name in ("stopped", "pinned"):
        client.post("/v1/models", json={"name": name, "scenario": "class", "architecture": "small-cnn"})
    publish("stopped", passed=False)
    for _ in range(2):
        publish("pinned")
    assert client.post("/v1/models/pinned/aliases/production/rollback").status_code == 200
    _job(client, archive, "lacking")
    client.put("/v1/models/birds/aliases/unwanted", json={"version": 1})
    spare = client.post("/v1/keys", json={"name": "spare", "owner": "o", "scope": "read"}).json()["id"]
    client.post("/v1/models", json={"name": "unwanted", "scenario": "class", "architecture": "small-cnn"})
    begun = client.post("/v1/uploads", headers={"Upload-Length": "9"}).headers["location"]
    architecture = '{"name": "mlp", "hidden": [4]}'
    upload = {
        "params": {"architecture": architecture, "image_size": 8, "channels": 1},
        "content": BASE,
        "headers": {"Content-Type": "application/safetensors"},
    }
    base = client.post("/v1/bases", **upload).json()["id"]
    hook = f"/v1/webhooks/{client.post('/v1/webhooks', json=WEBHOOK).json()['id']}"
    delivery = client.post(f"{hook}/test").json()["id"]
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "POST /v1/webhooks": ("/v1/webhooks", {"json": WEBHOOK}),
        "PATCH /v1/webhooks/{webhook}": (hook, {"json": {"enabled": False}}),
        "DELETE /v1/webhooks/{webhook}": (hook, {}),
        "POST /v1/webhooks/{webhook}/test": (f"{hook}/test", {}),
        "POST /v1/webhooks/{webhook}/rotate": (f"{hook}/rotate", {}),
        "POST /v1/webhooks/{webhook}/deliveries/{delivery}/redeliver": (
            f"{hook}/deliveries/{delivery}/redeliver",
            {},
        ),
        "POST /v1/bases": ("/v1/bases", upload),
        "DELETE /v1/bases/{base}": (f"/v1/bases/{base}", {}),
        "POST /v1/uploads": ("/v1/uploads", {"headers": {"Upload-Length": "9"}}),
        "DELETE /v1/uploads/{upload}": (begun, {}),
        "POST /v1/keys": ("/v1/keys", {"json": {"name": "k", "owner": "new", "scope": "read"}}),
        "DELETE /v1/keys/{key}": (f"/v1/keys/{spare}", {}),
        "POST /v1/models": (
            "/v1/models",
            {"json": {"name": "fresh", "scenario": "class", "architecture": "small-cnn"}},
        ),
        "PATCH /v1/models/{model}": ("/v1/models/birds", {"json": {"recipe": {"epochs": 3}}}),
        "DELETE /v1/models/{model}": ("/v1/models/unwanted", {}),
        "DELETE /v1/models/{model}/memory": ("/v1/models/birds/memory", {}),
        "POST /v1/models/{model}/tasks": ("/v1/models/birds/tasks", {"content": archive(a=2, b=2)}),
        "DELETE /v1/models/{model}/tasks/{n}/data": ("/v1/models/birds/tasks/1/data", {}),
        "PUT /v1/models/{model}/aliases/{alias}": (
            "/v1/models/birds/aliases/mine",
            {"json": {"version": 1, "reason": "because"}},
        ),
        "PATCH /v1/models/{model}/versions/{version}": (
            "/v1/models/birds/versions/1",
            {"json": {"note": "best on owls"}},
        ),
        "DELETE /v1/models/{model}/aliases/{alias}": ("/v1/models/birds/aliases/unwanted", {}),
        "POST /v1/models/{model}/aliases/{alias}/rollback": (
            "/v1/models/birds/aliases/production/rollback",
            {"json": {"reason": "worse"}},
        ),
        "POST /v1/models/{model}/aliases/{alias}/follow": ("/v1/models/pinned/aliases/production/follow", {}),
        "POST /v1/models/{model}/tasks/{n}/continue": (
            "/v1/models/stopped/tasks/1/continue",
            {"json": {"reason": "enough"}},
        ),
        "POST /v1/models/{model}/tasks/{n}/discard": (
            "/v1/models/stopped/tasks/1/discard",
            {"json": {"reason": "enough"}},
        ),
        "POST /v1/models/{model}/tasks/{n}/relearn": ("/v1/models/lacking/tasks/1/relearn", {}),
        **{
            f"POST /v1/jobs/{{job}}/{action}": (f"/v1/jobs/{job}/{action}", {})
            for action, job in zip(("cancel", "pause", "resume", "retry"), jobs, strict=True)
        },
    }
    return {route: (route.split()[0], path, more) for route, (path, more) in given.items()}


def _job(client: TestClient, archive: Callable[..., bytes], name: str) -> str:
    client.post("/v1/models", json={"name": name, "scenario": "class", "architecture": "small-cnn"})
    sent = client.post(f"/v1/models/{name}/tasks", content=archive(a=2, b=2))
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:  # as if decoded, so that it can be learned again
        task = session.get_one(Task, sent.json()["task"]["id"])
        task.train_sha256 = "c" * 64
        if name == "lacking":
            task.standing = "skipped"
            session.get_one(Job, sent.json()["job"]["id"]).state = "succeeded"
    return sent.json()["job"]["id"]  # type: ignore[no-any-return]


def test_every_call_that_is_no_get_is_known_here(client: TestClient) -> None:
    routes = [r for r in client.app.routes if isinstance(r, APIRoute)]  # type: ignore[attr-defined]
    changing = {f"{m} {r.path}" for r in routes for m in r.methods if m not in ("GET", "HEAD")}
    assert changing == ACTIONS.keys() | READS_ONLY.keys() | OF_PAGES.keys()


@pytest.mark.parametrize("route", ACTIONS)
def test_a_change_leaves_one_row_that_says_who_and_what(
    client: TestClient, calls: dict[str, Any], route: str
) -> None:
    before = client.get("/v1/audit?limit=200").json()["items"]
    method, path, more = calls[route]
    answer = client.request(method, path, **more)
    assert answer.status_code < 300, answer.text
    rows = client.get("/v1/audit?limit=200").json()["items"]
    assert rows[: len(before)] == before, "rows of before have changed"
    [row] = rows[len(before) :]
    assert row["action"] == ACTIONS[route]
    mine = client.headers["Authorization"].split("_")[1]
    keys = {k["prefix"]: k["id"] for k in client.get("/v1/keys").json()["items"]}
    assert row["key"] == keys[mine]
    assert row["object"]
    assert (row["model"] is None) == (row["action"].partition(".")[0] in ("base", "key", "upload", "webhook"))
    reason = more.get("json", {}).get("reason")
    if reason is not None:
        assert row["data"]["reason"] == reason


@pytest.fixture
def no_audit() -> Iterator[None]:
    """The database takes no row of the trail."""

    def refuse(_mapper: object, _connection: object, _row: object) -> None:
        raise RuntimeError("no audit row can be written")

    event.listen(Audit, "before_insert", refuse)
    yield
    event.remove(Audit, "before_insert", refuse)


@pytest.mark.parametrize("route", ACTIONS)
def test_without_its_row_nothing_is_changed(
    client: TestClient, calls: dict[str, Any], no_audit: None, route: str
) -> None:
    before = _everything(client)
    method, path, more = calls[route]
    assert client.request(method, path, **more).status_code == 500
    assert _everything(client) == before


def _everything(client: TestClient) -> dict[str, list[Any]]:
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with Session(db.engine) as session:
        return {
            name: [tuple(row) for row in session.execute(select(table))]
            for name, table in Table.metadata.tables.items()
        }


def test_a_call_that_is_refused_leaves_no_row(client: TestClient, model: str) -> None:
    before = client.get("/v1/audit").json()
    assert client.put("/v1/models/birds/aliases/mine", json={"version": 77}).status_code == 422
    assert (
        client.post(
            "/v1/models", json={"name": "birds", "scenario": "class", "architecture": "small-cnn"}
        ).status_code
        == 409
    )
    assert client.get("/v1/audit").json() == before


def test_the_trail_can_only_be_read(client: TestClient, key_of: Callable[..., dict[str, str]]) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert client.request(method, "/v1/audit").status_code == 405
        assert client.request(method, "/v1/audit/1").status_code in (404, 405)
    for scope in ("read", "write"):
        assert client.get("/v1/audit", headers=key_of("somebody", scope)).status_code == 403
