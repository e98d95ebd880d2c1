"""Two recommended backbones by name, with every default: fetched, learned, downloaded, and the card
answers the same."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from hub_server import Hub
from PIL import Image
from weights_files import build_random_weights

from tests.e2e import small
from tests.e2e.cards import run_code_of_card
from tests.rest import Rest

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]

BACKBONES = {"mobilenetv3_small_100.lamb_in1k": 224, "vit_small_patch14_dinov2.lvd142m": 518}
"""Name → pixels a side that its weights expect."""


def draw_photos(count: int, seed: int) -> list[bytes]:
    """Make JPEGs of coarse colours, from 40 to 900 pixels a side, in many proportions."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(count):
        size = tuple(int(side) for side in rng.integers(40, 900, 2))
        coarse = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
        made.append(out.getvalue())
    return made


@pytest.mark.parametrize("name", BACKBONES)
def test_a_backbone_by_name_is_fetched_once_and_its_download_answers_as_the_service_does(
    name: str, hub: Hub, client: Rest, tmp_path: Path
) -> None:
    file = build_random_weights(name)
    hub.put(f"timm/{name}", file)
    short = name.split(".")[0]
    made = [client.models.create(f"{short}-{n}", architecture=f"timm/{name}") for n in (1, 2)]
    for model in made:
        assert client.wait(model.job or model.id, 600).state == "succeeded"
    assert hub.gets == [(f"timm/{name}", 0)]
    pictures = {"left": draw_photos(12, seed=4), "right": draw_photos(12, seed=5)}
    batch = {
        f"{label}/{n}.jpg": data for label, of in pictures.items() for n, data in enumerate(of)
    }
    job = client.wait(client.submit(f"{short}-1", small.pack_zip(batch)), 1800)
    assert job.state == "succeeded", job
    manifest = client.get(f"/v1/models/{short}-1/versions/1")["manifest"]
    base = manifest["base"]
    assert (base["sha256"], base["licence"]) == (hashlib.sha256(file).hexdigest(), "apache-2.0")
    assert manifest["image"]["size"] == BACKBONES[name]
    small.unpack_version(client, f"{short}-1", 1, tmp_path)
    url = f"/v1/models/{short}-1/versions/1/predict"
    for data in draw_photos(10, seed=0):
        (ours,) = client.call("POST", url, files={"file": ("photo.jpg", data)}).json()[
            "predictions"
        ]
        label, theirs = run_code_of_card(tmp_path, data)
        assert label == ours["label"]
        assert theirs == pytest.approx(ours["probabilities"], abs=1e-5)
