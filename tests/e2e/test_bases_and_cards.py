"""From a torchvision checkpoint to a download whose own card answers as the service does: through HTTP alone."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from core.learn.torchvision_import import torchvision_models
from tests.e2e.cards import answer_of_the_card, photo
from tests.rest import Rest
from tools import digits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.share(4, together=True)]

ROOT = Path(__file__).parents[2]
BASE = {"Content-Type": "application/safetensors"}


@pytest.fixture(scope="module")
def checkpoint() -> dict[str, torch.Tensor]:
    """torchvision's ResNet-18 for images of 224 pixels, with the weights that it starts from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return dict(torchvision_models().resnet18(weights=None).state_dict())


@pytest.fixture(scope="module")
def learned(running, checkpoint) -> str:
    """A model that starts from the checkpoint, by doing what the service's errors say."""
    client = Rest(running.url, running.key)
    body = save(checkpoint)
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
    recipe = {"method": "finetune", "epochs": 1, "batch_size": 64}
    client.models.create(**fields, **fitting, recipe=recipe)
    job = client.wait(client.submit("photos", digits.archives()[0][1]))
    assert job.state == "succeeded", job
    return "photos"


@pytest.mark.parametrize("orientation", [1, 6])
def test_the_downloads_card_answers_as_the_service_does(
    client: Rest, learned: str, folder: Path, orientation: int
) -> None:
    client.download(learned, 1, folder / "version.zip")
    with zipfile.ZipFile(folder / "version.zip") as packed:
        packed.extractall(folder)
    image = photo(orientation % 2, orientation)
    label, theirs = answer_of_the_card(folder, image)
    url = f"/v1/models/{learned}/versions/1/predict"
    ours = client.call("POST", url, files={"file": ("photo.jpg", image)}).json()["predictions"][0]
    assert ours["name"] == "photo.jpg" and ours["label"] == label
    assert {name: pytest.approx(p, abs=1e-6) for name, p in theirs.items()} == ours["probabilities"]


def test_the_downloads_card_names_the_model(client: Rest, learned: str, folder: Path) -> None:
    client.download(learned, 1, folder / "version.zip")
    with zipfile.ZipFile(folder / "version.zip") as packed:
        assert packed.read("README.md").decode().startswith("# photos version 1\n")
        assert json.loads(packed.read("config.json"))["name"] == "photos"


def test_a_pickled_checkpoint_is_refused_with_the_command_that_converts_it_and_that_one_says_what_to_send(
    client: Rest, checkpoint: dict[str, torch.Tensor], folder: Path
) -> None:
    torch.save(checkpoint, folder / "resnet18.pth")
    pickled = (folder / "resnet18.pth").read_bytes()
    refused = client.http.post("/v1/bases?architecture=resnet18", content=pickled, headers=BASE)
    assert refused.status_code == 422 and refused.json()["detail"].startswith(
        "This is a pickled PyTorch file"
    )
    command = re.search(
        r"`python (-m tools\.import_torchvision resnet18) FILE\.pth OUT", refused.json()["detail"]
    )
    assert command is not None
    files = [str(folder / "resnet18.pth"), str(folder / "base.safetensors")]
    done = subprocess.run(
        [sys.executable, *command[1].split(), *files, "--image-size", "32", "--stem", "standard"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    request = re.search(r"upload it: POST (\S+)", done.stdout)
    model = re.search(r"a model that fits: (.*)", done.stdout)
    assert request is not None and model is not None
    body = (folder / "base.safetensors").read_bytes()
    made = client.call("POST", request[1], content=body, headers=BASE).json()
    fields = json.loads("{" + model[1] + "}")
    made = client.models.create("converted", base=made["id"], **fields)
    assert made.architecture.to_dict()["stem"] == "standard"
