"""Jobs over HTTP: polling with ETags, actions by state, events as pages and as a stream."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.contract.manifest import Manifest
from core.database.session import Database
from core.database.states import JobAction
from core.database.tables import Job, StoredJobEvent, Version
from core.errors import Unavailable
from core.ids import new_id
from core.settings import Settings
from tests.api.conftest import Make, apply_job_actions, create_model

MANIFEST = Manifest.from_json(
    {"scenario": "class", "architecture": {"name": "mlp"}, "image": {"size": 8, "channels": 3}}
)


@pytest.fixture
def job(client: TestClient, archive: Make) -> str:
    create_model(client, recipe={"method": "er"})
    made: str = client.post("/v1/models/birds/tasks", content=archive(a=2, b=2)).json()["job"]["id"]
    return made


def read_event_data(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def test_a_job_is_read_with_a_strong_etag(client: TestClient, db: Database, job: str) -> None:
    first = client.get(f"/v1/jobs/{job}")
    assert first.status_code == 200
    assert first.json()["state"] == "queued"
    tag = first.headers["etag"]
    assert tag.startswith('"') and tag.endswith('"')
    same = client.get(f"/v1/jobs/{job}", headers={"If-None-Match": tag})
    assert same.status_code == 304
    assert same.content == b""
    assert same.headers["etag"] == tag
    apply_job_actions(db, job, JobAction.VALIDATE)
    changed = client.get(f"/v1/jobs/{job}", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.json()["state"] == "validating"
    assert changed.headers["etag"] != tag


@pytest.mark.parametrize(
    ("form", "status"),
    [("{}", 304), ("W/{}", 304), ('"a", {}', 304), ("*", 304), ('"a"', 200), ("", 200)],
)
def test_if_none_match_takes_every_form(
    client: TestClient, job: str, form: str, status: int
) -> None:
    tag = client.get(f"/v1/jobs/{job}").headers["etag"]
    answer = client.get(f"/v1/jobs/{job}", headers={"If-None-Match": form.format(tag)})
    assert answer.status_code == status


@pytest.mark.parametrize(
    "bad", ["job_x", "mdl_00000000000000000000000000", "job_" + "0" * 26, "x" * 500]
)
def test_an_unknown_job_is_404(shared: TestClient, bad: str) -> None:
    for path in ("", "/events", "/logs", "/metrics"):
        assert shared.get(f"/v1/jobs/{bad}{path}").status_code in (404, 422)
    assert shared.post(f"/v1/jobs/{bad}/cancel").status_code in (404, 422)


def test_all_reads_of_a_job_give_one_shape(client: TestClient, job: str) -> None:
    one = client.get(f"/v1/jobs/{job}").json()
    assert client.get("/v1/jobs").json()["items"] == [one]
    assert client.get("/v1/jobs?state=queued&model=birds").json()["items"] == [one]
    assert client.get("/v1/jobs?state=failed").json()["items"] == []
    assert client.get("/v1/jobs?state=sleeping").status_code == 422


def test_actions_are_idempotent_by_state(client: TestClient, job: str) -> None:
    for action, state in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        for _ in range(2):
            answer = client.post(f"/v1/jobs/{job}/{action}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["state"] == state
    refused = client.post(f"/v1/jobs/{job}/resume")
    assert refused.status_code == 409
    assert refused.json()["state"] == "cancelled"
    assert refused.json()["type"] == "/problems/wrong-state"


def test_a_running_job_is_asked_to_stop(client: TestClient, db: Database, job: str) -> None:
    apply_job_actions(db, job, JobAction.VALIDATE, JobAction.START)
    assert client.post(f"/v1/jobs/{job}/pause").json()["state"] == "pausing"
    assert client.post(f"/v1/jobs/{job}/cancel").json()["state"] == "cancelling"


def test_a_failed_job_is_retried_at_the_end_of_the_line_with_another_recipe(
    client: TestClient, db: Database, job: str, archive: Make
) -> None:
    client.post("/v1/models/birds/tasks", content=archive(c=2))
    apply_job_actions(db, job, JobAction.VALIDATE, JobAction.FAIL)
    answer = client.post(f"/v1/jobs/{job}/retry", json={"recipe": {"epochs": 2}})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/jobs/{job}"
    assert answer.json()["state"] == "queued"
    assert answer.json()["recipe"]["epochs"] == 2
    with db.read() as session:
        row = session.get(Job, job)
        assert row is not None
        assert row.place == 3
        assert row.strikes == 0
    assert client.post(f"/v1/jobs/{job}/retry").status_code == 202
    assert client.post(f"/v1/jobs/{job}/retry", json={"recipe": {"epochs": 5}}).status_code == 409
    assert client.post(f"/v1/jobs/{job}/retry", json={"recipe": {"epochs": 0}}).status_code in (
        409,
        422,
    )
    assert client.post(f"/v1/jobs/{job}/retry", json={"speed": 1}).status_code == 422


def test_a_retry_needs_room_for_one_more_open_job(
    client: TestClient, db: Database, settings: Settings, job: str, archive: Make
) -> None:
    apply_job_actions(db, job, JobAction.VALIDATE, JobAction.FAIL)
    settings.max_open_jobs = 1
    other = client.post("/v1/models/birds/tasks", content=archive(c=2)).json()["job"]["id"]
    refused = client.post(f"/v1/jobs/{job}/retry")
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "failed"
    assert client.post(f"/v1/jobs/{other}/cancel").status_code in (200, 202)
    assert client.post(f"/v1/jobs/{job}/retry").json()["state"] == "queued"


def test_a_held_version_is_retried_by_one_new_job(
    client: TestClient, db: Database, job: str
) -> None:
    apply_job_actions(db, job, JobAction.VALIDATE, JobAction.START, JobAction.PUBLISH)
    assert client.post(f"/v1/jobs/{job}/retry").status_code == 409
    with db.write() as session:
        row = session.get_one(Job, job)
        session.add(
            Version(
                id=new_id("ver"),
                model_id=row.model_id,
                number=1,
                parent=0,
                task_number=1,
                job_id=job,
                status="held",
                gate={"passed": False, "checks": []},
                manifest=MANIFEST,
                bytes=0,
                bytes_new=0,
                created_at=1.0,
            )
        )
    first = client.post(f"/v1/jobs/{job}/retry", json={"recipe": {"epochs": 2}})
    assert first.status_code == 202, first.text
    assert first.json()["id"] != job
    assert first.json()["retry_of"] == job
    assert first.json()["task"] == 1
    again = client.post(f"/v1/jobs/{job}/retry")
    assert again.json()["id"] == first.json()["id"]


def test_events_come_in_pages_with_rising_ids(client: TestClient, db: Database, job: str) -> None:
    with db.write() as session:
        for n in range(5):
            loss = {"name": "loss", "step": n, "value": n}
            session.add(StoredJobEvent(job_id=job, type="metric", data=loss, at=1.0))
            session.add(
                StoredJobEvent(
                    job_id=job, type="log", data={"level": "info", "message": f"m{n}"}, at=2.0
                )
            )
    seen, cursor = [], ""
    while cursor is not None:
        page = client.get(f"/v1/jobs/{job}/events?limit=3{cursor and '&cursor=' + cursor}").json()
        seen += page["items"]
        cursor = page["next_cursor"]
    assert [e["id"] for e in seen] == sorted(e["id"] for e in seen)
    assert len(seen) == 12  # with the job's own two: accepted, and queued
    assert {
        e["type"] for e in client.get(f"/v1/jobs/{job}/events?type=metric").json()["items"]
    } == {"metric"}
    assert client.get(f"/v1/jobs/{job}/events?type=nonsense").status_code == 422
    logs = [line["message"] for line in client.get(f"/v1/jobs/{job}/logs").json()["items"]]
    assert logs[1:] == ["m0", "m1", "m2", "m3", "m4"]
    points = client.get(f"/v1/jobs/{job}/metrics?limit=2").json()
    assert [p["value"] for p in points["items"]] == [0, 1]
    assert points["next_cursor"]


def test_a_jobs_metrics_are_its_losses_and_accuracies(
    client: TestClient, db: Database, job: str
) -> None:
    cell = {"version": "new", "task": 1, "correct": 3, "total": 4}
    with db.write() as session:
        for kind, data in (
            ("progress", {"phase": "validate", "step": 4, "total_steps": 4}),
            ("progress", {"phase": "train"}),
            ("progress", {"phase": "train", "step": 1, "loss": 0.7}),
            ("metric", {"name": "result", "step": None, "data": cell}),
        ):
            session.add(StoredJobEvent(job_id=job, type=kind, data=data, at=1.0))
    points = client.get(f"/v1/jobs/{job}/metrics").json()["items"]
    told = [(p["name"], p["step"], p["value"]) for p in points]
    assert told == [("loss", 1, 0.7), ("accuracy", None, 0.75)]
    assert points[1]["data"] == cell
    first = client.get(f"/v1/jobs/{job}/metrics?limit=1").json()
    assert first["items"] == points[:1]
    second = client.get(f"/v1/jobs/{job}/metrics?limit=1&cursor={first['next_cursor']}").json()
    assert second == {"items": points[1:], "next_cursor": None}


def test_a_page_of_events_has_an_etag_that_moves_with_it(
    client: TestClient, db: Database, job: str
) -> None:
    path = f"/v1/jobs/{job}/events"
    tag = client.get(path).headers["etag"]
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304
    apply_job_actions(db, job, JobAction.PAUSE)
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_a_stream_ends_with_the_terminal_event_and_resumes_after_any(
    client: TestClient, db: Database, job: str
) -> None:
    apply_job_actions(db, job, JobAction.PAUSE, JobAction.CANCEL)
    accept = {"Accept": "text/event-stream"}
    whole = client.get(f"/v1/jobs/{job}/events", headers=accept)
    assert whole.headers["content-type"].startswith("text/event-stream")
    changes = [e for e in read_event_data(whole.text) if e["type"] == "state"]
    assert [e["data"]["state"] for e in changes] == ["queued", "paused", "cancelled"]
    assert read_event_data(whole.text)[-1] == changes[-1]
    second = changes[1]["id"]
    rest = client.get(f"/v1/jobs/{job}/events", headers={**accept, "Last-Event-ID": str(second)})
    assert [e["type"] for e in read_event_data(rest.text)] == ["log", "state"]
    assert read_event_data(rest.text)[-1]["data"]["state"] == "cancelled"
    assert (
        client.get(f"/v1/jobs/{job}/events", headers={**accept, "Last-Event-ID": "x"}).status_code
        == 422
    )


def test_a_stream_ends_after_its_time_and_sends_signs_of_life(
    client: TestClient, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.event_stream.LIFE_S", 0.05)
    monkeypatch.setattr("api.event_stream.LOOK_S", 0.01)
    monkeypatch.setattr("api.event_stream.KEEP_ALIVE_S", 0.02)
    stream = client.get(f"/v1/jobs/{job}/events", headers={"Accept": "text/event-stream"})
    assert ": alive" in stream.text
    assert [e["type"] for e in read_event_data(stream.text)] == ["state", "log"]


def test_a_stream_of_some_types_still_ends(client: TestClient, job: str) -> None:
    client.post(f"/v1/jobs/{job}/cancel")
    stream = client.get(
        f"/v1/jobs/{job}/events?type=metric", headers={"Accept": "text/event-stream"}
    )
    assert read_event_data(stream.text) == []


def test_deleting_a_model_cancels_its_jobs(client: TestClient, job: str) -> None:
    assert client.delete("/v1/models/birds").status_code == 204
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "cancelled"
    assert client.post(f"/v1/jobs/{job}/retry").status_code in (404, 409)


def test_the_catalogue_is_served(client: TestClient) -> None:
    methods = client.get("/v1/methods").json()
    assert {"finetune", "er", "der++"} <= {m["name"] for m in methods["items"]}
    assert client.get("/v1/methods/er").json()["schema"]["type"] == "object"
    assert client.get("/v1/methods/none").status_code == 404
    names = {a["name"] for a in client.get("/v1/architectures").json()["items"]}
    assert {"mlp", "small-cnn", "resnet20", "slim-resnet18"} <= names


@pytest.mark.parametrize("path", ["/v1/methods", "/v1/architectures"])
def test_the_catalogue_comes_in_pages_too(client: TestClient, path: str) -> None:
    whole = client.get(path).json()["items"]
    first = client.get(f"{path}?limit=1").json()
    second = client.get(f"{path}?limit=200&cursor={first['next_cursor']}").json()
    assert first["items"] + second["items"] == whole
    assert second["next_cursor"] is None


def test_health_needs_no_key_and_names_what_is_down(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    del client.headers["Authorization"]
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = {
        "status": "ready",
        "database": "up",
        "store": "up",
        "broker": "none",
        "workers": "none",
    }
    assert client.get("/readyz").json() == ready
    monkeypatch.setattr(client.app.state.doorbell, "get_broker_status", lambda: "down")  # type: ignore[attr-defined]
    broker = client.get("/readyz")
    assert broker.status_code == 200
    assert broker.json()["broker"] == "down"

    def raise_store_unavailable() -> None:
        raise Unavailable("The store does not answer.")

    monkeypatch.setattr(client.app.state.store, "check_store_usable", raise_store_unavailable)  # type: ignore[attr-defined]
    down = client.get("/readyz")
    assert down.status_code == 503
    assert down.json()["store"] == "down"
