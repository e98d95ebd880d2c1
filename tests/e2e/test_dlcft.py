"""DLCFT over HTTP: a base of its own is uploaded, and learned on in all three scenarios."""

import hashlib
import io
import math
import re
import time
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load, save
from sklearn.datasets import load_digits
from torch.nn import functional

from core.learn.networks import ImageSpec, build_network
from core.learn.networks.edits import replace_relu
from tests.rest import Rest
from tools import service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.share(4, together=True)]

Json = dict[str, Any]
ARCHITECTURE = {"name": "resnet20", "width": 8}
IMAGE = {"size": 8, "channels": 1}
OF_BASE = [6, 7, 8, 9]
"""Digits that the base was trained on; the tasks bring the others first."""
TASKS = 3
PER_CLASS = 50
"""Images of a class in a task, held-out ones included: a second of training, and one of measuring curvature."""
RECIPE = {
    "method": {"name": "dlcft", "buffer": 60, "probes": 2},
    "optimizer": {"lr": 0.003},
    "epochs": 8,
    "batch_size": 16,
    "augment": "none",
}
STARTED = {"PERENNIAL_THREADS": "1", "PERENNIAL_LEASE_S": "2", "PERENNIAL_CHORES_S": "0.5"}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service.running(tmp_path_factory.mktemp("dlcft"), STARTED) as found:
        yield found


@pytest.fixture(scope="module")
def own(running) -> Rest:
    return Rest(running.url, running.key)


@pytest.fixture(scope="module")
def base(own: Rest) -> str:
    """The id of a base that plain PyTorch has trained, with the activations that it is linearised with."""
    network = build_network(ARCHITECTURE, ImageSpec.of(IMAGE), "class", seed=1)
    network.grow(1, [str(d) for d in OF_BASE], "default", torch.manual_seed(1))
    replace_relu(network.backbone, 0.01)
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
    query = {"architecture": '{"name": "resnet20", "width": 8}', "image_size": 8, "channels": 1}
    body = save({name: t.contiguous() for name, t in network.backbone.state_dict().items()})
    headers = {"Content-Type": "application/safetensors"}
    return str(own.call("POST", "/v1/bases", params=query, content=body, headers=headers).json()["id"])


def batches(scenario: str) -> list[bytes]:
    """Three tasks: pairs of new digits, or in the data scenario other images of the digits 0 to 5."""
    if scenario == "data":
        return [archive(range(6), PER_CLASS // 2, k) for k in range(TASKS)]
    return [archive((2 * k, 2 * k + 1), PER_CLASS) for k in range(TASKS)]


def archive(classes: Sequence[int], count: int, turn: int = 0) -> bytes:
    """An npz of `count` images of each digit, others at each turn."""
    images, labels = load_digits(return_X_y=True)
    pixels = np.rint(images.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    rows = [np.flatnonzero(labels == c)[turn * count : (turn + 1) * count] for c in classes]
    chosen = np.concatenate(rows)
    out = io.BytesIO()
    np.savez(out, images=pixels[chosen], labels=labels[chosen].astype(np.int64))
    return out.getvalue()


def create(client: Rest, name: str, scenario: str, base: str, **fields: Any) -> None:
    classes = [str(d) for d in range(6)] if scenario == "data" else None
    given = {"architecture": ARCHITECTURE, "image": IMAGE, "base": base, "classes": classes, "recipe": RECIPE}
    client.models.create(name, scenario, **{**given, **fields})


def learn(client: Rest, model: str, scenario: str, count: int = TASKS) -> None:
    jobs = [client.submit(model, batch).id for batch in batches(scenario)[:count]]
    for job in jobs:
        end = client.wait(job)
        assert end.state == "succeeded", end


@pytest.fixture(scope="module")
def learned(own: Rest, base: str) -> dict[str, list[Json]]:
    """Scenario → the versions 0 … 3 of a model of that name."""
    for scenario in ("data", "task", "class"):
        create(own, scenario, scenario, base)
        learn(own, scenario, scenario)
    return {s: own.items(f"/v1/models/{s}/versions") for s in ("data", "task", "class")}


SCENARIOS = pytest.mark.parametrize("scenario", ["data", "task", "class"])


@SCENARIOS
def test_every_task_is_published_around_the_same_frozen_base(learned, scenario: str) -> None:
    versions = learned[scenario][1:]
    assert [v["status"] for v in versions] == ["published"] * TASKS
    assert all(v["manifest"]["network"]["family"] == "linearised" for v in versions)

    def digests(version: Json, kind: str) -> dict[str, str]:
        return {p["name"]: p["sha256"] for p in version["parts"] if p["type"] == kind}

    frozen = [digests(v, "backbone") for v in versions]
    assert len(frozen[0]) == 3 and frozen[0] == frozen[1] == frozen[2]
    for kind in ("displacement", "curvature"):
        changed = [digests(v, kind) for v in versions]
        assert changed[0] and changed[0].keys() == changed[1].keys()
        assert all(changed[0][name] != changed[2][name] for name in changed[0])
    shared = [p for v in versions[1:] for p in v["parts"] if p["type"] == "backbone"]
    assert all(part["shared_with"] == 1 for part in shared)


@SCENARIOS
def test_it_learns_and_remembers_better_than_chance(own, learned, scenario: str) -> None:
    found = own.get(f"/v1/models/{scenario}/metrics")
    matrix = found["accuracy_matrix"]
    assert len(matrix) == TASKS + 1
    chance = {"data": 1 / 6, "task": 1 / 2, "class": 1 / 6}[scenario]
    for version in range(1, TASKS + 1):
        for task in range(1, version + 1):
            cell = matrix[version][task - 1]
            assert cell is not None and 0 <= cell <= 1
    assert min(matrix[v][v - 1] for v in range(1, TASKS + 1)) > chance + 0.2
    assert found["summary"]["acc"] > chance + 0.2


@SCENARIOS
def test_the_forecast_stands_in_manifest_metrics_and_events(own, learned, scenario: str) -> None:
    summary = own.get(f"/v1/models/{scenario}/metrics")["summary"]
    told = [v["manifest"].get("forecast") for v in learned[scenario][1:]]
    assert told[0] is None and all(told[1:])
    assert summary["predicted_loss_rise"] == [None, *(f["predicted"] for f in told[1:])]
    assert summary["measured_loss_rise"] == [None, *(f["measured"] for f in told[1:])]
    for number, forecast in enumerate(told[1:], start=2):
        assert math.isfinite(forecast["predicted"])
        assert set(forecast["tasks"]) == {str(task) for task in range(1, number)}
        rises = [t["after"] - t["before"] for t in forecast["tasks"].values()]
        assert forecast["measured"] == pytest.approx(sum(rises) / len(rises))
    job = learned[scenario][2]["job"]
    names = {e["data"]["name"] for e in own.items(f"/v1/jobs/{job}/events") if e["type"] == "metric"}
    assert names >= {"predicted_loss_rise", "loss_rise", "end_gradient_norm", "curvature_trace"}


@SCENARIOS
def test_curvature_is_a_file_of_each_version_and_the_buffer_is_not(own, learned, scenario: str) -> None:
    url = f"/v1/models/{scenario}/versions/{TASKS}"
    files = {file["name"]: file for file in own.items(f"{url}/files")}
    assert "curvature" in files and "buffer" not in files
    body = own.call("GET", f"{url}/files/curvature").content
    assert len(body) == files["curvature"]["bytes"]
    assert hashlib.sha256(body).hexdigest() == files["curvature"]["sha256"]
    assert any(name.startswith("mean/displacement.") for name in load(body))


def test_only_the_class_scenario_keeps_images(own, learned) -> None:
    kinds = {s: {p["type"] for p in own.get(f"/v1/models/{s}/memory")["parts"]} for s in learned}
    assert "buffer" not in kinds["data"] | kinds["task"]
    (buffer,) = (p for p in own.get("/v1/models/class/memory")["parts"] if p["type"] == "buffer")
    assert buffer["items"] == 60 == sum(buffer["per_class"].values())
    assert {t["task"] for t in buffer["per_task"]} == {1, 2, 3}
    assert own.http.get("/v1/models/class/versions/3/files/buffer").status_code == 422


@SCENARIOS
def test_the_service_and_the_unpacked_download_answer_alike(
    own, learned, folder, monkeypatch, scenario: str
) -> None:
    own.download(scenario, TASKS, folder / "version.zip")
    with zipfile.ZipFile(folder / "version.zip") as packed:
        packed.extractall(folder)
    code = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[0]
    monkeypatch.chdir(folder)
    scope: Json = {}
    exec(compile(code, "README.md", "exec"), scope)
    pixels = (load_digits().images[:20] * (255 / 16)).round().astype(np.uint8)[..., None]
    query, task = ("?task=2", 2) if scenario == "task" else ("", None)
    path = f"/v1/models/{scenario}/versions/{TASKS}/predict{query}"
    answered = own.call("POST", path, json={"images": pixels.tolist()}).json()
    with torch.inference_mode():
        theirs = scope["network"](scope["normalise"](torch.from_numpy(pixels)), task).softmax(1)
    config = scope["config"]
    classes = config["heads"][1]["classes"] if task else config["classes"]
    ours = torch.tensor([[p["probabilities"][c] for c in classes] for p in answered["predictions"]])
    assert torch.allclose(theirs, ours, atol=1e-5)


def test_a_gate_without_any_predicted_rise_holds_the_second_version(own, base: str) -> None:
    quadratic = {**RECIPE, "method": {**RECIPE["method"], "gradient": "none"}}  # never below zero
    create(own, "gated", "task", base, gate={"max_predicted_loss_rise": 0}, recipe=quadratic)
    learn(own, "gated", "task", 2)
    first, second = own.items("/v1/models/gated/versions")[1:]
    assert (first["status"], second["status"]) == ("published", "held")
    assert first["gate"]["checks"][0]["value"] is None
    (check,) = [check for check in second["gate"]["checks"] if not check["passed"]]
    assert check["name"] == "max_predicted_loss_rise"
    assert check["value"] == second["manifest"]["forecast"]["predicted"] > 0
    assert own.get("/v1/models/gated")["aliases"]["production"] == 1


def test_what_does_not_fit_is_refused_with_its_field(own, base: str, learned) -> None:
    linear = {"method": {"name": "dlcft", "head_mode": "linear"}}
    body = {"name": "never", "scenario": "class", "recipe": linear}
    answer = own.http.post("/v1/models", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "recipe.method.head_mode"
    for model, recipe, field in (
        ("task", {"method": "er"}, "recipe.method.name"),
        ("task", linear, "recipe.method.head_mode"),
        ("data", {"method": {"slope": 0.3}}, "recipe.method.slope"),
    ):
        answer = own.http.patch(f"/v1/models/{model}", json={"recipe": recipe})
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"] == field
    given = {"architecture": ARCHITECTURE, "image": IMAGE, "base": {"model": "class", "version": 2}}
    answer = own.http.post("/v1/models", json={"name": "never", "scenario": "class", **given})
    assert answer.status_code == 422 and "is linearised" in answer.json()["detail"]


def test_a_base_of_random_weights_is_made_by_the_first_task_with_a_warning(own) -> None:
    create(own, "random", "class", "random")
    learn(own, "random", "class", 2)
    warnings = own.get("/v1/models/random/tasks/1")["warnings"]
    assert any("random weights" in text for text in warnings), warnings
    first, second = own.items("/v1/models/random/versions")[1:]
    frozen = [{p["sha256"] for p in v["parts"] if p["type"] == "backbone"} for v in (first, second)]
    assert frozen[0] == frozen[1] and math.isfinite(second["manifest"]["forecast"]["predicted"])


def consolidating(client: Rest, job: str) -> None:
    """Return when the job has begun to measure its curvature."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = client.get(f"/v1/jobs/{job}")
        if (found["progress"] or {}).get("phase") == "consolidate":
            return
        assert not found["is_terminal"], "too fast to be killed"
        time.sleep(0.02)
    raise AssertionError(f"{job} did not come to its curvature")


def job_process(running: service.Service) -> psutil.Process:
    """The process that the zygote forked for the job."""
    for found in psutil.Process(running.process.pid).children(recursive=True):
        parent = found.parent()
        if "worker.zygote" in found.cmdline() and parent is not None and parent.cmdline() == found.cmdline():
            return found
    raise AssertionError("no job runs")


@pytest.mark.campaign  # tests/core/learn/methods/test_dlcft.py kills a run in every scenario
@pytest.mark.parametrize("scenario", ["class"])
def test_a_job_that_is_killed_in_its_curvature_pass_changes_no_bit(
    running, own, base: str, scenario: str
) -> None:
    """A few steps, and then all outputs of each image one by one: nearly all of the job is the pass."""
    many = [archive(range(first, first + 5), 100) for first in (0, 5)]
    recipe = {**RECIPE, "epochs": 1, "batch_size": 128, "method": {"name": "dlcft", "buffer": 60}}

    def digests(name: str, disturb: Callable[[str], None]) -> dict[str, str]:
        create(own, name, scenario, base, recipe=recipe)
        jobs = [own.submit(name, batch).id for batch in many]
        assert own.wait(jobs[0]).state == "succeeded"
        disturb(jobs[1])
        end = own.wait(jobs[1])
        assert end.state == "succeeded", end
        return {p["name"]: p["sha256"] for p in own.get(f"/v1/models/{name}/versions/2")["parts"]}

    killed: list[str] = []

    def kill(job: str) -> None:
        consolidating(own, job)
        job_process(running).kill()
        killed.append(job)

    undisturbed = digests(f"undisturbed-{scenario}", lambda _job: None)
    assert digests(f"killed-{scenario}", kill) == undisturbed
    assert own.get(f"/v1/jobs/{killed[0]}")["attempt"] == 2
