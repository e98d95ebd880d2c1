"""Counts of a version's results, and the note that a user writes on a version."""

import pytest

from tests.openapi import check_schema

PER_CLASS = {1: {"cat": [4, 5], "dog": [3, 5]}, 2: {"cat": [8, 10]}}


@pytest.fixture
def url(client, model, publish) -> str:
    publish(model, cells={1: (9, 10)})
    publish(model, cells={1: (7, 10), 2: (8, 10)}, per_class=PER_CLASS)
    return f"/v1/models/{model}/versions"


def test_results_are_told_by_task_and_class(client, url):
    page = client.get(f"{url}/2/results").json()
    assert page["items"] == [
        {"task": 1, "correct": 7, "total": 10, "per_class": PER_CLASS[1]},
        {"task": 2, "correct": 8, "total": 10, "per_class": PER_CLASS[2]},
    ]
    check_schema(client, "ResultPage", page)


def test_results_of_an_alias_come_in_pages(client, url):
    first = client.get(f"{url}/production/results?limit=1").json()
    rest = client.get(f"{url}/production/results?limit=1&cursor={first['next_cursor']}").json()
    assert [item["task"] for item in first["items"] + rest["items"]] == [1, 2]
    assert rest["next_cursor"] is None


def test_a_version_that_was_not_measured_has_no_results(client, url):
    assert client.get(f"{url}/0/results").json() == {"items": [], "next_cursor": None}


def test_results_and_notes_of_another_owner_are_not_there(client, url, key_of):
    assert client.get(f"{url}/1/results", headers=key_of("other")).status_code == 404
    assert client.patch(f"{url}/1", json={"note": "x"}, headers=key_of("other")).status_code == 404
    assert (
        client.patch(f"{url}/1", json={"note": "x"}, headers=key_of("admin", "read")).status_code
        == 403
    )
    assert client.get(f"{url}/7/results").status_code == 404


def test_a_note_is_written_shown_changed_and_removed(client, url):
    assert client.get(f"{url}/1").json()["note"] is None
    for note in ("best on owls\nso far", "superseded", None):
        changed = client.patch(f"{url}/1", json={"note": note})
        assert changed.status_code == 200 and changed.json()["note"] == note
        assert client.get(f"{url}/1").json() == changed.json()
    assert client.get(url).json()["items"][2]["note"] is None


def test_the_same_note_again_leaves_no_row_in_the_trail(client, url):
    for _ in range(2):
        client.patch(f"{url}/1", json={"note": "mine"})
    rows = client.get("/v1/audit?action=version.change").json()["items"]
    assert [(row["data"]["version"], row["data"]["note"]) for row in rows] == [(1, "mine")]


@pytest.mark.parametrize(
    "body", [{}, {"note": "x" * 1001}, {"note": 3}, {"note": "\u202e"}, {"notes": "x"}]
)
def test_a_note_that_is_none_is_refused(client, url, body):
    assert client.patch(f"{url}/1", json=body).status_code == 422
    assert client.get(f"{url}/1").json()["note"] is None
