"""The audit trail as a page needs it: newest first, of one model, of one kind, since a time."""

import pytest

from core.database.tables import AuditEntry
from tests.openapi import check_schema


def create_model_for_audit(client, name):
    body = {"name": name, "scenario": "class", "architecture": "small-cnn"}
    return client.post("/v1/models", json=body).json()["id"]


def list_audit_actions(client, query=""):
    page = client.get(f"/v1/audit?{query}")
    assert page.status_code == 200, page.text
    check_schema(client, "AuditPage", page.json())
    return [row["action"] for row in page.json()["items"]]


@pytest.mark.slow
def test_the_trail_is_read_from_either_end_in_pages(client):
    create_model_for_audit(client, "birds")
    client.patch("/v1/models/birds", json={"tags": ["a"]})
    assert list_audit_actions(client) == ["model.create", "model.change"]
    assert list_audit_actions(client, "order=desc") == ["model.change", "model.create"]
    first = client.get("/v1/audit?order=desc&limit=1").json()
    assert list_audit_actions(client, f"order=desc&limit=1&cursor={first['next_cursor']}") == [
        "model.create"
    ]


def test_what_concerns_a_model_is_told_with_its_jobs_tasks_and_versions(
    client, model, publish, archive
):
    create_model_for_audit(client, "other")
    publish(model)
    job = client.post(f"/v1/models/{model}/tasks", content=archive(cat=2, dog=2)).json()["job"][
        "id"
    ]
    client.post(f"/v1/jobs/{job}/cancel")
    client.patch(f"/v1/models/{model}/versions/1", json={"note": "x"})
    client.put(f"/v1/models/{model}/aliases/mine", json={"version": 1})
    found = ["model.create", "task.submit", "job.cancel", "version.change", "alias.set"]
    assert list_audit_actions(client, f"model={model}") == found
    model_id = client.get(f"/v1/models/{model}").json()["id"]
    assert {row["model"] for row in client.get(f"/v1/audit?model={model}").json()["items"]} == {
        model_id
    }
    assert list_audit_actions(client, f"model={model}&action=job.cancel&order=desc") == [
        "job.cancel"
    ]


def test_a_deleted_model_is_found_by_its_id_alone(client):
    model_id = create_model_for_audit(client, "birds")
    client.delete("/v1/models/birds")
    assert list_audit_actions(client, f"model={model_id}") == ["model.create", "model.delete"]
    assert client.get("/v1/audit?model=birds").status_code == 404


def test_rows_since_a_time_are_told(client):
    for name in ("one", "two", "three"):
        create_model_for_audit(client, name)
    with client.app.state.database.write() as session:
        for at, row in enumerate(session.query(AuditEntry).order_by(AuditEntry.id)):
            row.at = 1e9 + at
    assert len(list_audit_actions(client, "since=2001-09-09T01:46:41Z")) == 2
    assert len(list_audit_actions(client, "since=2001-09-09T03:46:41%2B02:00&order=desc")) == 2
    assert list_audit_actions(client, "since=2002-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    "query", ["since=yesterday", "order=newest", "action=model%25", "action=", "model=none"]
)
def test_what_cannot_be_asked_is_typed(client, query):
    assert client.get(f"/v1/audit?{query}").status_code in (404, 422)
