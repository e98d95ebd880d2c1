"""Networks of torchvision and timm, from an uploaded file to a download whose own card answers as the service does."""

import json
from pathlib import Path

import pytest
from safetensors.torch import save

from core.learn.timm_import import timm_models
from core.learn.torchvision_import import torchvision_models
from tests.e2e import small
from tests.e2e.cards import answer_of_the_card, photo
from tests.rest import Rest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BASE = {"Content-Type": "application/safetensors"}
RECIPE = {"method": "finetune", "epochs": 1, "batch_size": 8, "depth": 1}
NAME = "test_convnext.r160_in1k"
IMAGE = {"size": 160, "channels": 3, "crop": 0.95, "interpolation": "bicubic"}
NORMALISE = {"mean": [0.5] * 3, "std": [0.5] * 3}


def assert_card_answers_as_the_service(client: Rest, model: str, folder: Path) -> None:
    """Compare what an unpacked card and the service say of a photo that lies on its side."""
    small.unpack_version(client, model, 1, folder)
    label, theirs = answer_of_the_card(folder, photo(1, 6))
    url = f"/v1/models/{model}/versions/1/predict"
    ours = client.call("POST", url, files={"file": ("photo.jpg", photo(1, 6))}).json()["predictions"][0]
    assert (ours["name"], ours["label"]) == ("photo.jpg", label)
    assert {name: pytest.approx(p, abs=1e-5) for name, p in theirs.items()} == ours["probabilities"]


def test_a_model_of_torchvision_is_made_by_doing_what_the_errors_say_and_its_card_answers_alike(
    client: Rest, tmp_path: Path
) -> None:
    body = save(torchvision_models().resnet18(weights=None).state_dict())
    refused = client.http.post("/v1/bases?architecture=resnet18", content=body, headers=BASE)
    assert refused.status_code == 422, refused.text
    problem = refused.json()
    assert problem["errors"][0] == {"field": "architecture.stem", "message": '"standard" fits the file'}
    assert f"POST /v1/bases?{problem['fits']['query']}" in problem["detail"]
    made = client.call("POST", f"/v1/bases?{problem['fits']['query']}", content=body, headers=BASE).json()
    fields = {"name": "photos", "scenario": "class", "base": made["id"]}
    default = client.http.post("/v1/models", json={**fields, "architecture": "resnet18"})
    assert default.status_code == 422
    assert 'resnet18 (stem "standard") and images of 32 × 32 pixels' in default.json()["detail"]
    fitting = {key: problem["fits"][key] for key in ("architecture", "image")}
    client.models.create(**fields, **fitting, recipe=RECIPE)
    small.learn(client, "photos", small.thin(small.WEEKS[0]))
    assert_card_answers_as_the_service(client, "photos", tmp_path)
    assert (tmp_path / "README.md").read_text().startswith("# photos version 1\n")
    assert json.loads((tmp_path / "config.json").read_text())["name"] == "photos"


def test_a_model_of_timm_prepares_images_as_its_weights_expect_and_its_card_answers_alike(
    client: Rest, tmp_path: Path
) -> None:
    body = save(timm_models().create_model(NAME).state_dict())
    made = client.call("POST", f"/v1/bases?architecture=timm/{NAME}", content=body, headers=BASE).json()
    assert made["image"] == IMAGE and made["normalise"] == NORMALISE
    model = client.models.create(
        name="by-name", scenario="class", architecture=f"timm/{NAME}", base=made["id"], recipe=RECIPE
    )
    assert model.architecture.to_dict() == {"name": "timm", "model": NAME}
    assert model.image.to_dict() == made["image"]
    small.learn(client, "by-name", small.thin(small.WEEKS[0]))
    for version in (0, 1):
        manifest = client.get(f"/v1/models/by-name/versions/{version}")["manifest"]
        assert manifest["image"] == IMAGE and manifest["normalise"] == NORMALISE
    assert_card_answers_as_the_service(client, "by-name", tmp_path)


def test_an_unknown_name_of_timm_is_answered_with_the_nearest(client: Rest) -> None:
    body = {"name": "x", "scenario": "class", "architecture": "timm/resnet18.a9_in1k"}
    refused = client.http.post("/v1/models", json=body)
    assert refused.status_code == 422 and "resnet18.a1_in1k" in refused.json()["detail"]
