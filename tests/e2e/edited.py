"""Models to edit, and models that were sent the corrected batches instead."""

import io
import zipfile
from collections.abc import Sequence
from itertools import count
from typing import Any

from tests.e2e.small import WEEKS, create_small_model, learn_batches, pack_zip
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
    "dlcft": {"name": "dlcft", "buffer": 30},
    "dne": {"name": "dne", "exemplars": 30},
    "slca": {"name": "slca"},
}
FIELDS: dict[str, Json] = {
    "dne": {
        "architecture": {"name": "dne", "layers": 3, "head_dim": 8, "heads": 4, "patch": 2},
        "image": {"size": 16, "channels": 1},
    }
}
"""Of models whose method needs another network."""


def unpack_archive(batch: bytes) -> dict[str, bytes]:
    """Return the files of an archive by name."""
    with zipfile.ZipFile(io.BytesIO(batch)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


SENT = {name: data for batch in WEEKS for name, data in unpack_archive(batch).items()}
"""The files of all batches; no two have a path in common."""


def make_model_name() -> str:
    """Return a name that no other model has."""
    return f"edited-{next(_NUMBERS)}"


def create_learned_model(client: Rest, method: Json, weeks: int = 3) -> str:
    """Create a model that learned some batches, and return its name."""
    name = make_model_name()
    create_small_model(client, name, method, **FIELDS.get(method["name"], {}))
    learn_batches(client, name, *WEEKS[:weeks])
    return name


def edit_model(client: Rest, model: str, operations: Sequence[Json], **fields: Any) -> Json:
    """Send an edit, and return it once it has succeeded."""
    path = f"/v1/models/{model}/edits"
    sent = client.call("POST", path, json={"operations": list(operations), **fields}).json()
    end = client.wait(sent["job"])
    assert end.state == "succeeded", end.error
    return client.get(f"{path}/{sent['number']}")


def create_corrected_model(client: Rest, model: str, method: Json) -> str:
    """Create a model that is sent the batches of another one as they are now, with their parts.

    An image is the file that was sent, found by its path. The former data keeps no paths;
    there, images are downloaded, each with a request of its own.
    """
    other = f"{model}-corrected"
    create_small_model(client, other, method, **FIELDS.get(method["name"], {}))
    for task in client.items(f"/v1/models/{model}/tasks"):
        if task["standing"] == "discarded":
            # Its number is not used again: seeds depend on it.
            submit_and_cancel(client, other)
            continue
        path, files = f"/v1/models/{model}/tasks/{task['number']}", {}
        for split, folder in (("train", "train"), ("held_out", "test")):
            for image in client.get(f"{path}/images?split={split}&limit=200")["items"]:
                png = SENT.get(image["path"])
                if png is None:
                    url = f"{path}/images/{split}/{image['index']}.png"
                    png = client.call("GET", url).content
                files[f"{folder}/{image['label']}/{image['index']:04}.png"] = png
        learn_batches(client, other, pack_zip(files))
    return other


def submit_and_cancel(client: Rest, model: str) -> None:
    """Send a batch whose job is cancelled before it begins."""
    first = client.submit(model, WEEKS[4])
    client.call("POST", f"/v1/jobs/{first.id}/cancel")
    assert client.wait(first).state == "cancelled"


def describe_newest_version(client: Rest, model: str) -> Json:
    """Return the newest version's classes, digests of what answers, and row of the matrix."""
    newest = client.read_versions(model)[-1]
    manifest = newest["manifest"]
    cells = {
        task["number"]: client.get(f"/v1/models/{model}/tasks/{task['number']}")["accuracy_now"]
        for task in client.items(f"/v1/models/{model}/tasks")
        if task["standing"] == "learned"
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
