"""The ONNX download of a running service: made once, answers as predictions do, runs without torch, survives deaths."""

import io
import json
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from core.db.session import Database
from core.db.tables import Export
from perennial import types
from tests.rest import Rest
from tools import digits, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MLP = {"name": "mlp", "hidden": [16]}
SMALL = {"architecture": MLP, "image": {"size": 8, "channels": 1}}
VIT = {"name": "vit", "layers": 2, "hidden": 48, "heads": 4, "mlp": 64}
DNE = {"name": "dne", "layers": 2, "head_dim": 8, "heads": 3}


def by(method: Any, **settings: Any) -> dict[str, Any]:
    """A small model that learns by a method."""
    recipe = {"method": method} if "analytic" in str(method) else {"method": method, "epochs": 2}
    return {**SMALL, "recipe": recipe, **settings}


METHODS: dict[str, dict[str, Any]] = {
    "plain": by("finetune"),
    "heads": by("finetune", scenario="task"),
    "means": by("icarl"),
    "closed": by({"name": "analytic", "projection": 20}, base="random"),
    "linear": by("dlcft"),
    "discriminants": {"recipe": {"method": {"name": "analytic", "head": "lda"}}},  # of the packaged base
    "class-means": {"recipe": {"method": {"name": "analytic", "head": "ncm"}}},
    "ridge": {"recipe": {"method": "analytic"}},
    "prompts": by("vpt", architecture=VIT),
    "parallel": by("der-net"),
    "experts": by("dne", architecture=DNE),
}
"""Name → a model of a family; those from `class-means` on belong to the campaign."""
CAMPAIGN = list(METHODS)[list(METHODS).index("class-means") :]
TOLERANCES = {"linear": (1e-3, 1e-3), "discriminants": (1e-5, 1e-2), "ridge": (1e-5, 1e-2)}
"""Between what the tolerance of a version lies that is not 1e-5: of `analytic` it is what float32 may move."""
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; exec(open('run.py').read())"


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of armed points of death."""
    return tmp_path_factory.mktemp("points")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, points: Path) -> Iterator[service.Service]:
    settings = {"PERENNIAL_THREADS": "1", "PERENNIAL_LEASE_S": "3", "PERENNIAL_KILL_POINTS": str(points)}
    with service.running(tmp_path_factory.mktemp("service"), settings) as found:
        yield found


@pytest.fixture(scope="module")
def client(running: service.Service) -> Rest:
    return Rest(running.url, running.key)


@pytest.fixture(scope="module")
def plain(client: Rest) -> str:
    """A model that learned two batches."""
    return learned(client, "plain")


@pytest.fixture(scope="module")
def digests() -> set[str]:
    """Of all exports of one version."""
    return set()


def learned(client: Rest, name: str) -> str:
    client.models.create(name, **{"scenario": "class", **METHODS[name]})
    for _, archive in digits.archives()[:2]:
        end = client.wait(client.submit(name, archive))
        assert end.state == "succeeded", end
    return name


def onnx_of(client: Rest, name: str, version: int, folder: Path) -> types.ExportReport:
    """Download a version into a folder; what the job that made it reports."""
    url = f"/v1/models/{name}/versions/{version}/download?format=onnx"
    asked = client.http.get(url)
    assert asked.status_code == 202, asked.text
    job = client.wait(asked.json()["id"])
    assert job.state == "succeeded" and isinstance(job.report, types.ExportReport), job
    packed = client.http.get(url)
    assert packed.status_code == 200 and packed.headers["ETag"] == f'"{job.report.sha256}"'
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        archive.extractall(folder)
    return job.report


def photos(count: int) -> dict[str, bytes]:
    """PNG files of noise, some of them larger than the input."""
    made = {}
    for number in range(count):
        pixels = np.random.default_rng(number).integers(
            0, 256, (8 + number % 3, 8 + number % 5), dtype=np.uint8
        )
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        made[f"{number}.png"] = out.getvalue()
    return made


def predictions(client: Rest, name: str, sent: dict[str, bytes], task: int | None) -> list[dict[str, float]]:
    query = "?top_k=100" if task is None else f"?top_k=100&task={task}"
    files: list[Any] = [("file", (key, data)) for key, data in sent.items()]
    answer = client.http.post(f"/v1/models/{name}/versions/2/predict{query}", files=files)
    assert answer.status_code == 200, answer.text
    return [one["probabilities"] for one in answer.json()["predictions"]]


def graphs_answers(folder: Path, sent: dict[str, bytes], output: str) -> list[dict[str, float]]:
    """What the graph says of a whole batch, whose images the README's code has read."""
    code = (folder / "README.md").read_text().partition("```python\n")[2].partition("with open(")[0]
    read, before = [], sys.argv
    for data in sent.values():
        (folder / "one.png").write_bytes(data)
        scope: dict[str, Any] = {}
        sys.argv = ["run.py", str(folder / "one.png")]
        exec(compile(code, "README.md", "exec"), scope)
        read.append(scope["pixels"])
    sys.argv = before
    labels = json.loads((folder / "labels.json").read_text())[output]
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    (found,) = session.run([output], {"images": np.ascontiguousarray(np.concatenate(read))})
    return [dict(zip(labels, row.tolist(), strict=True)) for row in found]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.campaign] if name in CAMPAIGN else [])
        for name in METHODS
        if name != "plain"
    ],
)
def test_the_graph_of_a_method_answers_as_predictions_over_http_do(
    client: Rest, name: str, tmp_path: Path
) -> None:
    answers_alike(client, learned(client, name), tmp_path)


def test_the_graph_of_a_plain_version_does_and_its_readme_runs_without_torch(
    client: Rest, plain: str, tmp_path: Path
) -> None:
    answers_alike(client, plain, tmp_path)
    (data,) = photos(1).values()
    (tmp_path / "photo.png").write_bytes(data)
    code = (tmp_path / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    (tmp_path / "run.py").write_text(code)
    run = [sys.executable, "-c", WITHOUT_TORCH, "photo.png"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, label, probability = done.stdout.split("\n")[0].split()
    (ours,) = predictions(client, plain, photos(1), None)
    assert label == max(ours, key=lambda each: ours[each]) and abs(ours[label] - float(probability)) <= 1e-5


@pytest.mark.campaign
def test_the_readme_runs_where_only_its_three_packages_are_installed(
    client: Rest, plain: str, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "-q"]
    subprocess.run([*pip, "-c", "constraints.txt", "onnxruntime", "numpy", "pillow"], check=True)
    assert subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 1
    url = f"/v1/models/{plain}/versions/2/download?format=onnx"
    asked = client.http.get(url)
    if asked.status_code == 202:
        client.wait(asked.json()["id"])
    with zipfile.ZipFile(io.BytesIO(client.http.get(url).content)) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "photo.png").write_bytes(photos(1)["0.png"])
    code = (tmp_path / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    (tmp_path / "run.py").write_text(code)
    done = subprocess.run(
        [python, "run.py", "photo.png"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (ours,) = predictions(client, plain, photos(1), None)
    said = {label: float(p) for _, label, p in map(str.split, done.stdout.splitlines())}
    assert said and all(abs(ours[label] - said[label]) <= 1e-5 for label in said)


def answers_alike(client: Rest, name: str, folder: Path) -> None:
    report = onnx_of(client, name, 2, folder)
    least, most = TOLERANCES.get(name, (1e-5, 1e-5))
    assert report.held_out_images and report.max_difference <= report.tolerance
    assert least <= report.tolerance <= most
    labels = json.loads((folder / "labels.json").read_text())
    for output in labels:
        task = None if output == "probabilities" else int(output.removeprefix("task_"))
        for count in (1, 3, 17):
            ours = predictions(client, name, photos(count), task)
            theirs = graphs_answers(folder, photos(count), output)
            furthest = max(
                abs(one[label] - two[label]) for one, two in zip(ours, theirs, strict=True) for label in one
            )
            assert furthest <= report.tolerance + 1e-7, furthest  # answers have seven digits


@pytest.mark.parametrize(
    "point",
    [
        "export-written",
        *(pytest.param(name, marks=pytest.mark.campaign) for name in ("export-stored", "export-made")),
    ],
)
def test_a_death_in_mid_export_ends_with_one_export_of_the_same_bytes(
    client: Rest, plain: str, points: Path, running: service.Service, point: str, digests: set[str]
) -> None:
    db = Database(f"sqlite:///{running.data_dir}/perennial.db")
    with db.write() as session:
        session.query(Export).filter_by(format="onnx").delete()
    url = f"/v1/models/{plain}/versions/1/download?format=onnx"
    (points / point).touch()
    job = client.wait(client.http.get(url).json()["id"])
    assert job.state == "succeeded" and job.attempt == 2, job
    assert not (points / point).exists()
    assert client.http.get(url).status_code == 200
    with db.read() as session:
        rows = session.query(Export).filter_by(format="onnx").all()
    db.close()
    assert isinstance(job.report, types.ExportReport)
    assert [row.sha256 for row in rows] == [job.report.sha256]
    digests.add(str(job.report.sha256))
    assert len(digests) == 1, "processes of their own make the same bytes"


def test_the_export_goes_with_its_model(client: Rest, running: service.Service, tmp_path: Path) -> None:
    client.models.create("short-lived", scenario="class", **METHODS["plain"])
    client.wait(client.submit("short-lived", digits.archives()[0][1]))
    sha256 = onnx_of(client, "short-lived", 1, tmp_path).sha256
    stored = list((running.data_dir / "store").rglob(f"*{sha256}*"))
    assert stored
    assert client.call("DELETE", "/v1/models/short-lived").status_code == 204
    end = time.monotonic() + 30
    while any(path.exists() for path in stored):
        assert time.monotonic() < end
        time.sleep(0.2)


def test_an_export_that_takes_too_long_ends_with_a_sentence_and_stores_nothing(tmp_path: Path) -> None:
    settings = {"PERENNIAL_THREADS": "1", "PERENNIAL_MAX_EXPORT_S": "0.3"}
    with service.running(tmp_path / "service", settings) as running:
        client = Rest(running.url, running.key)
        url = f"/v1/models/{learned(client, 'plain')}/versions/1/download?format=onnx"
        job = client.wait(client.http.get(url).json()["id"])
        assert job.error is not None
        assert (job.state, job.error.kind) == ("failed", "time"), job
        assert "0.3 seconds that one job may have here (PERENNIAL_MAX_EXPORT_S)" in job.error.detail
        refused = client.http.get(url)
        assert refused.status_code == 422 and job.error.detail.rstrip(".") in refused.json()["detail"]
        db = Database(f"sqlite:///{running.data_dir}/perennial.db")
        with db.read() as session:
            assert session.query(Export).all() == []
        db.close()


def test_a_service_without_the_packages_learns_and_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['onnxruntime'] = None\n")
    settings = {"PERENNIAL_THREADS": "1", "PYTHONPATH": str(tmp_path)}
    with service.running(tmp_path / "service", settings) as running:
        client = Rest(running.url, running.key)
        refused = client.http.get(f"/v1/models/{learned(client, 'plain')}/versions/1/download?format=onnx")
        assert (refused.status_code, refused.json()["type"]) == (422, "/problems/export-unavailable")
        assert "pip install 'perennial-service[onnx]'" in refused.json()["detail"]
        assert client.http.get("/v1/models/plain/versions/1/download").status_code == 200
