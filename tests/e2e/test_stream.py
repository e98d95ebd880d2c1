"""Batches in, versions out: the whole path of two real batches through a service on its own."""

import hashlib
import io
import json
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load

from tests.rest import Rest
from tools import digits, service

RECIPE = {"method": {"name": "der++", "buffer": 100}, "epochs": 8}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    """A service of its own: what is left in its folders is looked at."""
    settings = {"PERENNIAL_THREADS": "1", "PERENNIAL_ANYTIME_S": "0.2"}
    with service.running(tmp_path_factory.mktemp("service"), settings) as found:
        yield found


@pytest.fixture(scope="module")
def learned(running, tmp_path_factory) -> str:
    """A model with two learned tasks."""
    client = Rest(running.url, running.key)
    client.models.create("stream", recipe=RECIPE, architecture="small-cnn")
    jobs = [client.submit("stream", archive, name=name).id for name, archive in digits.archives()[:2]]
    for job in jobs:
        end = client.wait(job)
        assert end.state == "succeeded", end
    return "stream"


def test_each_batch_becomes_the_next_version(client, learned):
    versions = client.get(f"/v1/models/{learned}/versions?limit=10")["items"]
    assert sorted(v["number"] for v in versions) == [0, 1, 2]
    assert {v["number"]: v["parent"] for v in versions} == {0: None, 1: 0, 2: 1}
    assert client.get(f"/v1/models/{learned}")["aliases"] == {"production": 2, "latest": 2}


def test_the_accuracy_matrix_has_a_cell_where_the_version_knows_the_task(client, learned):
    metrics = client.get(f"/v1/models/{learned}/metrics")
    assert [row["version"] for row in metrics["rows"]] == [0, 1, 2]
    assert [column["task"] for column in metrics["columns"]] == [1, 2]
    known = [[cell is not None for cell in row] for row in metrics["accuracy_matrix"]]
    assert known == [[False, False], [True, False], [True, True]]
    assert metrics["accuracy_matrix"][1][0] > 0.9
    assert metrics["summary"]["fwt"] is None


def test_the_download_is_what_its_digest_says_and_holds_the_weights_only(client, learned, tmp_path):
    file = tmp_path / "model.zip"
    digest = client.download(learned, "latest", file).sha256
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    with zipfile.ZipFile(file) as archive:
        assert {"model.safetensors", "config.json", "README.md"} <= set(archive.namelist())
        tensors = load(archive.read("model.safetensors"))
        config = json.loads(archive.read("config.json"))
    assert config["classes"] == ["0", "1", "2", "3"]
    assert not any("buffer.images" in name or "labels" in name for name in tensors)


def test_prediction_answers_with_a_known_class(client, learned):
    _, archive = digits.archives()[0]
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        name = next(n for n in opened.namelist() if n.startswith("1/"))
        image = opened.read(name)
    answer = client.call(
        "POST",
        f"/v1/models/{learned}/versions/latest/predict",
        files={"image": ("one.png", image, "image/png")},
    ).json()
    best = answer["predictions"][0]
    assert best["label"] in {"0", "1", "2", "3"}
    assert abs(sum(best["probabilities"].values()) - 1) < 1e-4


def test_a_running_job_gives_its_best_state_so_far_and_its_adp(running, client, tmp_path, monkeypatch):
    recipe = {"preset": "fast", "epochs": 5000, "batch_size": 64}
    client.models.create("anytime", architecture={"name": "mlp", "hidden": [16]}, recipe=recipe)
    job = client.submit("anytime", digits.archives()[0][1]).id
    deadline = time.monotonic() + 30
    while (answer := client.http.get(f"/v1/jobs/{job}/anytime/download")).status_code != 200:
        assert answer.status_code == 409 and time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    assert client.get(f"/v1/jobs/{job}")["state"] == "running"
    points: list = []
    while len(points) < 6 and time.monotonic() < deadline:
        points = [p for p in client.items(f"/v1/jobs/{job}/metrics") if p["name"] == "adp"]
    assert [p["step"] for p in points][:6] == [0, 1, 2, 3, 5, 8] and 0 <= points[0]["value"] <= 1
    client.jobs.cancel(job)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    code = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)[0]
    exec(compile(code, "README.md", "exec"), scope)
    logits = scope["network"](scope["normalise"](torch.zeros(2, 32, 32, 3, dtype=torch.uint8)))
    assert (
        logits.shape == (2, 2) and json.loads((tmp_path / "config.json").read_text())["anytime"]["job"] == job
    )
    assert client.wait(job).state == "cancelled"
    assert client.http.get(f"/v1/jobs/{job}/anytime/download").status_code == 409


def test_no_snapshot_archive_or_training_image_is_left_in_the_store(running, client, learned):
    store = running.data_dir / "store"
    left = {str(p.relative_to(store)).split("/")[0] for p in store.rglob("*") if p.is_file()}
    assert "snapshots" not in left and "uploads" not in left
    assert not list((running.data_dir / "spool").iterdir())
    assert not [p for p in (running.data_dir / "work").rglob("*.safetensors")]


def test_the_same_job_is_answered_with_304_until_it_changes(client, learned):
    job = client.get("/v1/jobs?model=stream")["items"][0]["id"]
    first = client.call("GET", f"/v1/jobs/{job}")
    again = client.call("GET", f"/v1/jobs/{job}", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304 and not again.content


@pytest.mark.campaign
def test_a_version_is_the_same_bytes_when_learned_again(client, learned, tmp_path: Path):
    client.models.create("again", recipe=RECIPE, architecture="small-cnn")
    for name, archive in digits.archives()[:2]:
        client.wait(client.submit("again", archive, name=name))
    for version in (1, 2):
        first, second = (
            {p["name"]: p["sha256"] for p in client.get(f"/v1/models/{m}/versions/{version}")["parts"]}
            for m in (learned, "again")
        )
        assert first == second
