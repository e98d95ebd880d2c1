"""The ONNX download of a running service: made once, answers as predictions do, runs without torch,
survives deaths.
"""

import io
import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import onnxruntime
import pytest
from PIL import Image

from core.database.session import Database
from core.database.tables import ExportedDownload
from perennial import types
from tests.e2e import small
from tests.live_files import list_live_files
from tests.rest import Json, Rest
from tools import service

pytestmark = pytest.mark.slow

VIT = {"name": "vit", "layers": 2, "hidden": 48, "heads": 4, "mlp": 64}
DNE = {"name": "dne", "layers": 2, "head_dim": 8, "heads": 3}
PACKAGED = {"architecture": None, "image": None}
METHODS: dict[str, tuple[Json | str, Json]] = {
    "heads": ("finetune", {"scenario": "task"}),
    "means": ("icarl", {}),
    "closed": ({"name": "analytic", "projection": 20}, {"base": "random"}),
    "linear": ("dlcft", {}),
    "discriminants": ({"name": "analytic", "head": "lda"}, PACKAGED),
    "class-means": ({"name": "analytic", "head": "ncm"}, PACKAGED),
    "ridge": ("analytic", PACKAGED),
    "prompts": ("vpt", {"architecture": VIT}),
    "parallel": ("der-net", {}),
    "experts": ("dne", {"architecture": DNE}),
}
"""Name → the method of a model of a family, and other fields; `tests/core/learning/export` compares all
without HTTP.
"""
TOLERANCES = {"linear": (1e-3, 1e-3), "discriminants": (1e-5, 1e-2), "ridge": (1e-5, 1e-2)}
"""Between what the tolerance of a version lies that is not 1e-5: of `analytic` it is what float32
may move.
"""
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; exec(open('run.py').read())"


@pytest.fixture(scope="module")
def plain(client: Rest) -> str:
    """A model that learned two batches."""
    return create_and_learn(client, "plain")


def create_and_learn(client: Rest, name: str) -> str:
    method, fields = METHODS.get(name, ("finetune", {}))
    small.create_small_model(client, name, method, **fields)
    small.learn_batches(client, name, *small.WEEKS[:2])
    return name


def download_onnx(client: Rest, name: str, version: int, folder: Path) -> types.ExportReport:
    """Download a version into a folder, and return the report of the job that made it."""
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


def download_when_made(client: Rest, url: str) -> httpx2.Response:
    """Return a download, once a job has made it."""
    answer = client.http.get(url)
    if answer.status_code == 202:
        assert client.wait(answer.json()["id"]).state == "succeeded"
        answer = client.http.get(url)
    assert answer.status_code == 200, answer.text
    return answer


def make_noise_photos(count: int) -> dict[str, bytes]:
    """Make PNG files of noise, some of them larger than the input."""
    made = {}
    for number in range(count):
        pixels = np.random.default_rng(number).integers(
            0, 256, (8 + number % 3, 8 + number % 5), dtype=np.uint8
        )
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        made[f"{number}.png"] = out.getvalue()
    return made


def predict_with_service(
    client: Rest, name: str, sent: dict[str, bytes], task: int | None
) -> list[dict[str, float]]:
    query = "?top_k=100" if task is None else f"?top_k=100&task={task}"
    files: list[Any] = [("file", (key, data)) for key, data in sent.items()]
    answer = client.http.post(f"/v1/models/{name}/versions/2/predict{query}", files=files)
    assert answer.status_code == 200, answer.text
    return [one["probabilities"] for one in answer.json()["predictions"]]


def predict_with_graph(folder: Path, sent: dict[str, bytes], output: str) -> list[dict[str, float]]:
    """Return what the graph predicts for a whole batch.
    The README's code has read its images.
    """
    code = (folder / "README.md").read_text().partition("```python\n")[2].partition("with open(")[0]
    read, before, paths = [], sys.argv, sys.path
    sys.path = [str(folder), *paths]
    for data in sent.values():
        (folder / "one.png").write_bytes(data)
        scope: dict[str, Any] = {}
        sys.argv = ["run.py", str(folder / "one.png")]
        exec(compile(code, "README.md", "exec"), scope)
        read.append(scope["pixels"])
    sys.argv, sys.path = before, paths
    labels = json.loads((folder / "labels.json").read_text())[output]
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    (found,) = session.run([output], {"images": np.ascontiguousarray(np.concatenate(read))})
    return [dict(zip(labels, row.tolist(), strict=True)) for row in found]


@pytest.mark.campaign
@pytest.mark.parametrize("name", METHODS)
def test_the_graph_of_a_method_answers_as_predictions_over_http_do(
    client: Rest, name: str, tmp_path: Path
) -> None:
    check_predictions_agree(client, create_and_learn(client, name), tmp_path)


def test_the_graph_of_a_plain_version_does_and_its_readme_runs_without_torch(
    client: Rest, plain: str, tmp_path: Path
) -> None:
    check_predictions_agree(client, plain, tmp_path)
    said = run_readme(tmp_path, [sys.executable, "-c", WITHOUT_TORCH])
    (ours,) = predict_with_service(client, plain, make_noise_photos(1), None)
    assert said and all(abs(ours[label] - said[label]) <= 1e-5 for label in said)


@pytest.mark.campaign
def test_the_readme_runs_where_only_its_three_packages_are_installed(
    client: Rest, plain: str, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        python,
        "install",
        "-q",
    ]
    subprocess.run([*pip, "-c", "constraints.txt", "onnxruntime", "numpy", "pillow"], check=True)
    assert (
        subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode
        == 1
    )
    url = f"/v1/models/{plain}/versions/2/download?format=onnx"
    with zipfile.ZipFile(io.BytesIO(download_when_made(client, url).content)) as archive:
        archive.extractall(tmp_path)
    said = run_readme(tmp_path, [python, "run.py"])
    (ours,) = predict_with_service(client, plain, make_noise_photos(1), None)
    assert said and all(abs(ours[label] - said[label]) <= 1e-5 for label in said)


def run_readme(folder: Path, command: list[str]) -> dict[str, float]:
    """Run the program of an unpacked README.md on a photo.
    Return the probabilities that it prints, by label.
    """
    (folder / "photo.png").write_bytes(make_noise_photos(1)["0.png"])
    code = (folder / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    (folder / "run.py").write_text(code)
    done = subprocess.run(
        [*command, "photo.png"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {label: float(p) for _, label, p in map(str.split, done.stdout.splitlines())}


def check_predictions_agree(client: Rest, name: str, folder: Path) -> None:
    report = download_onnx(client, name, 2, folder)
    least, most = TOLERANCES.get(name, (1e-5, 1e-5))
    assert report.held_out_images and report.max_difference <= report.tolerance
    assert least <= report.tolerance <= most
    labels = json.loads((folder / "labels.json").read_text())
    for output in labels:
        task = None if output == "probabilities" else int(output.removeprefix("task_"))
        for count in (1, 3, 17):
            ours = predict_with_service(client, name, make_noise_photos(count), task)
            theirs = predict_with_graph(folder, make_noise_photos(count), output)
            furthest = max(
                abs(one[label] - two[label])
                for one, two in zip(ours, theirs, strict=True)
                for label in one
            )
            assert furthest <= report.tolerance + 1e-7, furthest  # answers have seven digits


# tests/core/learning/export/test_graph.py shows equal bytes, and tests/faults/test_worker_deaths.py
# deaths in jobs.
@pytest.mark.campaign
@pytest.mark.parametrize("point", ["export-written", "export-stored", "export-made"])
def test_a_death_in_mid_export_ends_with_one_export_of_the_same_bytes(
    client: Rest, plain: str, kill_points: Path, running: service.RunningService, point: str
) -> None:
    url = f"/v1/models/{plain}/versions/2/download?format=onnx"
    download_when_made(client, url)
    version = client.get(f"/v1/models/{plain}/versions/2")["id"]
    db = Database(f"sqlite:///{running.data_dir}/perennial.db")
    with db.write() as session:
        before = (
            session.query(ExportedDownload)
            .filter_by(version_id=version, format="onnx")
            .one()
            .sha256
        )
        session.query(ExportedDownload).filter_by(version_id=version, format="onnx").delete()
    (kill_points / point).touch()
    job = client.wait(client.http.get(url).json()["id"])
    assert job.state == "succeeded" and job.attempt == 2, job
    assert not (kill_points / point).exists()
    assert client.http.get(url).status_code == 200
    with db.read() as session:
        rows = session.query(ExportedDownload).filter_by(version_id=version, format="onnx").all()
    db.close()
    assert isinstance(job.report, types.ExportReport)
    assert [row.sha256 for row in rows] == [job.report.sha256] == [before], (
        "each process makes the same bytes"
    )


def test_the_export_goes_with_its_model(
    client: Rest, plain: str, running: service.RunningService
) -> None:
    """Delete the model that all tests above have used."""
    packed = download_when_made(client, f"/v1/models/{plain}/versions/2/download?format=onnx")
    digest = packed.headers["ETag"].strip('"')
    stored = [path for path in list_live_files(running.data_dir / "store") if digest in path.name]
    assert stored
    client.models.delete(plain)
    small.wait_until(lambda: not any(path.exists() for path in stored))


# tests/core/execution/test_exporters.py and tests/api/routes/test_onnx_download.py have the parts
@pytest.mark.campaign
def test_an_export_that_takes_too_long_ends_with_a_sentence_and_stores_nothing(
    tmp_path: Path,
) -> None:
    settings = {"PERENNIAL_THREADS": "1", "PERENNIAL_MAX_EXPORT_S": "0.3"}
    with service.run_temporary_service(tmp_path / "service", settings) as running:
        client = Rest(running.url, running.key)
        url = f"/v1/models/{create_and_learn(client, 'plain')}/versions/1/download?format=onnx"
        job = client.wait(client.http.get(url).json()["id"])
        assert job.error is not None
        assert (job.state, job.error.kind) == ("failed", "time"), job
        assert "0.3 seconds that one job may have here (PERENNIAL_MAX_EXPORT_S)" in job.error.detail
        refused = client.http.get(url)
        assert (
            refused.status_code == 422 and job.error.detail.rstrip(".") in refused.json()["detail"]
        )
        db = Database(f"sqlite:///{running.data_dir}/perennial.db")
        with db.read() as session:
            assert session.query(ExportedDownload).all() == []
        db.close()
