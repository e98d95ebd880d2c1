import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from sklearn.datasets import load_digits
from torch.nn import functional

from core.learning.networks import ImageSpec, build_network
from core.learning.networks.linear.edits import replace_relu_by_leaky_relu
from tests.before_after.batches import read_digit_images
from tests.e2e import small
from tests.rest import Json, Rest

# In each build test_methods.py learns by it over HTTP, with its forecast. The rest is shown without
# HTTP: tests/core/learning/methods/test_dlcft.py and, for downloads, tests/core/export/test_safetensors_zip.py.
pytestmark = [pytest.mark.slow, pytest.mark.campaign]

NETWORK = {"architecture": {"name": "mlp", "hidden": [32]}, "image": small.IMAGE}
OF_BASE = [6, 7, 8, 9]
"""Digits that the base was trained on; the tasks bring the others first."""
TASKS = 2
PER_CLASS = 40
"""Images of a class in a task, held-out ones included."""
METHOD = {"name": "dlcft", "buffer": 30, "probes": 2}
RECIPE = {"optimizer": {"lr": 0.003}, "epochs": 8, "batch_size": 16, "augment": "none"}
EACH = pytest.mark.parametrize("scenario", ["data", "task", "class"])


@pytest.fixture(scope="module")
def base(client: Rest) -> str:
    """The id of a base that plain PyTorch has trained, with the activations that it is linearised
    with.
    """
    network = build_network(
        NETWORK["architecture"], ImageSpec.parse_image_field(small.IMAGE), "class", seed=1
    )
    network.add_task_classes(1, [str(d) for d in OF_BASE], "default", torch.manual_seed(1))
    replace_relu_by_leaky_relu(network.backbone, 0.01)
    pixels, labels = (torch.tensor(a) for a in load_digits(return_X_y=True))
    rows = torch.isin(labels, torch.tensor(OF_BASE))
    x = ((pixels[rows].float() / 16 - 0.5) / 0.25).view(-1, 1, 8, 8)
    y = labels[rows].long() - OF_BASE[0]
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    generator = torch.manual_seed(2)
    network.train()
    for _ in range(6):
        for chosen in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(network(x[chosen]), y[chosen]).backward()
            optimizer.step()
    network.eval()
    assert (network(x).argmax(1) == y).float().mean() > 0.9
    query = {"architecture": json.dumps(NETWORK["architecture"]), "image_size": 8, "channels": 1}
    body = save({name: t.contiguous() for name, t in network.backbone.state_dict().items()})
    headers = {"Content-Type": "application/safetensors"}
    return str(
        client.call("POST", "/v1/bases", params=query, content=body, headers=headers).json()["id"]
    )


def build_batches(scenario: str) -> list[bytes]:
    """Build two tasks.
    They are pairs of new digits, or in the data scenario other images of the digits 0 to 5.
    """
    if scenario == "data":
        return [build_npz(range(6), PER_CLASS // 2, k) for k in range(TASKS)]
    return [build_npz((2 * k, 2 * k + 1), PER_CLASS) for k in range(TASKS)]


def build_npz(classes: Sequence[int], count: int, turn: int = 0) -> bytes:
    """Pack `count` images of each digit as npz, others at each turn."""
    images = [read_digit_images(digit, turn * count, count) for digit in classes]
    labels = np.repeat(np.array(classes, np.int64), [len(of) for of in images])
    out = io.BytesIO()
    np.savez(out, images=np.concatenate(images), labels=labels)
    return out.getvalue()


def create_and_learn(
    client: Rest, name: str, scenario: str, base: str, method: Json, **fields: Any
) -> None:
    classes = [str(d) for d in range(6)] if scenario == "data" else None
    given = {"scenario": scenario, "base": base, "classes": classes, "recipe": RECIPE, **NETWORK}
    small.create_small_model(client, name, method, **given, **fields)
    small.learn_batches(client, name, *build_batches(scenario))


@pytest.fixture(scope="module")
def learned(client: Rest, base: str) -> Callable[[str], list[Json]]:
    """Scenario → the versions from 0 on of a model of that name."""

    @cache
    def learn_in(scenario: str) -> list[Json]:
        create_and_learn(client, scenario, scenario, base, METHOD)
        return client.read_versions(scenario)

    return learn_in


@EACH
def test_every_task_is_published_around_the_same_frozen_base(learned, scenario: str) -> None:
    versions = learned(scenario)[1:]
    assert [v["status"] for v in versions] == ["published"] * TASKS
    assert all(v["manifest"]["network"]["family"] == "linearised" for v in versions)

    def collect_part_digests(version: Json, kind: str) -> dict[str, str]:
        return {p["name"]: p["sha256"] for p in version["parts"] if p["type"] == kind}

    frozen = [collect_part_digests(v, "backbone") for v in versions]
    assert frozen[0] and frozen[0] == frozen[1]
    for kind in ("displacement", "curvature"):
        changed = [collect_part_digests(v, kind) for v in versions]
        assert changed[0] and changed[0].keys() == changed[1].keys()
        assert all(changed[0][name] != changed[1][name] for name in changed[0])
    shared = [p for p in versions[1]["parts"] if p["type"] == "backbone"]
    assert all(part["shared_with"] == 1 for part in shared)


@EACH
def test_it_learns_and_remembers_better_than_chance(client, learned, scenario: str) -> None:
    learned(scenario)
    found = client.get(f"/v1/models/{scenario}/metrics")
    matrix = found["accuracy_matrix"]
    assert len(matrix) == TASKS + 1
    chance = {"data": 1 / 6, "task": 1 / 2, "class": 1 / 4}[scenario]
    for version in range(1, TASKS + 1):
        for task in range(1, version + 1):
            cell = matrix[version][task - 1]
            assert cell is not None and 0 <= cell <= 1
    assert min(matrix[v][v - 1] for v in range(1, TASKS + 1)) > chance + 0.2
    assert found["summary"]["acc"] > chance + 0.2


@EACH
def test_the_forecast_stands_in_manifest_metrics_and_events(client, learned, scenario: str) -> None:
    told = [v["manifest"].get("forecast") for v in learned(scenario)[1:]]
    summary = client.get(f"/v1/models/{scenario}/metrics")["summary"]
    assert told[0] is None and all(told[1:])
    assert summary["predicted_loss_rise"] == [None, *(f["predicted"] for f in told[1:])]
    assert summary["measured_loss_rise"] == [None, *(f["measured"] for f in told[1:])]
    for number, forecast in enumerate(told[1:], start=2):
        assert math.isfinite(forecast["predicted"])
        assert set(forecast["tasks"]) == {str(task) for task in range(1, number)}
        rises = [t["after"] - t["before"] for t in forecast["tasks"].values()]
        assert forecast["measured"] == pytest.approx(sum(rises) / len(rises))
    job = learned(scenario)[2]["job"]
    names = {
        e["data"]["name"] for e in client.items(f"/v1/jobs/{job}/events") if e["type"] == "metric"
    }
    assert names >= {"predicted_loss_rise", "loss_rise", "end_gradient_norm", "curvature_trace"}


@EACH
def test_curvature_is_a_file_of_each_version_and_the_buffer_is_not(
    client, learned, scenario: str
) -> None:
    learned(scenario)
    url = f"/v1/models/{scenario}/versions/{TASKS}"
    files = {file["name"]: file for file in client.items(f"{url}/files")}
    assert "curvature" in files and "buffer" not in files
    body = client.call("GET", f"{url}/files/curvature").content
    assert len(body) == files["curvature"]["bytes"]
    assert hashlib.sha256(body).hexdigest() == files["curvature"]["sha256"]
    assert any(name.startswith("mean/displacement.") for name in load(body))


def test_only_the_class_scenario_keeps_images(client, learned) -> None:
    for scenario in ("data", "class"):
        learned(scenario)
    assert "buffer" not in {part["type"] for part in client.get("/v1/models/data/memory")["parts"]}
    (buffer,) = (p for p in client.get("/v1/models/class/memory")["parts"] if p["type"] == "buffer")
    assert buffer["items"] == 30 == sum(buffer["per_class"].values())
    assert {t["task"] for t in buffer["per_task"]} == {1, 2}
    assert client.http.get("/v1/models/class/versions/2/files/buffer").status_code == 422


@EACH
def test_the_service_and_the_unpacked_download_answer_alike(
    client, learned, tmp_path: Path, monkeypatch, scenario: str
) -> None:
    learned(scenario)
    folder = small.unpack_version(client, scenario, TASKS, tmp_path)
    code = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[0]
    monkeypatch.chdir(folder)
    scope: Json = {}
    exec(compile(code, "README.md", "exec"), scope)
    pixels = (load_digits().images[:20] * (255 / 16)).round().astype(np.uint8)[..., None]
    query, task = ("?task=2", 2) if scenario == "task" else ("", None)
    path = f"/v1/models/{scenario}/versions/{TASKS}/predict{query}"
    answered = client.call("POST", path, json={"images": pixels.tolist()}).json()
    with torch.inference_mode():
        logits = scope["network"](scope["normalise"](torch.from_numpy(pixels)), task)
    config = scope["config"]
    theirs = (logits / config["temperature"]["value"]).softmax(1)
    classes = config["heads"][1]["classes"] if task else config["classes"]
    ours = torch.tensor([[p["probabilities"][c] for c in classes] for p in answered["predictions"]])
    assert torch.allclose(theirs, ours, atol=1e-5)


def test_a_gate_without_any_predicted_rise_holds_the_second_version(client, base: str) -> None:
    quadratic = {**METHOD, "gradient": "none"}  # never below zero
    create_and_learn(client, "gated", "task", base, quadratic, gate={"max_predicted_loss_rise": 0})
    first, second = client.read_versions("gated")[1:]
    assert (first["status"], second["status"]) == ("published", "held")
    assert first["gate"]["checks"][0]["value"] is None
    (check,) = [check for check in second["gate"]["checks"] if not check["passed"]]
    assert check["name"] == "max_predicted_loss_rise"
    assert check["value"] == second["manifest"]["forecast"]["predicted"] > 0
    assert client.get("/v1/models/gated")["aliases"]["production"] == 1
