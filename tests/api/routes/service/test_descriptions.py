"""Descriptions and tags of models."""

import pytest

MODEL = {"name": "birds", "scenario": "class", "architecture": "small-cnn"}


def test_description_and_tags_are_given_changed_listed_and_removed(client):
    told = {"description": "Owls of the north.\nAsk Ada.", "tags": ["owls", "día"]}
    made = client.post("/v1/models", json={**MODEL, **told}).json()
    assert {name: made[name] for name in told} == told
    changed = client.patch("/v1/models/birds", json={"tags": ["owls"]}).json()
    assert (changed["description"], changed["tags"]) == (told["description"], ["owls"])
    assert client.get("/v1/models").json()["items"][0]["tags"] == ["owls"]
    cleared = client.patch("/v1/models/birds", json={"tags": None, "description": None}).json()
    assert (cleared["description"], cleared["tags"]) == (None, [])


def test_a_model_without_them_says_so(client):
    made = client.post("/v1/models", json=MODEL).json()
    assert (made["description"], made["tags"]) == (None, [])


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"description": "x" * 1001}, "description"),
        ({"tags": [str(n) for n in range(21)]}, "tags"),
        ({"tags": ["x" * 64]}, "tags"),
        ({"tags": ["a", "a"]}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"tags": "a"}, "tags"),
    ],
)
def test_too_much_or_the_same_twice_is_refused_by_field(client, wrong, field):
    answer = client.post("/v1/models", json={**MODEL, **wrong})
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"].startswith(field)
    assert client.get("/v1/models").json()["items"] == []


def test_a_change_is_in_the_trail(client):
    client.post("/v1/models", json=MODEL)
    client.patch("/v1/models/birds", json={"tags": ["owls"]})
    [row] = client.get("/v1/audit?action=model.change").json()["items"]
    assert row["data"] == {"tags": ["owls"]}
