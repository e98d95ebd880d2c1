"""Batches in, versions out: the whole path of two real batches."""

import hashlib
import io
import json
import re
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load

from tests.e2e import small
from tests.e2e.small import WEEKS
from tests.rest import Rest
from tools import service

pytestmark = pytest.mark.slow

RECIPE = {"epochs": 8}
METHOD = {"name": "der++", "buffer": 40}
CNN = {"architecture": "small-cnn"}


@pytest.fixture(scope="module")
def learned(client: Rest) -> list[str]:
    """Teach a model two tasks; the ids of their jobs."""
    small.create(client, "stream", METHOD, recipe=RECIPE, **CNN)
    return [job.id for job in small.learn(client, "stream", *WEEKS[:2])]


@pytest.mark.usefixtures("learned")
def test_each_batch_becomes_the_next_version(client: Rest) -> None:
    versions = client.items("/v1/models/stream/versions")
    assert {v["number"]: v["parent"] for v in versions} == {0: None, 1: 0, 2: 1}
    assert client.get("/v1/models/stream")["aliases"] == {"production": 2, "latest": 2}


@pytest.mark.usefixtures("learned")
def test_the_accuracy_matrix_has_a_cell_where_the_version_knows_the_task(client: Rest) -> None:
    metrics = client.get("/v1/models/stream/metrics")
    assert [row["version"] for row in metrics["rows"]] == [0, 1, 2]
    assert [column["task"] for column in metrics["columns"]] == [1, 2]
    known = [[cell is not None for cell in row] for row in metrics["accuracy_matrix"]]
    assert known == [[False, False], [True, False], [True, True]]
    assert metrics["accuracy_matrix"][1][0] > 0.9
    assert metrics["summary"]["fwt"] is None


@pytest.mark.usefixtures("learned")
def test_the_download_is_what_its_digest_says_and_holds_the_weights_only(
    client: Rest, tmp_path: Path
) -> None:
    file = tmp_path / "model.zip"
    digest = client.download("stream", "latest", file).sha256
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    with zipfile.ZipFile(file) as archive:
        assert {"model.safetensors", "config.json", "README.md"} <= set(archive.namelist())
        tensors = load(archive.read("model.safetensors"))
        config = json.loads(archive.read("config.json"))
    assert config["classes"] == ["0", "1", "2", "3"]
    assert not any("buffer.images" in name or "labels" in name for name in tensors)


@pytest.mark.usefixtures("learned")
def test_prediction_answers_with_a_known_class(client: Rest) -> None:
    image = ("one.png", small.first_image(WEEKS[0], "1/"), "image/png")
    path = "/v1/models/stream/versions/latest/predict"
    (best,) = client.call("POST", path, files={"image": image}).json()["predictions"]
    assert best["label"] in {"0", "1", "2", "3"}
    assert abs(sum(best["probabilities"].values()) - 1) < 1e-4


def test_a_running_job_gives_its_best_state_so_far_and_its_adp(
    client: Rest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.create(client, "anytime", "finetune", recipe={"preset": "fast", "epochs": 10_000, "batch_size": 1})
    job = client.submit("anytime", WEEKS[0]).id  # it has minutes to go: nothing below depends on its speed
    deadline = time.monotonic() + 120
    while (answer := client.http.get(f"/v1/jobs/{job}/anytime/download")).status_code != 200:
        assert answer.status_code == 409 and time.monotonic() < deadline, answer.text
        time.sleep(0.05)
    assert client.get(f"/v1/jobs/{job}")["state"] == "running"
    points: list[Any] = []
    while len(points) < 6:
        assert time.monotonic() < deadline, points
        points = [p for p in client.items(f"/v1/jobs/{job}/metrics") if p["name"] == "adp"]
    assert [p["step"] for p in points][:6] == [0, 1, 2, 3, 5, 8] and 0 <= points[0]["value"] <= 1
    client.jobs.cancel(job)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    code = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)[0]
    exec(compile(code, "README.md", "exec"), scope)
    logits = scope["network"](scope["normalise"](torch.zeros(2, 8, 8, 1, dtype=torch.uint8)))
    assert logits.shape == (2, 2)
    assert json.loads((tmp_path / "config.json").read_text())["anytime"]["job"] == job
    assert client.wait(job).state == "cancelled"
    assert client.http.get(f"/v1/jobs/{job}/anytime/download").status_code == 409


def test_no_snapshot_archive_or_scratch_file_is_left_of_a_job(
    client: Rest, running: service.Service, learned: list[str]
) -> None:
    tasks = [task["id"] for task in client.items("/v1/models/stream/tasks")]
    left = [path for path in running.data_dir.rglob("*") if any(i in str(path) for i in (*learned, *tasks))]
    assert [path for path in left if path.is_file()] == []


def test_the_same_job_is_answered_with_304_until_it_changes(client: Rest, learned: list[str]) -> None:
    first = client.call("GET", f"/v1/jobs/{learned[0]}")
    again = client.call("GET", f"/v1/jobs/{learned[0]}", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304 and not again.content


@pytest.mark.usefixtures("learned")
def test_a_version_is_the_same_bytes_when_learned_again(client: Rest) -> None:
    small.create(client, "again", METHOD, recipe=RECIPE, **CNN)
    small.learn(client, "again", *WEEKS[:2])
    first, second = (
        [
            {p["name"]: p["sha256"] for p in client.get(f"/v1/models/{m}/versions/{v}")["parts"]}
            for v in (1, 2)
        ]
        for m in ("stream", "again")
    )
    assert first == second
