"""Versions over HTTP: list, detail, parts, and the download with its conditions and ranges."""

import base64
import hashlib
import io
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load

from core.predictions.predictions import find_version_to_predict
from core.requests.actor import Actor


@pytest.fixture
def url(model, publish) -> str:
    publish(model)
    return f"/v1/models/{model}/versions/1/download"


def test_versions_are_listed_by_rising_number_in_pages(client, model, publish):
    for _ in range(3):
        publish(model)
    first = client.get(f"/v1/models/{model}/versions?limit=2").json()
    assert [v["number"] for v in first["items"]] == [0, 1]
    second = client.get(f"/v1/models/{model}/versions?limit=2&cursor={first['next_cursor']}").json()
    assert [v["number"] for v in second["items"]] == [2, 3] and second["next_cursor"] is None


def test_an_item_of_the_list_does_not_grow_with_the_model(client, model, publish):
    classes = {"w": np.ones((50, 4), np.float32)}
    for number in range(1, 4):
        publish(
            model,
            {f"part.{number}.{one}": classes for one in range(9)},
            cells={1: (1, 4), number: (4, 4)},
        )
    items = client.get(f"/v1/models/{model}/versions").json()["items"]
    assert [item["mean_accuracy"] for item in items] == [None, 1.0, 0.625, 0.625]
    assert [item["images"] for item in items] == [None, 4, 8, 8]
    assert [item["passed"] for item in items] == [True] * 4
    whole = [client.get(f"/v1/models/{model}/versions/{item['number']}").json() for item in items]
    for item, version in zip(items, whole, strict=True):
        shared = item.keys() & version.keys()
        assert {name: item[name] for name in shared} == {name: version[name] for name in shared}
    assert len({tuple(item) for item in items}) == 1
    assert all(not isinstance(value, list | dict) for item in items for value in item.values())


def test_a_version_is_found_by_number_and_alias(client, model, publish):
    publish(model)
    publish(model, passed=False)
    for asked, number in (("2", 2), ("production", 1), ("latest", 1)):
        assert client.get(f"/v1/models/{model}/versions/{asked}").json()["number"] == number


@pytest.mark.parametrize("version", ["9", "01", "nowhere", "-1", "99999999999999999999"])
def test_an_unknown_version_is_404(client, model, version):
    assert client.get(f"/v1/models/{model}/versions/{version}").status_code == 404


def test_a_part_names_the_lowest_earlier_version_that_has_the_same_bytes(client, model, publish):
    backbone = {"backbone.1": {"backbone.w": np.ones(3, np.float32)}}
    for value in (1, 2, 3):
        publish(model, {**backbone, "head": {"head.weight": np.full(2, value, np.float32)}})
    for number, backbone in ((1, None), (2, 1), (3, 1)):
        parts = client.get(f"/v1/models/{model}/versions/{number}").json()["parts"]
        assert {p["name"]: p["shared_with"] for p in parts} == {
            "backbone.1": backbone,
            "head": None,
        }


def test_a_version_shows_its_row_of_the_matrix(client, model, publish):
    publish(model, cells={1: (3, 4)})
    publish(model, cells={1: (1, 4), 2: (4, 4)})
    assert client.get(f"/v1/models/{model}/versions/1").json()["accuracy"] == [0.75, None]
    assert client.get(f"/v1/models/{model}/versions/2").json()["accuracy"] == [0.25, 1.0]


def test_another_owner_sees_no_version_and_no_file(client, url, key_of):
    headers = key_of("other", "write")
    for path in (
        url,
        url.replace("download", "files"),
        url.replace("/1/download", ""),
        url.replace("/download", ""),
    ):
        assert client.get(path, headers=headers).status_code == 404


def test_a_download_is_one_zip_with_the_digest_it_announces(client, url):
    answer = client.get(url)
    digest = hashlib.sha256(answer.content).hexdigest()
    assert answer.headers["ETag"] == f'"{digest}"'
    assert (
        answer.headers["Repr-Digest"]
        == f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:"
    )
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist()[:3] == ["model.safetensors", "config.json", "README.md"]
        assert all(name.startswith("image_file") for name in archive.namelist()[3:])
        assert all(i.compress_type == zipfile.ZIP_STORED for i in archive.infolist())
        names = set(load(archive.read("model.safetensors")))
    assert names == {"backbone.conv1.weight", "head.weight", "head.bias"}


def test_a_download_built_again_has_the_same_digest(client, url):
    from core.database.tables import ExportedDownload

    first = client.get(url).headers["ETag"]
    db = client.app.state.database
    with db.write() as session:
        row = session.query(ExportedDownload).one()
        client.app.state.blobs.delete(row.sha256)
        session.delete(row)
    assert client.get(url).headers["ETag"] == first


def test_head_says_what_get_would_without_a_body(client, url):
    head, get = client.head(url), client.get(url)
    assert head.status_code == 200 and head.content == b""
    for name in ("ETag", "Content-Length", "Repr-Digest", "Accept-Ranges", "Content-Type"):
        assert head.headers[name] == get.headers[name]


def test_a_matching_if_none_match_is_304(client, url):
    tag = client.head(url).headers["ETag"]
    for value in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        answer = client.get(url, headers={"If-None-Match": value})
        assert answer.status_code == 304 and answer.content == b"" and answer.headers["ETag"] == tag
    assert client.get(url, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("asked", "part"),
    [("bytes=0-9", slice(0, 10)), ("bytes=10-", slice(10, None)), ("bytes=-7", slice(-7, None)),
     ("bytes=5-99999999", slice(5, None))],
)  # fmt: skip
def test_one_range_is_206_with_exactly_these_bytes(client, url, asked, part):
    whole = client.get(url).content
    answer = client.get(url, headers={"Range": asked})
    assert answer.status_code == 206 and answer.content == whole[part]
    first = range(len(whole))[part][0]
    last = range(len(whole))[part][-1]
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"
    assert int(answer.headers["Content-Length"]) == len(answer.content)


@pytest.mark.parametrize(
    "asked", ["bytes=0-1,5-6", "bytes=5-2", "lines=1-2", "bytes=a-b", "bytes=-"]
)
def test_a_range_that_is_not_understood_gives_the_whole(client, url, asked):
    assert client.get(url, headers={"Range": asked}).status_code == 200


def test_a_range_beyond_the_end_is_416_with_the_size(client, url):
    size = len(client.get(url).content)
    for asked in (f"bytes={size}-", "bytes=-0"):
        answer = client.get(url, headers={"Range": asked})
        assert answer.status_code == 416 and answer.headers["Content-Range"] == f"bytes */{size}"
        assert answer.headers["Content-Type"] == "application/problem+json"


def test_if_range_gives_the_whole_when_the_file_changed(client, url):
    tag = client.head(url).headers["ETag"]
    for value, status in (
        (tag, 206),
        (f"W/{tag}", 200),
        ('"old"', 200),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 200),
    ):
        asked = {"Range": "bytes=0-1", "If-Range": value}
        assert client.get(url, headers=asked).status_code == status


def test_redirect_falls_back_to_the_file_where_the_store_has_no_urls(client, url):
    answer = client.get(f"{url}?redirect=1", follow_redirects=False)
    assert answer.status_code == 200


def test_redirect_leads_to_a_presigned_url_with_the_digest(client, url, monkeypatch):
    tag = client.head(url).headers["ETag"]
    store = client.app.state.store
    monkeypatch.setattr(
        store, "make_download_url", lambda key, s, h: f"https://s3/{key}?{s}", raising=False
    )
    answer = client.get(f"{url}?redirect=1", follow_redirects=False)
    digest = tag.strip('"')
    assert answer.status_code == 307
    assert answer.headers["Location"] == f"https://s3/blobs/{digest[:2]}/{digest}?900"
    assert answer.headers["ETag"] == tag and "Repr-Digest" in answer.headers


def test_head_and_a_client_that_has_the_file_are_answered_here(client, url, monkeypatch):
    tag = client.head(url).headers["ETag"]
    monkeypatch.setattr(
        client.app.state.store, "make_download_url", lambda *_: "https://s3/", raising=False
    )
    asked = f"{url}?redirect=1"
    assert client.head(asked, follow_redirects=False).status_code == 200
    assert (
        client.get(asked, headers={"If-None-Match": tag}, follow_redirects=False).status_code == 304
    )


@pytest.mark.parametrize("format", ["onnx", "", "SAFETENSORS"])
def test_an_unknown_format_is_typed(client, url, format):
    answer = client.get(f"{url}?format={format}")
    assert answer.status_code == 422 and answer.json()["type"] == "/problems/export-unavailable"


def test_a_random_version_0_cannot_be_downloaded(client, model):
    answer = client.get(f"/v1/models/{model}/versions/0/download")
    assert answer.status_code == 422 and answer.json()["type"] == "/problems/export-unavailable"


def test_prompts_are_downloaded_and_predicted_with(client, model, publish):
    values = np.ones((1, 2, 4), np.float32)
    publish(model, {"head": {"head.bias": values[0, 0]}, "prompts.1": {"prompts.1": values}})
    answer = client.get(f"/v1/models/{model}/versions/1/download")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert "prompts.1" in load(archive.read("model.safetensors"))
    found = find_version_to_predict(
        client.app.state.database, Actor("nobody", None, "admin"), model, "1", None
    )
    assert [name for name, _ in found.parts] == ["head", "prompts.1"]


def test_a_linearised_version_answers_with_its_displacement_and_gives_out_its_curvature(
    client, model, publish
):
    tensors = {
        "backbone.1": {"backbone.fc1.weight": np.ones((2, 2), np.float32)},
        "head": {"head.bias": np.ones(2, np.float32)},
        "reference.shared": {"reference.shared": np.ones((2, 2), np.float32)},
        "displacement.1": {"displacement.fc1.weight": np.ones((2, 2), np.float32)},
    }
    kept = {"mean/displacement.fc1/factor": np.arange(9, dtype=np.float32)}
    publish(model, {**tensors, "curvature": kept, "buffer": {"images": np.ones((2, 4), np.uint8)}})
    url = f"/v1/models/{model}/versions/1"
    files = {file["name"]: file for file in client.get(f"{url}/files").json()["items"]}
    assert set(files) == {*tensors, "curvature"}
    answer = client.get(f"{url}/files/curvature")
    assert answer.status_code == 200 and files["curvature"]["bytes"] == len(answer.content)
    assert hashlib.sha256(answer.content).hexdigest() == files["curvature"]["sha256"]
    assert np.array_equal(load(answer.content)["mean/displacement.fc1/factor"], np.arange(9))
    wanted = {name for part in tensors.values() for name in part}
    with zipfile.ZipFile(io.BytesIO(client.get(f"{url}/download").content)) as archive:
        assert set(load(archive.read("model.safetensors"))) == wanted
    found = find_version_to_predict(
        client.app.state.database, Actor("nobody", None, "admin"), model, "1", None
    )
    assert [name for name, _ in found.parts] == list(tensors)


def test_class_means_are_downloaded_and_predicted_with_and_exemplars_are_not(
    client, model, publish
):
    parts = {
        "head": {"head.bias": np.ones(2, np.float32)},
        "exemplars": {"images": np.ones((2, 4), np.uint8)},
        "own": {"class_means": np.ones((2, 4), np.float32)},
    }
    method = {"name": "icarl", "hyper": {}, "state": {}, "predicts_with": ["own", "exemplars"]}
    publish(model, parts, manifest={"method": method})
    publish(
        model,
        parts,
        manifest={"method": {"name": "mas", "hyper": {}, "state": {}, "predicts_with": []}},
    )
    for version, wanted in ((1, {"head.bias", "class_means"}), (2, {"head.bias"})):
        answer = client.get(f"/v1/models/{model}/versions/{version}/download")
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert set(load(archive.read("model.safetensors"))) == wanted
        actor = Actor("nobody", None, "admin")
        found = find_version_to_predict(client.app.state.database, actor, model, str(version), None)
        assert [name for name, _ in found.parts] == (["head", "own"] if version == 1 else ["head"])


def test_buffers_are_in_no_download_and_cannot_be_fetched(client, model, publish):
    backbone, curvature = ({name: np.ones(3, np.float32)} for name in ("backbone.w", "omega"))
    buffer = {"images": np.ones((2, 4), np.uint8)}
    publish(model, {"backbone.1": backbone, "buffer": buffer, "curvature": curvature})
    base = f"/v1/models/{model}/versions/1"
    with zipfile.ZipFile(io.BytesIO(client.get(f"{base}/download").content)) as archive:
        assert set(load(archive.read("model.safetensors"))) == {"backbone.w"}
    assert [f["name"] for f in client.get(f"{base}/files").json()["items"]] == [
        "backbone.1",
        "curvature",
    ]
    first = client.get(f"{base}/files?limit=1").json()
    assert [f["name"] for f in first["items"]] == ["backbone.1"]
    second = client.get(f"{base}/files?cursor={first['next_cursor']}").json()
    assert [f["name"] for f in second["items"]] == ["curvature"]
    assert client.get(f"{base}/files/buffer").status_code == 422
    assert set(load(client.get(f"{base}/files/curvature").content)) == {"omega"}
    assert client.get(f"{base}/files/nothing").status_code == 404


def test_a_damaged_part_is_a_typed_500_and_no_export(client, model, publish):
    publish(model)
    sha256 = client.get(f"/v1/models/{model}/versions/1").json()["parts"][0]["sha256"]
    path = client.app.state.store.get_local_path(f"blobs/{sha256[:2]}/{sha256}")
    path.chmod(0o600)
    path.write_bytes(b"x" * path.stat().st_size)
    answer = client.get(f"/v1/models/{model}/versions/1/download")
    assert answer.status_code == 500 and answer.json()["type"] == "/problems/store-corrupt"
    assert not list((client.app.state.settings.data_dir / "spool").iterdir())
