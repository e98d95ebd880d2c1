"""Several recipes for one batch through HTTP: the best becomes the version, bit for bit as alone."""

import json
import signal
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from perennial.errors import Conflict, Invalid, NotFound
from tests.e2e.small import WEEKS, create, learn, until
from tests.rest import Json, Rest

_NUMBERS = count()
RIDGE: Json = {"method": {"name": "analytic", "head": "ridge"}}
LDA: Json = {"method": {"name": "analytic", "head": "lda"}}
HEADS = [LDA, RIDGE]
TRAINED: list[Json] = [
    {"method": {"name": "er", "buffer": 20}, "epochs": 2},
    {"method": {"name": "finetune"}, "epochs": 1},
]


def begin(client: Rest, method: str | Json = "analytic", **fields: Any) -> str:
    """A new model."""
    name = f"tried-{next(_NUMBERS)}"
    create(client, name, method, **fields)
    return name


def submit(client: Rest, model: str, batch: bytes, trials: Any = "auto", **query: Any) -> Json:
    """Send a batch with trials, and return the response."""
    text = trials if isinstance(trials, str) else json.dumps(trials)
    path = f"/v1/models/{model}/tasks"
    return client.call("POST", path, params={"trials": text, **query}, content=batch).json()


def read_parts(client: Rest, model: str, version: int) -> dict[str, str]:
    """The digests of a version's parts by name."""
    parts = client.get(f"/v1/models/{model}/versions/{version}")["parts"]
    return {part["name"]: part["sha256"] for part in parts}


def read_table(client: Rest, job: str) -> Json:
    return client.get(f"/v1/jobs/{job}/trials")


def assert_as_alone(
    client: Rest, model: str, table: Json, batches: Sequence[bytes], **fields: Any
) -> None:
    """The newest version is that of a model to which the chosen recipe was sent alone."""
    chosen = table["items"][table["chosen"] - 1]["recipe"]
    alone = begin(client, **fields)
    learn(client, alone, *batches[:-1])
    learn(client, alone, batches[-1], recipe=chosen)
    version = len(batches)
    assert read_parts(client, model, version) == read_parts(client, alone, version)
    tried, expected = (
        client.get(f"/v1/models/{name}/versions/{version}")["manifest"] for name in (model, alone)
    )
    for field in ("recipe", "method", "classes", "tasks", "parts", "datasets", "temperature"):
        assert tried[field] == expected[field], field


@pytest.mark.slow
def test_the_better_head_is_chosen_by_left_out_answers_and_is_as_if_sent_alone(
    client: Rest,
) -> None:
    model = begin(client)
    learn(client, model, WEEKS[0])
    accepted = submit(client, model, WEEKS[1], HEADS)
    end = client.wait(accepted["job"]["id"])
    assert (end.state, end.version) == ("succeeded", 2), end.error
    table = read_table(client, end.id)
    assert [one["state"] for one in table["items"]] == ["measured", "measured"]
    assert table["source"] == "left-out"
    assert table["chosen"] == table["best"]
    for one in table["items"]:
        assert one["score"]["source"] == "left-out"
        assert 0 < one["score"]["value"] <= 1
        assert one["seconds"] > 0
        assert set(one["accuracy"]) == {"1", "2"}
        assert (one["why_lost"] is None) == (one["trial"] == table["chosen"])
    assert_as_alone(client, model, table, WEEKS[:2])
