"""Networks of torchvision and timm, from an uploaded file to a model, and to a download with a
card.
"""

import json
from pathlib import Path

import pytest
from safetensors.torch import save

from core.learning.timm_import import import_timm_models
from core.learning.torchvision_import import import_torchvision_models
from tests.e2e import small
from tests.e2e.cards import make_photo, run_code_of_card
from tests.rest import Json, Rest

pytestmark = pytest.mark.slow

BASE = {"Content-Type": "application/safetensors"}
RECIPE = {"method": "finetune", "epochs": 1, "batch_size": 8, "depth": 1}
NAME = "test_convnext.r160_in1k"
IMAGE = {"size": 160, "channels": 3, "crop": 0.95, "interpolation": "bicubic"}
OF_MODEL = {**IMAGE, "decoding": 2}
NORMALISE = {"mean": [0.5] * 3, "std": [0.5] * 3}


@pytest.fixture(scope="module")
def refused(client: Rest) -> list[Json]:
    """The two refusals on the way to the model "photos", which was made by doing what they say."""
    body = save(import_torchvision_models().resnet18(weights=None).state_dict())
    file = client.http.post("/v1/bases?architecture=resnet18", content=body, headers=BASE)
    fits = file.json()["fits"]
    made = client.call("POST", f"/v1/bases?{fits['query']}", content=body, headers=BASE).json()
    fields = {"name": "photos", "scenario": "class", "base": made["id"]}
    default = client.http.post("/v1/models", json={**fields, "architecture": "resnet18"})
    fitting = {key: fits[key] for key in ("architecture", "image")}
    client.models.create(**fields, **fitting, recipe=RECIPE)
    assert [answer.status_code for answer in (file, default)] == [422, 422]
    return [file.json(), default.json()]


@pytest.fixture(scope="module")
def by_name(client: Rest) -> Json:
    """The base of the model "by-name"."""
    body = save(import_timm_models().create_model(NAME).state_dict())
    made = client.call(
        "POST", f"/v1/bases?architecture=timm/{NAME}", content=body, headers=BASE
    ).json()
    client.models.create(
        name="by-name",
        scenario="class",
        architecture=f"timm/{NAME}",
        base=made["id"],
        recipe=RECIPE,
    )
    return dict(made)


# tests/core/bases/test_base_advice.py and tests/api/routes/test_bases.py have the answers
@pytest.mark.campaign
def test_a_model_of_torchvision_is_made_by_doing_what_the_errors_say(refused: list[Json]) -> None:
    file, default = refused
    assert file["errors"][0] == {
        "field": "architecture.stem",
        "message": '"standard" fits the file',
    }
    assert f"POST /v1/bases?{file['fits']['query']}" in file["detail"]
    assert 'resnet18 (stem "standard") and images of 32 × 32 pixels' in default["detail"]


@pytest.mark.campaign  # tests/core/learning/networks/test_timm.py has what the weights expect
def test_a_model_of_timm_prepares_images_as_its_weights_expect(client: Rest, by_name: Json) -> None:
    assert by_name["image"] == IMAGE and by_name["normalise"] == NORMALISE
    model = client.get("/v1/models/by-name")
    assert model["architecture"] == {"name": "timm", "model": NAME} and model["image"] == OF_MODEL
    manifest = client.get("/v1/models/by-name/versions/0")["manifest"]
    assert manifest["image"] == OF_MODEL and manifest["normalise"] == NORMALISE


# tests/core/export/test_safetensors_zip.py and test_read_images.py there have the parts
@pytest.mark.campaign
@pytest.mark.usefixtures("refused", "by_name")
@pytest.mark.parametrize(
    ("model", "std"),
    [("photos", [0.25] * 3), ("by-name", NORMALISE["std"])],
    ids=["torchvision", "timm"],
)
def test_the_card_answers_as_the_service_does(
    client: Rest, model: str, std: list[float], tmp_path: Path
) -> None:
    """Ask both of a photo that lies on its side."""
    small.learn_batches(client, model, small.thin_out(small.WEEKS[0]))
    before, manifest = (client.get(f"/v1/models/{model}/versions/{n}")["manifest"] for n in (0, 1))
    assert manifest["image"] == before["image"] and manifest["normalise"]["std"] == std
    small.unpack_version(client, model, 1, tmp_path)
    assert (tmp_path / "README.md").read_text().startswith(f"# {model} version 1\n")
    assert json.loads((tmp_path / "config.json").read_text())["name"] == model
    label, theirs = run_code_of_card(tmp_path, make_photo(1, 6))
    url = f"/v1/models/{model}/versions/1/predict"
    ours = client.call("POST", url, files={"file": ("photo.jpg", make_photo(1, 6))}).json()[
        "predictions"
    ][0]
    assert (ours["name"], ours["label"]) == ("photo.jpg", label)
    assert {name: pytest.approx(p, abs=1e-5) for name, p in theirs.items()} == ours["probabilities"]


def test_an_unknown_name_of_timm_is_answered_with_the_nearest(client: Rest) -> None:
    body = {"name": "x", "scenario": "class", "architecture": "timm/resnet18.a9_in1k"}
    refused = client.http.post("/v1/models", json=body)
    assert refused.status_code == 422 and "resnet18.a1_in1k" in refused.json()["detail"]
