"""Every call that changes something leaves one row of the audit trail, in the transaction of the
change.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.routing import APIRoute
from safetensors.numpy import save
from sqlalchemy import Engine, event, select
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from core.bases import expected_base
from core.contract.edit import EditUndoRecord
from core.database.session import Database
from core.database.tables import AuditEntry, ClassAlias, DatabaseTable, Edit, Job, Task
from core.settings import Settings
from tests.api.choosing import make_choosing_job
from tests.api.conftest import KeyOf, Make, serve_api, serve_copy
from tests.api.routes.conftest import Publish, create_model, make_publisher

READS_ONLY = {
    "POST /v1/models/{model}/versions/{version}/predict": "answers from a version and stores "
    "nothing",
    "OPTIONS /v1/uploads": "says what uploads may be",
    "PATCH /v1/uploads/{upload}": "one piece of hundreds: the upload's begin has a row, and so has "
    "what becomes of it",
}
"""Calls that are no GET and leave no row, and why."""

OF_PAGES = {
    "POST /ui/login": "begins a session: tests/core/keys/test_sessions.py",
    "POST /ui/logout": "ends one: the same",
    "POST /ui/models/{model}/delete": "model.delete",
    "POST /ui/models/{model}/checks": "model.change",
    "POST /ui/models/{model}/rebase/finish": "model.finish-rebase",
    "POST /ui/models/{model}/aliases/production": "alias.set",
    "POST /ui/models/{model}/aliases/production/rollback": "alias.rollback",
    "POST /ui/models/{model}/aliases/production/follow": "alias.follow",
    "POST /ui/models/{model}/tasks/{n}/{verb}": "task.continue, task.discard, task.relearn",
    "POST /ui/models/{model}/tasks/{n}/data": "task.delete-data",
    "POST /ui/models/{model}/edits": "edit.create",
    "POST /ui/models/{model}/edits/plan": "nothing: leads to the plan of what is ticked",
    "POST /ui/models/{model}/edits/{n}/undo": "edit.undo",
    "POST /ui/models/{model}/edits/{n}/purge": "edit.purge",
    "POST /ui/models/{model}/classes/forget": "class-alias.delete",
    "POST /ui/jobs/{job}/{verb}": "job.cancel, job.pause, job.resume, job.retry, job.choose",
    "POST /ui/models/new": "model.create",
    "POST /ui/models/adopt": "base.create, model.create",
    "POST /ui/first": "model.create, task.submit",
    "POST /ui/first/samples": "the same, for each batch of sample pictures",
    "POST /ui/models/{model}/submit": "task.submit",
    "POST /ui/models/{model}/submit/plan": "nothing: says what a recipe would mean",
    "POST /ui/models/{model}/submit/look": "nothing: says which images cannot be read by their "
    "first bytes",
    "POST /ui/models/{model}/submit/check": "nothing: says what a batch would meet",
    "POST /ui/models/{model}/versions/{version}/predict": "nothing: answers",
    "POST /ui/models/{model}/versions/{version}/export/{format}": "what GET …/download?format= "
    "leaves",
    "POST /ui/admin/keys": "key.create",
    "POST /ui/admin/keys/{key}/revoke": "key.revoke",
    "POST /ui/webhooks": "webhook.create",
    "POST /ui/webhooks/{webhook}/{verb}": "webhook.test, webhook.rotate, webhook.change, "
    "webhook.delete",
    "POST /ui/webhooks/{webhook}/deliveries/{delivery}/redeliver": "webhook.redeliver",
}
"""Forms of the pages, and what they leave by the functions that the calls below have:
tests/api/pages/.
"""

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
    "POST /v1/models/{model}/rebase": "model.rebase",
    "POST /v1/models/{model}/rebase/finish": "model.finish-rebase",
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
    "POST /v1/models/{model}/edits": "edit.create",
    "POST /v1/models/{model}/edits/{n}/undo": "edit.undo",
    "POST /v1/models/{model}/edits/{n}/purge": "edit.purge",
    "DELETE /v1/models/{model}/class-aliases": "class-alias.delete",
    "POST /v1/jobs/{job}/cancel": "job.cancel",
    "POST /v1/jobs/{job}/pause": "job.pause",
    "POST /v1/jobs/{job}/resume": "job.resume",
    "POST /v1/jobs/{job}/retry": "job.retry",
    "POST /v1/jobs/{job}/choose": "job.choose",
    "POST /v1/webhooks": "webhook.create",
    "PATCH /v1/webhooks/{webhook}": "webhook.change",
    "DELETE /v1/webhooks/{webhook}": "webhook.delete",
    "POST /v1/webhooks/{webhook}/test": "webhook.test",
    "POST /v1/webhooks/{webhook}/rotate": "webhook.rotate",
    "POST /v1/webhooks/{webhook}/deliveries/{delivery}/redeliver": "webhook.redeliver",
}
FLOATS = np.zeros((4, 64), np.float32)
MODEL = {"scenario": "class", "architecture": "small-cnn"}
WEBHOOK = {"url": "https://93.184.215.14/hook"}
RENAME = {"rename": {"from": "dog", "to": "hound"}}
RECIPE = {"recipe": {"method": {"name": "finetune", "hyper": {}}}}
BASE = save({"fc1.weight": FLOATS, "fc1.bias": np.zeros(4, np.float32)})


Calls = dict[str, tuple[str, str, dict[str, Any]]]
"""Route → method, path and arguments."""


@pytest.fixture(scope="module", autouse=True)
def expected_tensors() -> Iterator[None]:
    """The learning code is not asked which tensors a base has: its process takes seconds
    to start.
    """
    shapes = {"fc1.weight": [4, 64], "fc1.bias": [4]}
    tensors = {name: {"dtype": "F32", "shape": shape} for name, shape in shapes.items()}
    answer = {"tensors": tensors, "optional": [], "ignored": [], "parameters": 260}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected_base, "_compute_expected_base_tensor_shapes", lambda request: answer)
        yield


@pytest.fixture(scope="module")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, prepare_folder: Callable[[Path], Path], archive: Make
) -> tuple[Path, Calls]:
    """A data folder with something for every call to change, and the calls."""
    folder = prepare_folder(tmp_path_factory.mktemp("prepared"))
    with serve_api(Settings(data_dir=folder, threads=1)) as client:
        return folder, prepare_calls(client, make_publisher(client, folder), archive)


@pytest.fixture
def client(prepared: tuple[Path, Calls], tmp_path: Path) -> Iterator[TestClient]:
    """A client of an API with a copy of that folder."""
    with serve_copy(prepared[0], tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def unchanged(
    prepared: tuple[Path, Calls], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    """A client of an API with another copy, of which no test changes anything."""
    with serve_copy(prepared[0], tmp_path_factory.mktemp("unchanged")) as made:
        yield made


@pytest.fixture
def no_audit() -> Iterator[None]:
    """The database takes no row of the trail."""

    def refuse_audit_insert(
        _connection: object, _cursor: object, statement: str, *_: object
    ) -> None:
        if statement.startswith(f"INSERT INTO {AuditEntry.__tablename__} "):
            raise RuntimeError("no audit row can be written")

    event.listen(Engine, "before_cursor_execute", refuse_audit_insert)
    yield
    event.remove(Engine, "before_cursor_execute", refuse_audit_insert)


def prepare_calls(client: TestClient, publish: Publish, archive: Make) -> Calls:
    """Make what the calls of all routes are to change, and return these calls."""
    model = create_model(client, "birds")
    publish(model)
    memory = {"buffer": {"images": np.zeros((2, 8, 8, 3), np.uint8)}}
    publish(model, memory, types={"buffer": "buffer"})
    jobs = [
        submit_as_decoded(client, archive, name)
        for name in ("to-cancel", "to-pause", "to-resume", "to-retry")
    ]
    assert client.post(f"/v1/jobs/{jobs[2]}/pause").status_code == 200
    publish(create_model(client, "stopped"), passed=False)
    create_model(client, "pinned")
    for _ in range(2):
        publish("pinned")
    assert client.post("/v1/models/pinned/aliases/production/rollback").status_code == 200
    publish(create_model(client, "to-move"))
    publish(create_model(client, "moving"))
    begun = client.post(
        "/v1/models/moving/rebase", json={"base": "perennial/resnet20-cifar100", "name": "moved"}
    )
    assert begun.status_code == 201, begun.text
    publish("moved")
    publish(create_model(client, "to-edit"), manifest=RECIPE)
    for name in ("edited", "purged"):
        make_edit(client, publish, name)
    lacking = submit_as_decoded(client, archive, "lacking")
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        failed, learned = session.get_one(Job, jobs[3]), session.get_one(Job, lacking)
        failed.state, failed.finished_at = "failed", 1.0
        learned.state = "succeeded"
        session.get_one(Task, learned.task_id).standing = "skipped"
    client.put("/v1/models/birds/aliases/unwanted", json={"version": 1})
    spare = client.post("/v1/keys", json={"name": "spare", "owner": "o", "scope": "read"}).json()[
        "id"
    ]
    create_model(client, "unwanted")
    begun = client.post("/v1/uploads", headers={"Upload-Length": "9"}).headers["location"]
    network = {"architecture": '{"name": "mlp", "hidden": [4]}', "image_size": 8, "channels": 1}
    upload = {
        "params": network,
        "content": BASE,
        "headers": {"Content-Type": "application/safetensors"},
    }
    base = client.post("/v1/bases", **upload).json()["id"]
    hook = f"/v1/webhooks/{client.post('/v1/webhooks', json=WEBHOOK).json()['id']}"
    delivery = client.post(f"{hook}/test").json()["id"]
    reason = {"json": {"reason": "because"}}
    given = {
        "webhook.create": ("/v1/webhooks", {"json": WEBHOOK}),
        "webhook.change": (hook, {"json": {"enabled": False}}),
        "webhook.delete": (hook, {}),
        "webhook.test": (f"{hook}/test", {}),
        "webhook.rotate": (f"{hook}/rotate", {}),
        "webhook.redeliver": (f"{hook}/deliveries/{delivery}/redeliver", {}),
        "base.create": ("/v1/bases", upload),
        "base.delete": (f"/v1/bases/{base}", {}),
        "upload.create": ("/v1/uploads", {"headers": {"Upload-Length": "9"}}),
        "upload.delete": (begun, {}),
        "key.create": ("/v1/keys", {"json": {"name": "k", "owner": "new", "scope": "read"}}),
        "key.revoke": (f"/v1/keys/{spare}", {}),
        "model.create": ("/v1/models", {"json": {"name": "fresh", **MODEL}}),
        "model.change": ("/v1/models/birds", {"json": {"recipe": {"epochs": 3}}}),
        "model.delete": ("/v1/models/unwanted", {}),
        "model.rebase": (
            "/v1/models/to-move/rebase",
            {"json": {"base": "perennial/resnet20-cifar100"}},
        ),
        "model.finish-rebase": (
            "/v1/models/moved/rebase/finish",
            {"json": {"reason": "because", "missing": "allow"}},
        ),
        "memory.delete": ("/v1/models/birds/memory", {}),
        "task.submit": ("/v1/models/birds/tasks", {"content": archive(a=2, b=2)}),
        "task.delete-data": ("/v1/models/birds/tasks/1/data", {}),
        "alias.set": (
            "/v1/models/birds/aliases/mine",
            {"json": {"version": 1, "reason": "because"}},
        ),
        "version.change": ("/v1/models/birds/versions/1", {"json": {"note": "best on owls"}}),
        "alias.delete": ("/v1/models/birds/aliases/unwanted", {}),
        "alias.rollback": ("/v1/models/birds/aliases/production/rollback", reason),
        "alias.follow": ("/v1/models/pinned/aliases/production/follow", {}),
        "task.continue": ("/v1/models/stopped/tasks/1/continue", reason),
        "task.discard": ("/v1/models/stopped/tasks/1/discard", reason),
        "edit.create": (
            "/v1/models/to-edit/edits",
            {"json": {"operations": [RENAME], "reason": "because"}},
        ),
        "edit.undo": ("/v1/models/edited/edits/1/undo", reason),
        "edit.purge": ("/v1/models/purged/edits/1/purge", {}),
        "class-alias.delete": ("/v1/models/edited/class-aliases?name=cat", {}),
        "task.relearn": ("/v1/models/lacking/tasks/1/relearn", {}),
    }
    for action, job in zip(("cancel", "pause", "resume", "retry"), jobs, strict=True):
        given[f"job.{action}"] = (f"/v1/jobs/{job}/{action}", {})
    waiting = make_choosing_job(client, archive, "to-choose")
    given["job.choose"] = (f"/v1/jobs/{waiting}/choose", {"json": {"trial": 2}})
    return {route: (route.split()[0], *given[action]) for route, action in ACTIONS.items()}


def make_edit(client: TestClient, publish: Publish, name: str) -> None:
    """Create a model with an edit that has made version 2, and removed images that version 1 has."""
    buffer = {"buffer.images.1": {"images": np.zeros((2, 8, 8, 3), np.uint8)}}
    publish(create_model(client, name), buffer, manifest=RECIPE)
    sent = client.post(f"/v1/models/{name}/edits", json={"operations": [RENAME]})
    assert sent.status_code == 202, sent.text
    publish(name, manifest=RECIPE)
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        job = session.get_one(Job, sent.json()["job"])
        job.state, job.finished_at = "succeeded", 1.0
        edit = session.scalars(select(Edit).where(Edit.job_id == job.id)).one()
        edit.version, edit.journal = 2, EditUndoRecord(removed=2)
        edit.undo_until = db.now(session) + 1e6
        session.add(ClassAlias(model_id=job.model_id, name="cat", to="dog", edit=1, created_at=1.0))


def submit_as_decoded(client: TestClient, archive: Make, name: str) -> str:
    """Send a batch to a new model, mark it as decoded, so that it can be learned again, and
    return its job.
    """
    create_model(client, name)
    sent = client.post(f"/v1/models/{name}/tasks", content=archive(a=2, b=2)).json()
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        session.get_one(Task, sent["task"]["id"]).train_sha256 = "c" * 64
    return str(sent["job"]["id"])


def test_every_call_that_is_no_get_is_known_here(unchanged: TestClient) -> None:
    routes = [r for r in unchanged.app.routes if isinstance(r, APIRoute)]  # type: ignore[attr-defined]
    changing = {f"{m} {r.path}" for r in routes for m in r.methods if m not in ("GET", "HEAD")}
    assert changing == ACTIONS.keys() | READS_ONLY.keys() | OF_PAGES.keys()


@pytest.mark.parametrize("route", ACTIONS)
def test_without_its_row_nothing_is_changed(
    unchanged: TestClient, prepared: tuple[Path, Calls], no_audit: None, route: str
) -> None:
    before = _read_all_tables(unchanged)
    method, path, more = prepared[1][route]
    assert unchanged.request(method, path, **more).status_code == 500
    assert _read_all_tables(unchanged) == before


@pytest.mark.parametrize("route", ACTIONS)
def test_a_change_leaves_one_row_that_says_who_and_what(
    client: TestClient, prepared: tuple[Path, Calls], route: str
) -> None:
    before = client.get("/v1/audit?limit=200").json()["items"]
    method, path, more = prepared[1][route]
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
    assert (row["model"] is None) == (
        row["action"].partition(".")[0] in ("base", "key", "upload", "webhook")
    )
    reason = more.get("json", {}).get("reason")
    if reason is not None:
        assert row["data"]["reason"] == reason


def _read_all_tables(client: TestClient) -> dict[str, list[Any]]:
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with Session(db.engine) as session:
        tables = DatabaseTable.metadata.tables.items()
        return {
            name: [tuple(row) for row in session.execute(select(table))] for name, table in tables
        }


def test_a_call_that_is_refused_leaves_no_row(unchanged: TestClient) -> None:
    before = unchanged.get("/v1/audit").json()
    assert unchanged.put("/v1/models/birds/aliases/mine", json={"version": 77}).status_code == 422
    assert unchanged.post("/v1/models", json={"name": "birds", **MODEL}).status_code == 409
    assert unchanged.get("/v1/audit").json() == before


def test_the_trail_can_only_be_read(client: TestClient, key_of: KeyOf) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert client.request(method, "/v1/audit").status_code == 405
        assert client.request(method, "/v1/audit/1").status_code in (404, 405)
    for scope in ("read", "write"):
        assert client.get("/v1/audit", headers=key_of("somebody", scope)).status_code == 403
