"""Batches in, versions out: the whole path of two real batches."""

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load

from tests.e2e import small
from tests.e2e.small import WEEKS
from tests.live_files import list_live_files
from tests.rest import Rest
from tools import service

pytestmark = pytest.mark.slow

RECIPE = {"epochs": 8}
METHOD = {"name": "der++", "buffer": 40}
CNN = {"architecture": "small-cnn"}
PREDICT = "/v1/models/stream/versions/latest/predict"


@pytest.fixture(scope="module")
def learned(client: Rest) -> list[str]:
    """Teach a model two tasks; the ids of their jobs."""
    small.create_small_model(client, "stream", METHOD, recipe=RECIPE, **CNN)
    return [job.id for job in small.learn_batches(client, "stream", *WEEKS[:2])]


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


def build_digit_images() -> dict[str, bytes]:
    """Return a PNG of each digit that the model knows, by its name."""
    return {
        f"{digit}.png": small.take_first_image(WEEKS[digit // 2], f"{digit}/") for digit in range(4)
    }


@pytest.mark.usefixtures("learned")
def test_one_bad_file_costs_no_other_its_answer(client: Rest) -> None:
    good = list(build_digit_images().items())
    sent = [good[0], ("notes.txt", b"not an image"), good[1], ("cut.png", good[2][1][:60]), good[3]]
    files = [("file", (name, data, "application/octet-stream")) for name, data in sent]
    answer = client.call("POST", PREDICT, files=files).json()
    items = answer["predictions"]
    assert [item["name"] for item in items] == [name for name, _ in sent]
    assert ["error" in item for item in items] == [False, True, False, True, False]
    assert items[1]["error"]["code"] == items[3]["error"]["code"] == "image-invalid"
    assert items[1]["error"]["detail"].startswith("The image cannot be used: not a PNG")
    assert items[3]["error"]["detail"] == "The image cannot be used: damaged or cut off."
    one_by_one = [client.call("POST", PREDICT, files={"image": sent[i]}).json() for i in (0, 2, 4)]
    alone = [answer["predictions"][0] for answer in one_by_one]
    for item, single in zip((items[0], items[2], items[4]), alone, strict=True):
        assert item["label"] == single["label"]
        assert item["probability"] == pytest.approx(single["probability"], abs=1e-6)


def test_a_running_job_gives_its_best_state_so_far_and_its_adp(
    client: Rest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.create_small_model(
        client, "anytime", "finetune", recipe={"preset": "fast", "epochs": 10_000, "batch_size": 1}
    )
    job = client.submit(
        "anytime", WEEKS[0]
    ).id  # it has minutes to go: nothing below depends on its speed
    path = f"/v1/jobs/{job}/anytime/download"
    small.wait_until(lambda: client.http.get(path).status_code == 200)
    answer = client.call("GET", path)
    assert client.get(f"/v1/jobs/{job}")["state"] == "running"

    def first_points() -> list[Any]:
        points = [p for p in client.items(f"/v1/jobs/{job}/metrics") if p["name"] == "adp"]
        return points if len(points) >= 6 else []

    points = small.wait_until(first_points)
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
    assert client.http.get(path).status_code == 409


def test_no_snapshot_archive_or_scratch_file_is_left_of_a_job(
    client: Rest, running: service.RunningService, learned: list[str]
) -> None:
    tasks = [task["id"] for task in client.items("/v1/models/stream/tasks")]
    left = [
        path
        for path in list_live_files(running.data_dir)
        if any(i in str(path) for i in (*learned, *tasks))
    ]
    assert left == []


@pytest.mark.campaign  # tests/faults/test_worker_deaths.py compares digests of two lines
@pytest.mark.usefixtures("learned")
def test_a_version_is_the_same_bytes_when_learned_again(client: Rest) -> None:
    small.create_small_model(client, "again", METHOD, recipe=RECIPE, **CNN)
    small.learn_batches(client, "again", *WEEKS[:2])
    first, second = (
        [
            {p["name"]: p["sha256"] for p in client.get(f"/v1/models/{m}/versions/{v}")["parts"]}
            for v in (1, 2)
        ]
        for m in ("stream", "again")
    )
    assert first == second
