"""Models that start from the base that comes with the package, as the API answers them."""

import hashlib
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.packaged import imagenet_base, packaged_base
from core.settings import Settings
from tests.api.conftest import serve_api
from tools import digits

RESNET = {"name": "resnet20", "width": 32}


def create_packaged_model(client: TestClient, **fields: Any) -> Any:
    body = {
        "name": "small",
        "scenario": "class",
        "base": packaged_base.PACKAGED,
        "architecture": RESNET,
    }
    return client.post("/v1/models", json={**body, **fields})


@pytest.mark.parametrize("channels", [1, 3])
def test_version_0_holds_the_base_and_its_statistics(client: TestClient, channels: int) -> None:
    made = create_packaged_model(client, image={"size": 32, "channels": channels})
    assert made.status_code == 201, made.text
    assert (made.json()["base"], made.json()["state"]) == (packaged_base.PACKAGED, "ready")
    manifest = client.get("/v1/models/small/versions/0").json()["manifest"]
    content = packaged_base.load_packaged_base_weights(channels)
    assert manifest["base"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest["base"]["name"] == packaged_base.PACKAGED
    assert (
        manifest["normalise"] == packaged_base.load_packaged_base_normalisation(channels).to_json()
    )
    assert len(manifest["normalise"]["mean"]) == channels


def test_another_architecture_is_answered_with_the_one_that_fits(client: TestClient) -> None:
    refused = create_packaged_model(client, architecture={"name": "resnet20"})
    assert refused.status_code == 422
    assert '"architecture": {"name": "resnet20", "width": 32}' in refused.json()["detail"]


def test_a_base_that_the_package_does_not_have_is_refused_with_the_one_it_has(
    client: TestClient,
) -> None:
    refused = create_packaged_model(client, base="perennial/resnet200")
    assert refused.status_code == 422 and packaged_base.PACKAGED in refused.json()["detail"]


def test_two_models_share_its_bytes(client: TestClient) -> None:
    parts = []
    for name in ("one", "two"):
        create_packaged_model(client, name=name)
        version = client.get(f"/v1/models/{name}/versions/0").json()
        parts.append(version["manifest"]["parts"])
    assert parts[0] == parts[1]


def test_its_next_task_is_taken(client: TestClient) -> None:
    create_packaged_model(client, recipe={"method": "analytic"})
    archive = digits.build_digit_archives()[0][1]
    sent = client.post(
        "/v1/models/small/tasks", content=archive, headers={"content-type": "application/zip"}
    )
    assert sent.status_code == 202, sent.text


def test_a_new_model_starts_from_the_base_for_photos_unless_the_service_has_another_default(
    settings: Settings,
) -> None:
    with serve_api(settings.model_copy(update={"default_base": imagenet_base.NAME})) as client:
        made = client.post("/v1/models", json={"name": "photos", "scenario": "class"})
        assert made.status_code == 201, made.text
        answer = made.json()
        assert (answer["base"], answer["state"]) == (imagenet_base.NAME, "fetching")
        assert answer["image"]["size"] == 224
        assert not any("resized" in text for text in answer["warnings"])
