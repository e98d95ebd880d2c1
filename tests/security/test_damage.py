"""Damage of what is stored, as disks and hands do it: it is never given out as valid, and mended
when sound bytes come.

Each attack goes over HTTP against an API in this process, with a folder and with an S3 server. A
byte of a stored object is changed and, in a folder, the time of the change put back.
"""

import hashlib
import io
import json
import secrets
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save
from starlette.testclient import TestClient

from core.bases import expected_base
from core.storage import Blobs
from tests.api.routes.conftest import build_default_parts
from tests.security.damaging import (
    flip_stored_bit,
    get_response,
    get_store,
    is_refused,
    repair_damage,
)

DOWNLOAD = "/v1/models/birds/versions/1/download"
HEAD = "/v1/models/birds/versions/1/files/head"


def find_part_key(client: TestClient, name: str) -> str:
    parts = client.get("/v1/models/birds/versions/1").json()["parts"]
    return Blobs.make_blob_key(next(part["sha256"] for part in parts if part["name"] == name))


def test_a_part_that_was_verified_and_then_damaged_is_not_exported(client, model, publish):
    publish("birds")
    sound = get_response(client, DOWNLOAD)
    assert sound[0] == 200
    get_response(client, HEAD, Range="bytes=0-9")
    key = find_part_key(client, "head")
    store = get_store(client)
    store.delete(Blobs.make_blob_key(hashlib.sha256(sound[1]).hexdigest()))  # as a sweep does
    data = flip_stored_bit(store, key)
    made = get_response(client, DOWNLOAD)  # with S3 of this machine's sound copy
    assert made == sound or is_refused(client, made), "an export was made of a damaged part"
    store.put_bytes(key, data)
    repair_damage(client)
    assert get_response(client, DOWNLOAD) == sound


def test_a_damaged_part_is_not_given_out_whole_nor_in_ranges(client, model, publish):
    publish("birds")
    sound = get_response(client, HEAD)[1]
    assert get_response(client, HEAD, Range="bytes=8-20") == (206, sound[8:21])
    flip_stored_bit(get_store(client), find_part_key(client, "head"))
    assert is_refused(client, get_response(client, HEAD, Range="bytes=8-"))
    assert is_refused(client, get_response(client, HEAD))


def test_a_damaged_download_is_never_whole_and_the_next_one_is_made_again(client, model, publish):
    publish("birds")
    _, sound = get_response(client, DOWNLOAD)
    flip_stored_bit(
        get_store(client),
        Blobs.make_blob_key(hashlib.sha256(sound).hexdigest()),
        at=len(sound) // 2,
    )
    first = get_response(client, DOWNLOAD)
    assert first == (200, sound) or is_refused(client, first)
    assert get_response(client, DOWNLOAD) == (200, sound)


def test_what_was_made_of_a_damaged_part_before_is_not_given_out_when_the_part_is_mended(
    client, model, publish
):
    """The export stayed as it was made: its name is the digest of the damaged bytes."""
    publish("birds")
    _, made = get_response(client, DOWNLOAD)
    get_store(client).delete(Blobs.make_blob_key(hashlib.sha256(made).hexdigest()))
    key = find_part_key(client, "head")
    data = flip_stored_bit(get_store(client), key)
    get_response(client, DOWNLOAD)
    get_store(client).put_bytes(key, data)
    repair_damage(client)
    status, body = get_response(client, DOWNLOAD)
    with zipfile.ZipFile(io.BytesIO(body)) as file:
        weights = load(file.read("model.safetensors"))
    assert status == 200
    assert np.array_equal(weights["head.weight"], build_default_parts()["head"]["head.weight"])
    assert np.array_equal(weights["head.bias"], build_default_parts()["head"]["head.bias"])


def test_sound_bytes_that_are_stored_again_replace_damaged_ones(client, tmp_path: Path):
    blobs: Blobs = client.app.state.blobs
    source = tmp_path / "base"
    source.write_bytes(secrets.token_bytes(100_000))
    sha256, _ = blobs.put_file(source)
    assert blobs.fetch_verified_file(sha256).read_bytes() == source.read_bytes()
    flip_stored_bit(get_store(client), Blobs.make_blob_key(sha256))
    blobs.put_file(source)
    assert b"".join(get_store(client).read(Blobs.make_blob_key(sha256))) == source.read_bytes()


def test_the_answer_names_the_part_and_the_ways_to_mend_it_and_works_once_it_is_mended(
    client, model, publish
):
    publish("birds")
    store, key = get_store(client), find_part_key(client, "head")
    data = flip_stored_bit(store, key)
    repair_damage(client)  # finds it
    page = client.get("/metrics").text
    assert (
        "perennial_damaged_objects 1.0" in page
        and "perennial_scrub_ended_timestamp_seconds 1." in page
    )
    predict = ("/v1/models/birds/versions/1/predict", {"images": [[[0] * 32] * 32]})
    for answer in (
        client.get(DOWNLOAD),
        client.get(HEAD),
        client.post(predict[0], json=predict[1]),
    ):
        told = answer.json()
        assert answer.status_code == 500 and told["type"] == "/problems/store-corrupt"
        assert told["part"] == "head" and told["version"] == 1 and told["object"] == key
        assert "Part 'head' of version 1 is damaged" in told["detail"]
        assert f"put the object {key} back from a backup" in told["detail"]
        assert "tasks/1/relearn" in told["detail"]
    backbone = client.get("/v1/models/birds/versions/1/files/backbone.1")
    assert backbone.status_code == 200
    store.put_bytes(key, data)
    repair_damage(client)
    assert client.get(HEAD).content == data and client.get(DOWNLOAD).status_code == 200
    assert "perennial_damaged_objects 0.0" in client.get("/metrics").text


def test_a_base_that_is_uploaded_again_mends_the_versions_that_are_made_of_it(client, monkeypatch):
    tensors = {"fc1.weight": {"dtype": "F32", "shape": [8, 12]}}
    expected = {"tensors": tensors, "optional": [], "ignored": [], "parameters": 96}
    monkeypatch.setattr(
        expected_base, "_compute_expected_base_tensor_shapes", lambda request: expected
    )
    body = save({"fc1.weight": np.ones((8, 12), np.float32)})
    own = {
        "name": "mlp",
        "hidden": [8],
    }  # of no other test: what it expects is kept beside the catalogue
    upload = {"url": f"/v1/bases?architecture={json.dumps(own)}", "content": body}
    upload["headers"] = {"Content-Type": "application/safetensors"}
    base = client.post(**upload).json()
    asked = {"name": "leaves", "scenario": "class", "architecture": own, "base": base["id"]}
    assert client.post("/v1/models", json=asked).status_code == 201
    url = "/v1/models/leaves/versions/0/files/base"
    assert get_response(client, url, Range="bytes=0-7") == (206, body[:8])
    flip_stored_bit(get_store(client), Blobs.make_blob_key(base["sha256"]))
    repair_damage(client)  # finds it
    refused = client.get(url)
    assert (
        refused.status_code == 500
        and f"upload the base {base['id']} again" in refused.json()["detail"]
    )
    assert client.post(**upload).status_code == 201
    assert get_response(client, url) == (200, body)
    assert "perennial_damaged_objects 0.0" in client.get("/metrics").text
