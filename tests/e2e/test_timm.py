"""A model on a network of timm, through HTTP: its images, its answers, its download."""

import zipfile
from pathlib import Path

import pytest
from safetensors.torch import save

from core.learn.timm_import import timm_models
from tests.e2e.cards import answer_of_the_card, photo
from tests.rest import Rest
from tools import digits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.share(4, together=True)]

BASE = {"Content-Type": "application/safetensors"}
NAME = "test_convnext.r160_in1k"
IMAGE = {"size": 160, "channels": 3, "crop": 0.95, "interpolation": "bicubic"}
NORMALISE = {"mean": [0.5] * 3, "std": [0.5] * 3}


@pytest.fixture(scope="module")
def learned(running) -> str:
    """A model that starts from an uploaded file of timm and has learned a batch."""
    client = Rest(running.url, running.key)
    body = save(timm_models().create_model(NAME).state_dict())
    made = client.call("POST", f"/v1/bases?architecture=timm/{NAME}", content=body, headers=BASE).json()
    assert made["image"] == IMAGE and made["normalise"] == NORMALISE
    recipe = {"method": "finetune", "epochs": 1, "batch_size": 64, "depth": 1}
    model = client.models.create(
        name="by-name", scenario="class", architecture=f"timm/{NAME}", base=made["id"], recipe=recipe
    )
    assert model.architecture.to_dict() == {"name": "timm", "model": NAME}
    assert model.image.to_dict() == made["image"]
    job = client.wait(client.submit("by-name", digits.archives()[0][1]))
    assert job.state == "succeeded", job
    return "by-name"


@pytest.mark.parametrize("version", [0, 1])
def test_the_version_is_prepared_as_the_weights_expect(client: Rest, learned: str, version: int) -> None:
    manifest = client.call("GET", f"/v1/models/{learned}/versions/{version}").json()["manifest"]
    assert manifest["image"] == IMAGE and manifest["normalise"] == NORMALISE


def test_the_downloads_card_answers_as_the_service_does(client: Rest, learned: str, tmp_path: Path) -> None:
    client.download(learned, 1, tmp_path / "version.zip")
    with zipfile.ZipFile(tmp_path / "version.zip") as packed:
        packed.extractall(tmp_path)
    image = photo(1, 6)
    label, theirs = answer_of_the_card(tmp_path, image)
    url = f"/v1/models/{learned}/versions/1/predict"
    ours = client.call("POST", url, files={"file": ("photo.jpg", image)}).json()["predictions"][0]
    assert ours["label"] == label
    assert {name: pytest.approx(p, abs=1e-5) for name, p in theirs.items()} == ours["probabilities"]


def test_an_unknown_name_is_answered_with_the_nearest(client: Rest, learned: str) -> None:
    refused = client.http.post(
        "/v1/models", json={"name": "x", "scenario": "class", "architecture": "timm/resnet18.a9_in1k"}
    )
    assert refused.status_code == 422 and "resnet18.a1_in1k" in refused.json()["detail"]
