"""Two recommended backbones by name, with every default: fetched, learned, downloaded, and the card answers
the same."""

import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hub_server
import numpy as np
import pytest
from PIL import Image
from weights_files import weights

from tests.rest import Rest
from tools import service

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]

BACKBONES = {"mobilenetv3_small_100.lamb_in1k": 224, "vit_small_patch14_dinov2.lvd142m": 518}
"""Name → pixels a side that its weights expect."""
PHOTOS = 100


@pytest.fixture(scope="module")
def hub() -> Iterator[hub_server.Hub]:
    with hub_server.running() as found:
        yield found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, hub: hub_server.Hub) -> Iterator[service.Service]:
    with service.running(tmp_path_factory.mktemp("service"), hub.environment()) as found:
        yield found


def batch() -> bytes:
    """An archive of twelve photos of each of two classes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for label in ("left", "right"):
            for name, data in photos(12, seed=len(label)).items():
                archive.writestr(f"{label}/{name}", data)
    return packed.getvalue()


def photos(count: int, seed: int) -> dict[str, bytes]:
    """JPEGs of coarse colours, from 40 to 900 pixels a side, in many proportions."""
    rng, made = np.random.default_rng(seed), {}
    for number in range(count):
        width, height = (int(side) for side in rng.integers(40, 900, 2))
        coarse = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=90)
        made[f"{number}-{width}x{height}.jpg"] = out.getvalue()
    return made


def answers_of_the_card(folder: Path, images: dict[str, bytes]) -> list[dict[str, float]]:
    """What the second code block of an unpacked README.md says of each image, after the first has loaded the model."""
    load, answer = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    (folder / "images").mkdir()
    for name, data in images.items():
        (folder / "images" / name).write_bytes(data)
    (folder / "card.py").write_text(
        load
        + "\nimport contextlib, json, os, pathlib, shutil, sys\nsaid = []\n"
        + f"for name in {list(images)!r}:\n    shutil.copy(pathlib.Path('images', name), 'cat.png')\n"
        + "    with contextlib.redirect_stdout(open(os.devnull, 'w')):\n"
        + "".join(f"        {line}\n" for line in answer.splitlines())
        + "    said.append(dict(zip(config['classes'], probabilities[0].tolist())))\njson.dump(said, sys.stdout)\n"
    )
    done = subprocess.run(
        [sys.executable, "card.py"], cwd=folder, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", BACKBONES)
def test_a_backbone_by_name_is_fetched_once_and_its_download_answers_as_the_service_does(
    name: str, hub: hub_server.Hub, running: service.Service, tmp_path: Path
) -> None:
    client, file = Rest(running.url, running.key), weights(name)
    hub.gets.clear()
    hub.put(f"timm/{name}", file)
    short = name.split(".")[0]
    made = [client.models.create(f"{short}-{n}", architecture=f"timm/{name}") for n in (1, 2)]
    for model in made:
        assert client.wait(model.job or model.id, 600).state == "succeeded"
    assert hub.gets == [(f"timm/{name}", 0)]
    job = client.wait(client.submit(f"{short}-1", batch()), 1800)
    assert job.state == "succeeded", job
    version = client.get(f"/v1/models/{short}-1/versions/1")
    base = version["manifest"]["base"]
    assert (base["sha256"], base["licence"]) == (hashlib.sha256(file).hexdigest(), "apache-2.0")
    assert version["manifest"]["image"]["size"] == BACKBONES[name]
    client.download(f"{short}-1", 1, tmp_path / "version.zip")
    with zipfile.ZipFile(tmp_path / "version.zip") as packed:
        packed.extractall(tmp_path / "version")
    sent = photos(PHOTOS, seed=0)
    ours = predictions(client, f"{short}-1", sent)
    theirs = answers_of_the_card(tmp_path / "version", sent)
    furthest = max(abs(ours[i][label] - p) for i, said in enumerate(theirs) for label, p in said.items())
    assert furthest <= 1e-5, furthest
    assert len(ours) == len(theirs) == PHOTOS


def predictions(client: Rest, model: str, images: dict[str, bytes]) -> list[dict[str, float]]:
    url, found = f"/v1/models/{model}/versions/1/predict", []
    names = list(images)
    for begin in range(0, len(names), 10):
        files: list[Any] = [("file", (name, images[name])) for name in names[begin : begin + 10]]
        answer = client.http.post(url, files=files, timeout=600)
        assert answer.status_code == 200, answer.text
        found += [entry["probabilities"] for entry in answer.json()["predictions"]]
    return found
