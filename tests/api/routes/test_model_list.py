"""The list of models over HTTP: with summaries, and by a text in names."""

import pytest

from tests.openapi import check_schema


def test_a_summary_has_the_figures_of_metrics(client, model, publish):
    publish(model, cells={1: (9, 10)})
    publish(model, cells={1: (7, 10), 2: (16, 20)})
    page = client.get("/v1/models?include=summary").json()
    [item] = page["items"]
    told, figures = item["summary"], client.get(f"/v1/models/{model}/metrics").json()["summary"]
    assert told["acc"] == pytest.approx(figures["acc"]) == pytest.approx(0.75)
    assert told["forgetting"] == pytest.approx(figures["forgetting"])
    assert told["acc_line"] == pytest.approx([0.9, 0.75])
    assert (told["production"], told["versions"], told["tasks"], told["last_job"]) == (
        2,
        3,
        2,
        None,
    )
    assert told["bytes"] == client.get(f"/v1/models/{model}/versions/2").json()["bytes"]
    check_schema(client, "ModelPage", page)


def test_a_new_model_has_a_summary_without_figures(client, model):
    [item] = client.get("/v1/models?include=summary").json()["items"]
    assert item["summary"] == {
        "production": 0, "versions": 1, "tasks": 0, "acc": None, "images": None, "forgetting": None,
        "last_job": None, "bytes": 0, "acc_line": [],
    }  # fmt: skip


def test_the_newest_job_is_told_with_its_state(client, model, archive):
    client.post(f"/v1/models/{model}/tasks", content=archive(cat=2, dog=2))
    job = client.post(f"/v1/models/{model}/tasks", content=archive(cat=3, dog=2)).json()["job"]
    [item] = client.get("/v1/models?include=summary").json()["items"]
    assert item["summary"]["last_job"] == {
        "id": job["id"],
        "state": "queued",
        "at": job["created_at"],
    }
    assert item["summary"]["tasks"] == 2


def test_without_being_asked_there_is_no_summary(client, model):
    assert client.get("/v1/models").json()["items"][0]["summary"] is None


def test_another_owner_finds_nothing_by_any_text(client, model, key_of):
    for query in ("q=birds", "include=summary", ""):
        assert client.get(f"/v1/models?{query}", headers=key_of("stranger")).json()["items"] == []


def test_what_can_be_included_is_said(client):
    answer = client.get("/v1/models?include=all")
    assert answer.status_code == 422 and "summary" in answer.json()["detail"]
