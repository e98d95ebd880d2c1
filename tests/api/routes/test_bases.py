"""Uploading a base over HTTP: the header decides, before anything else reads the file."""

import hashlib
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save

from core.bases import expected_base
from tests.openapi import check_schema

TENSORS = {"fc1.weight": ("F32", [8, 12]), "fc1.bias": ("F32", [8])}
URL = "/v1/bases?architecture=mlp"


@pytest.fixture(autouse=True)
def expected(monkeypatch):
    """Replace the tensor shapes that the learning code expects for the architecture."""
    tensors = {n: {"dtype": d, "shape": s} for n, (d, s) in TENSORS.items()}
    answer = {"tensors": tensors, "optional": [], "ignored": ["head."], "parameters": 104}
    monkeypatch.setattr(
        expected_base, "_compute_expected_base_tensor_shapes", lambda request: answer
    )


def build_weights_file(**changed: np.ndarray) -> bytes:
    arrays = {name: np.zeros(shape, np.float32) for name, (_, shape) in TENSORS.items()}
    return save({**arrays, **changed})


def build_raw_safetensors(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def upload_base(client, body: bytes, **headers: str):
    return client.post(
        URL, content=body, headers={"Content-Type": "application/safetensors", **headers}
    )


def test_a_fitting_file_becomes_a_base_named_by_its_digest(client):
    body = build_weights_file()
    answer = upload_base(client, body)
    assert answer.status_code == 201 and answer.json()["sha256"] == hashlib.sha256(body).hexdigest()
    assert answer.json()["id"].startswith("bas_") and answer.json()["architecture"]["name"] == "mlp"
    assert client.get(answer.headers["Location"]).json() == answer.json()
    assert b"".join(client.app.state.blobs.read(answer.json()["sha256"])) == body


def test_another_owner_does_not_see_a_base(client, key_of):
    made = upload_base(client, build_weights_file()).json()
    assert client.get(f"/v1/bases/{made['id']}", headers=key_of("other")).status_code == 404


def test_a_classifier_that_the_architecture_ignores_may_be_there(client):
    assert (
        upload_base(
            client, save({**_build_zero_arrays(), "head.weight": np.zeros((2, 8), np.float32)})
        ).status_code
        == 201
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80\x02}q\x00.",
        struct.pack("<Q", 1 << 40),
        struct.pack("<Q", (1 << 20) + 1) + b" " * ((1 << 20) + 1),
        build_raw_safetensors(b"[" * 5000),
        build_raw_safetensors(b'{"a": 1, "a": 2}'),
        build_raw_safetensors([]),
        build_raw_safetensors(
            {"fc1.bias": {"dtype": "F32", "shape": [8], "data_offsets": [0, 31]}}, b"0" * 31
        ),
        build_raw_safetensors(
            {"fc1.bias": {"dtype": "PICKLE", "shape": [8], "data_offsets": [0, 32]}}, b"0" * 32
        ),
        build_raw_safetensors(
            {"fc1.bias": {"dtype": "F32", "shape": [-8], "data_offsets": [0, 32]}}, b"0" * 32
        ),
        build_raw_safetensors(
            {"fc1.bias": {"dtype": "F32", "shape": [8], "data_offsets": [4, 36]}}, b"0" * 36
        ),
        build_raw_safetensors(
            {"fc1.bias": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}, b"0" * 40
        ),
        build_raw_safetensors(
            {"fc1.bias": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}, b"0" * 8
        ),
        build_raw_safetensors(
            {"fc1.bias": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32], "x": 1}}, b"0" * 32
        ),
        save({"fc1.weight": np.zeros((8, 12), np.float32)}),
        save({"fc1.weight": np.zeros((12, 8), np.float32), "fc1.bias": np.zeros(8, np.float32)}),
        save({"fc1.weight": np.zeros((8, 12), np.float64), "fc1.bias": np.zeros(8, np.float32)}),
        save(
            {
                "fc1.weight": np.zeros((8, 12), np.float32),
                "fc1.bias": np.zeros(8, np.float32),
                "fc9.bias": np.zeros(8, np.float32),
            }
        ),
    ],
)
def test_an_unfit_file_is_a_typed_422_and_leaves_nothing(client, body):
    answer = upload_base(client, body)
    assert answer.status_code == 422 and answer.json()["type"] == "/problems/base-invalid", (
        answer.text
    )
    folder = client.app.state.settings.data_dir
    assert not list((folder / "spool").iterdir())
    assert not [p for p in (folder / "store").rglob("*") if p.is_file()]


def test_a_pickle_is_told_what_to_do_and_a_header_that_begins_like_one_is_read(client):
    told = upload_base(client, b"\x80\x02}q\x00.").json()["detail"]
    assert told.startswith("This is a pickled PyTorch file") and "save_file" in told
    text = build_weights_file()[8 : 8 + struct.unpack("<Q", build_weights_file()[:8])[0]]
    padded = text + b" " * (0x0280 - len(text))
    body = struct.pack("<Q", len(padded)) + padded + build_weights_file()[8 + len(text) :]
    assert body.startswith(b"\x80\x02") and upload_base(client, body).status_code == 201


def test_a_shape_that_does_not_fit_is_told_without_brackets(client):
    told = upload_base(
        client, build_weights_file(**{"fc1.weight": np.zeros((12, 8), np.float32)})
    ).json()
    assert "'fc1.weight' has shape 12×8, not 8×12." in told["detail"]
    assert told["detail"].startswith("One tensor does not fit")


def test_a_model_of_another_image_size_is_told_what_to_send(client):
    base = upload_base(client, build_weights_file()).json()["id"]
    body = {"name": "wrong", "scenario": "class", "architecture": "mlp", "base": base}
    told = client.post("/v1/models", json={**body, "image": {"size": 16}}).json()["detail"]
    assert "images of 32 × 32 pixels in 3 channels; the model has mlp" in told
    assert "POST /v1/bases?architecture=" in told and "image_size=16&channels=3" in told
    assert not any(mark in told for mark in ("{'", "None", "True"))


def test_an_unknown_architecture_is_refused_before_the_body(client):
    for asked in ("nothing", '{"name": "mlp", "hidden": "many"}', "{"):
        answer = client.post("/v1/bases", params={"architecture": asked}, content=b"")
        assert answer.status_code == 422 and answer.json()["type"] != "/problems/base-invalid"


def test_a_model_starts_from_a_base_of_its_own_architecture_and_image_only(client):
    asked = {"architecture": "mlp", "image_size": 16}
    base = client.post("/v1/bases", params=asked, content=build_weights_file()).json()["id"]
    body = {"scenario": "class", "architecture": "mlp", "base": base}
    wrong = client.post("/v1/models", json={**body, "name": "wrong"})
    assert wrong.status_code == 422 and wrong.json()["errors"][0]["field"] == "base"
    image = {"size": 16, "channels": 3}
    assert (
        client.post("/v1/models", json={**body, "name": "right", "image": image}).status_code == 201
    )
    first = client.get("/v1/models/right/versions/0").json()
    assert first["manifest"]["name"] == "right"
    part = first["parts"][0]
    assert (part["name"], part["sha256"]) == (
        "base",
        hashlib.sha256(build_weights_file()).hexdigest(),
    )


def _build_zero_arrays() -> dict[str, np.ndarray]:
    return {name: np.zeros(shape, np.float32) for name, (_, shape) in TENSORS.items()}


@pytest.mark.slow
def test_the_learning_code_says_what_a_real_architecture_expects(client, monkeypatch):
    monkeypatch.undo()
    weights = {"fc1.weight": np.zeros((4, 64), np.float32), "fc1.bias": np.zeros(4, np.float32)}
    query = {"architecture": '{"name": "mlp", "hidden": [4]}', "image_size": 8, "channels": 1}
    assert client.post("/v1/bases", params=query, content=save(weights)).status_code == 201
    answer = client.post("/v1/bases", params={**query, "channels": 3}, content=save(weights))
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "fc1.weight"


def test_bases_are_listed_newest_first_with_the_models_that_began_with_them(client, key_of):
    bodies = [build_weights_file(**{"fc1.bias": np.full(8, value, np.float32)}) for value in (1, 2)]
    ids = [upload_base(client, body).json()["id"] for body in bodies]
    body = {"name": "birds", "scenario": "class", "architecture": "mlp", "base": ids[0]}
    made = client.post("/v1/models", json=body)
    assert made.status_code == 201, made.text
    page = client.get("/v1/bases").json()
    assert [item["id"] for item in page["items"]] == ids[::-1]
    assert [item["models"] for item in page["items"]] == [
        [],
        [{"id": made.json()["id"], "name": "birds"}],
    ]
    check_schema(client, "BasePage", page)
    first = client.get("/v1/bases?limit=1").json()
    assert client.get(f"/v1/bases?cursor={first['next_cursor']}").json()["items"][0]["id"] == ids[0]
    assert client.get("/v1/bases", headers=key_of("other")).json()["items"] == []


def test_a_base_is_kept_while_a_model_needs_it_and_goes_with_its_bytes(client, key_of):
    made = upload_base(client, build_weights_file()).json()
    url = f"/v1/bases/{made['id']}"
    body = {"name": "birds", "scenario": "class", "architecture": "mlp", "base": made["id"]}
    assert client.post("/v1/models", json=body).status_code == 201
    refused = client.delete(url)
    assert refused.status_code == 409 and "birds" in refused.json()["detail"]
    assert [model["name"] for model in refused.json()["models"]] == ["birds"]
    check_schema(client, "Problem", refused.json())
    client.delete("/v1/models/birds")
    assert client.delete(url, headers=key_of("other")).status_code == 404
    assert client.delete(url, headers=key_of("admin", "read")).status_code == 403
    assert client.delete(url).status_code == 204
    assert client.get(url).status_code == client.delete(url).status_code == 404
    assert not client.app.state.blobs.has(made["sha256"])


def test_bytes_that_another_base_names_stay(client):
    made = [upload_base(client, build_weights_file()).json() for _ in range(2)]
    assert client.delete(f"/v1/bases/{made[0]['id']}").status_code == 204
    assert client.app.state.blobs.has(made[1]["sha256"])
