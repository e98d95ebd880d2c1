"""Events of an owner's models: pages and a stream of jobs, versions and aliases."""

import json

import pytest

from api import event_stream
from core.database.session import Database
from core.database.tables import OwnerEvent
from tests.openapi import check_schema

STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Make a stream end after it has checked for events twice."""
    monkeypatch.setattr(event_stream, "LIFE_S", 0.02)
    monkeypatch.setattr(event_stream, "LOOK_S", 0.01)


@pytest.fixture
def job(client, model, archive) -> str:
    """Return a job that was submitted and cancelled."""
    made = client.post(f"/v1/models/{model}/tasks", content=archive(cat=2, dog=2)).json()["job"][
        "id"
    ]
    assert client.post(f"/v1/jobs/{made}/cancel").status_code == 200
    return made


def read_event_data(text: str) -> list[dict[str, object]]:
    blocks = [block.split("\n") for block in text.split("\n\n") if "data:" in block]
    return [json.loads(line[6:]) for block in blocks for line in block if line.startswith("data: ")]


def test_a_page_tells_of_versions_aliases_and_jobs_in_order(client, model, job):
    page = client.get("/v1/events").json()
    found = [(event["type"], event["data"]) for event in page["items"]]
    short = [(kind, data.get("state") or data.get("alias")) for kind, data in found]
    assert sorted(short[:3], key=str) == [
        ("alias", "latest"),
        ("alias", "production"),
        ("version", None),
    ]
    assert short[3:] == [("job", "queued"), ("job", "cancelled")]
    last = page["items"][-1]
    assert last["job"] == job and last["model"] == client.get(f"/v1/models/{model}").json()["id"]
    assert last["data"] == {
        "state": "cancelled", "kind": "learn", "task": 1, "version": None, "outcome": None
    }  # fmt: skip
    check_schema(client, "OwnerEventPage", page)


def test_pages_and_types(client, job):
    first = client.get("/v1/events?type=job&limit=1").json()
    rest = client.get(f"/v1/events?type=job&cursor={first['next_cursor']}").json()
    assert [e["data"]["state"] for e in first["items"] + rest["items"]] == ["queued", "cancelled"]
    assert rest["next_cursor"] is None
    others = client.get("/v1/events?type=version,alias").json()["items"]
    assert {event["type"] for event in others} == {"version", "alias"}
    assert client.get("/v1/events?type=log").status_code == 422


def test_an_alias_that_comes_moves_and_goes_is_told(client, model, publish):
    publish(model)
    for version in (0, 1):
        client.put(f"/v1/models/{model}/aliases/mine", json={"version": version})
    client.delete(f"/v1/models/{model}/aliases/mine")
    events = client.get(f"/v1/events?model={model}&type=alias").json()["items"]
    mine = [event["data"] for event in events if event["data"]["alias"] == "mine"]
    assert [(e["version"], e["previous"], e["cause"]) for e in mine] == [
        (0, None, "set"), (1, 0, "set"), (None, 1, "delete")
    ]  # fmt: skip


def test_a_stream_goes_on_after_the_last_event_that_was_seen(client, job):
    ids = [event["id"] for event in client.get("/v1/events").json()["items"]]
    whole = client.get("/v1/events", headers={**STREAM, "Last-Event-ID": "0"})
    assert whole.headers["content-type"].startswith("text/event-stream")
    assert [event["id"] for event in read_event_data(whole.text)] == ids
    rest = client.get("/v1/events", headers={**STREAM, "Last-Event-ID": str(ids[2])})
    assert [event["id"] for event in read_event_data(rest.text)] == ids[3:]
    assert client.get("/v1/events", headers={**STREAM, "Last-Event-ID": "x"}).status_code == 422


def test_a_stream_without_a_beginning_begins_now_and_can_be_resumed(client, job):
    newest = client.get("/v1/events").json()["items"][-1]["id"]
    stream = client.get("/v1/events", headers=STREAM)
    assert read_event_data(stream.text) == [] and f"\nid: {newest}\n\n" in stream.text


def test_a_stranger_is_told_of_nothing(client, model, job, key_of):
    other = key_of("other", "read")
    assert client.get("/v1/events", headers=other).json()["items"] == []
    assert client.get(f"/v1/events?model={model}", headers=other).status_code == 404
    stream = client.get("/v1/events", headers={**other, **STREAM, "Last-Event-ID": "0"})
    assert read_event_data(stream.text) == []


def test_what_is_taken_back_is_not_told(client, model):
    before = client.get("/v1/events").json()
    assert client.put(f"/v1/models/{model}/aliases/mine", json={"version": 7}).status_code == 422
    assert client.get("/v1/events").json() == before


def test_the_stream_of_a_job_that_is_over_ends_for_good(client, job):
    ids = [event["id"] for event in client.get(f"/v1/jobs/{job}/events").json()["items"]]
    url = f"/v1/jobs/{job}/events"
    whole = client.get(url, headers=STREAM)
    assert (
        whole.status_code == 200 and [event["id"] for event in read_event_data(whole.text)] == ids
    )
    assert client.get(url, headers={**STREAM, "Last-Event-ID": str(ids[-2])}).status_code == 200
    again = client.get(url, headers={**STREAM, "Last-Event-ID": str(ids[-1])})
    assert (again.status_code, again.content) == (204, b"")


def test_the_stream_of_a_job_that_waits_stays_open(client, model, archive):
    job = client.post(f"/v1/models/{model}/tasks", content=archive(cat=2, dog=2)).json()["job"][
        "id"
    ]
    last = client.get(f"/v1/jobs/{job}/events").json()["items"][-1]["id"]
    stream = client.get(f"/v1/jobs/{job}/events", headers={**STREAM, "Last-Event-ID": str(last)})
    assert stream.status_code == 200 and read_event_data(stream.text) == []


def test_events_carry_the_owner_of_their_model(client, job):
    db: Database = client.app.state.database
    with db.read() as session:
        owners = {event.owner_id for event in session.query(OwnerEvent)}
    assert len(owners) == 1
