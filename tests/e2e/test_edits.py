"""Edits of a model through HTTP: each ends as a model that was sent the corrected batches."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from tests.e2e.small import WEEKS, create, learn, pack
from tests.rest import Json, Rest

_NUMBERS = count()
ANALYTIC: Json = {"name": "analytic", "projection": 64}
METHODS: dict[str, Json] = {
    "ridge": {**ANALYTIC, "head": "ridge"},
    "lda": {**ANALYTIC, "head": "lda", "projection": 0},
    "ncm": {**ANALYTIC, "head": "ncm"},
    "auto": ANALYTIC,
    "er": {"name": "er", "buffer": 30},
    "der++": {"name": "der++", "buffer": 30},
}
OPERATIONS: dict[str, list[Json]] = {
    "relabel": [
        {"relabel": {"task": 1, "image": 3, "label": "1"}},
        {"relabel": {"task": 2, "image": 40, "label": "2"}},
        {"relabel": {"task": 1, "part": "held_out", "image": 2, "label": "1"}},
    ],
    "relabel to a new class": [{"relabel": {"task": 1, "image": 5, "label": "odd"}}],
    "relabel to a class of another task": [{"relabel": {"task": 1, "image": 5, "label": "3"}}],
    "remove": [
        {"remove": {"task": 2, "image": 0}},
        {"remove": {"task": 2, "part": "held_out", "image": 1}},
    ],
    "rename": [{"rename": {"from": "2", "to": "two"}}],
    "merge": [{"merge": {"from": ["1", "2"], "into": "1"}}],
    "drop": [{"drop": {"class": "0"}}],
}


def begin(client: Rest, method: Json, weeks: int = 3) -> str:
    """A model that learned some batches."""
    name = f"edited-{next(_NUMBERS)}"
    create(client, name, method)
    learn(client, name, *WEEKS[:weeks])
    return name


def edit(client: Rest, model: str, operations: Sequence[Json], **fields: Any) -> Json:
    """Send an edit, and return it once it has succeeded."""
    path = f"/v1/models/{model}/edits"
    sent = client.call("POST", path, json={"operations": list(operations), **fields}).json()
    end = client.wait(sent["job"])
    assert end.state == "succeeded", end.error
    return client.get(f"{path}/{sent['number']}")


def send_corrected(client: Rest, model: str, method: Json) -> str:
    """A model that is sent the batches of another one as they are now, with their parts."""
    other = f"{model}-corrected"
    create(client, other, method)
    for task in client.items(f"/v1/models/{model}/tasks"):
        path, files = f"/v1/models/{model}/tasks/{task['number']}", {}
        for split, folder in (("train", "train"), ("held_out", "test")):
            for image in client.get(f"{path}/images?split={split}&limit=200")["items"]:
                png = client.call("GET", f"{path}/images/{split}/{image['index']}.png").content
                files[f"{folder}/{image['label']}/{image['index']:04}.png"] = png
        learn(client, other, pack(files))
    return other


def describe(client: Rest, model: str) -> Json:
    """The newest version: classes, digests of what answers, and its row of the matrix."""
    newest = client.read_versions(model)[-1]
    manifest = newest["manifest"]
    cells = {
        task["number"]: client.get(f"/v1/models/{model}/tasks/{task['number']}")["accuracy_now"]
        for task in client.items(f"/v1/models/{model}/tasks")
    }
    return {
        "classes": manifest["classes"],
        "parts": {
            part["name"]: part["sha256"]
            for part in manifest["parts"]
            if part["type"] not in ("statistics", "features")
        },
        "temperature": manifest["temperature"],
        "accuracy": cells,
    }


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=() if name in ("auto", "er") else pytest.mark.campaign)
        for name in METHODS
    ],
)
def test_the_version_is_that_of_a_model_that_was_sent_the_corrected_batches(
    client: Rest, method: str, operation: str
) -> None:
    model = begin(client, METHODS[method])
    made = edit(client, model, OPERATIONS[operation])
    assert made["way"] == ("recompute" if "analytic" in str(METHODS[method]) else "relearn")
    other = send_corrected(client, model, METHODS[method])
    assert describe(client, model) == describe(client, other)
    # Both go on alike: what later updates read is equal, too.
    for each in (model, other):
        learn(client, each, WEEKS[3])
    assert describe(client, model) == describe(client, other)
