"""Prediction over HTTP: what is refused before the helper, what the helper's end means, and real
answers.
"""

import base64
import io
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import numpy as np
import pytest
from PIL import Image
from sqlalchemy import select

from api.predict.concurrency import PredictConcurrencyLimiter
from api.predict.decoder import DecodedImages, DecodeRequest
from api.predict.images import FILES
from api.predict.prediction_process import PredictionProcess
from api.predict.predictor import PredictionHelperClient
from core.database.polling import PollingDatabaseReads
from core.database.tables import Owner, StoredObjectDamageMark, VersionPart
from core.errors import Unavailable
from core.predictions.predictions import PredictableVersion, VersionCache
from core.storage import Blobs

IMAGE_BYTES = 32 * 32 * 3
# Answers each image with its own process id; one that begins with "die" ends it, "hang" sleeps.
FAKE = """
import json, os, sys, time
from core.processes.messages import read_framed_message, write_framed_message
out = os.fdopen(os.dup(1), "wb")
write_framed_message(out, b"{}")
while True:
    try:
        header = json.loads(read_framed_message(sys.stdin.buffer))
    except EOFError:
        break
    read_framed_message(sys.stdin.buffer)
    body = read_framed_message(sys.stdin.buffer)
    if body.startswith(b"die"):
        os._exit(9)
    if body.startswith(b"hang"):
        time.sleep(1000)
    if body.startswith(b"slow"):
        time.sleep(0.05)
    if body.startswith(b"bad"):
        write_framed_message(out, json.dumps({"kind": "invalid", "detail": "It cannot be asked that."}).encode())
        continue
    if body.startswith(b"gone"):
        write_framed_message(out, json.dumps({"kind": "gone", "detail": "A file is gone."}).encode())
        continue
    write_framed_message(out, b'{"ok": true, "engine": "torch"}')
    told = {"pid": os.getpid(), "top_k": header["top_k"]}
    write_framed_message(out, b"\\n".join([json.dumps(told).encode()] * (len(body) // 3072)))
"""


class FakeDecoder:
    """Takes the bytes of each file for its pixels; a file that begins with "cut" cannot be used."""

    def decode_images(self, wanted: DecodeRequest) -> DecodedImages:
        count = len(wanted.body)
        cut = [bytes(data).startswith(b"cut") for data in wanted.body]
        pixels = [bytes(data[:IMAGE_BYTES]).ljust(IMAGE_BYTES) for data in wanted.body]
        return DecodedImages(
            count, ["cut" if bad else one for bad, one in zip(cut, pixels, strict=True)]
        )

    def close(self) -> None:
        pass


@pytest.fixture
def fake(client):
    settings = client.app.state.settings.model_copy(update={"predict_answer_s": 60.0})
    network = PredictionProcess(settings, [sys.executable, "-c", FAKE])
    helper = PredictionHelperClient(
        settings, network=network, decoders=[FakeDecoder(), FakeDecoder()]
    )
    client.app.state.predictor = helper
    return helper


@pytest.fixture
def url(model, publish) -> str:
    publish(model)
    return f"/v1/models/{model}/versions/latest/predict"


def read_first_prediction(answer):
    return answer.json()["predictions"][0]


def send_image_files(client, url, *images: bytes):
    files = [("image", (f"{number}.png", data, "image/png")) for number, data in enumerate(images)]
    return client.post(url, files=files)


def test_images_go_to_the_helper_in_order_and_its_answer_comes_back(client, url, fake):
    answer = send_image_files(client, url, b"a", b"b")
    assert answer.status_code == 200 and answer.json()["version"] == 1
    assert [item["name"] for item in answer.json()["predictions"]] == ["0.png", "1.png"]


def test_a_request_without_a_query_is_answered_as_one_with_the_defaults(client, url, fake):
    without, spelt_out = (
        send_image_files(client, url + query, b"a") for query in ("", "?top_k=10")
    )
    assert without.json() == spelt_out.json()


def test_a_version_that_is_known_is_asked_without_a_thread_or_fastapis_parameters(
    client, url, fake, monkeypatch
):
    assert send_image_files(client, url, b"a").status_code == 200

    def fail(*given, **named):
        raise AssertionError("taken the long way")

    monkeypatch.setattr(VersionCache, "look_up_and_cache_version", fail)
    monkeypatch.setattr(PredictableVersion, "fetch_part_paths", fail)
    monkeypatch.setattr("fastapi.routing.solve_dependencies", fail)
    assert send_image_files(client, url, b"a").status_code == 200


def test_a_database_that_is_busy_for_short_reads_is_waited_for(client, url, fake, monkeypatch):
    async def fail(*given):
        raise Unavailable("The database does not answer.")

    monkeypatch.setattr(PollingDatabaseReads, "find_version_to_predict", fail)
    assert send_image_files(client, url, b"a").status_code == 200


@pytest.mark.parametrize("query", ["", "?top_k=1"])
def test_too_long_a_name_of_a_version_is_refused_with_and_without_a_query(client, url, fake, query):
    answer = send_image_files(client, url.replace("latest", "l" * 64) + query, b"a")
    assert answer.status_code == 422 and "version" in answer.json()["detail"], answer.text


@pytest.mark.parametrize("field", ["image", "images", "file", "files"])
def test_images_are_parts_of_any_of_four_names(client, url, fake, field):
    sent = [(field, ("a.png", b"a", "image/png")), (field, ("b/c.png", b"b", "image/png"))]
    answer = client.post(url, files=sent).json()
    assert [item["name"] for item in answer["predictions"]] == ["a.png", "b/c.png"]


def test_a_file_name_is_told_without_what_a_terminal_or_a_reader_could_be_fooled_by(
    client, url, fake
):
    names = [b"caf\xc3\xa9 1.png", b"a\x1b[2J\xe2\x80\xaeb", b"\xff", b"x" * 1000, b""]
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\na\r\n'
    parts = b"".join(part % name for name in names)
    bare = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\na\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    told = client.post(url, content=parts + bare + b"--x--\r\n", headers=headers).json()[
        "predictions"
    ]
    shown = ["café 1.png", "a\ufffd[2J\ufffdb", "\ufffd", "x" * 199 + "…", None, None]
    assert [item["name"] for item in told] == shown


def test_ten_labels_are_asked_for_unless_the_client_says_how_many(client, url, fake):
    assert read_first_prediction(send_image_files(client, url, b"a"))["top_k"] == 10
    assert read_first_prediction(send_image_files(client, url + "?top_k=1", b"a"))["top_k"] == 1
    for wrong in ("0", "-1", "many", str(2**31)):
        refused = send_image_files(client, f"{url}?top_k={wrong}", b"a")
        assert refused.status_code == 422 and "top_k" in refused.json()["errors"][0]["field"]


def build_instances(*images: bytes) -> dict[str, list[dict[str, str]]]:
    return {"instances": [{"b64": base64.b64encode(image).decode()} for image in images]}


def test_a_body_may_be_one_image_file_as_it_is(client, url, fake):
    for kind in (*FILES, "image/jpg", "IMAGE/PNG; name=a.png"):
        answer = client.post(url, content=b"a", headers={"Content-Type": kind})
        assert answer.status_code == 200 and len(answer.json()["predictions"]) == 1, kind
        assert read_first_prediction(answer)["name"] is None


def test_images_in_base64_are_answered_as_those_of_a_form(client, url, fake):
    images = [b"a", b"cut", b"b" * 300_000]
    of_form, of_json = (
        send_image_files(client, url, *images).json(),
        client.post(url, json=build_instances(*images)).json(),
    )
    for item in of_form["predictions"]:
        item["name"] = None
    assert of_json == of_form
    assert (
        client.post(url, json=build_instances(b"cut")).json()["type"] == "/problems/image-invalid"
    )


def test_a_body_that_cannot_be_read_is_refused_and_what_can_be_is_named(client, url, fake):
    settings = client.app.state.settings
    settings.predict_body_bytes, settings.predict_array_bytes = 3000, 1500
    for kind, content, status, said in (
        ("image/svg+xml", b"<svg/>", 415, "image/jpeg, image/png, image/webp"),
        ("image/*", b"a", 415, '{"instances": [{"b64": "…"}]}'),
        ("application/octet-stream", b"a", 415, "multipart/form-data"),
        (None, b"a", 415, "Content-Type is missing"),
        ("application/json", b'{"instances": []}', 422, "instances[0]"),
        ("application/json", b'{"instances": [{"b64": "?"}]}', 422, "base64"),
        ("application/json", b'{"instances": [' + b'{"b64":""},' * 257, 422, "at most 256 images"),
        ("application/json", b'{"instances": [{"b64": "' + b"A" * 4000, 413, "3000 bytes"),
        ("application/json", b'{"images": ["' + b" " * 2000, 413, "1500 bytes"),
        ("image/png", b"a" * 3001, 413, "3000 bytes"),
    ):
        answer = client.post(
            url, content=content, headers={} if kind is None else {"Content-Type": kind}
        )
        assert answer.status_code == status and said in answer.json()["detail"], answer.text
    assert (
        not client.app.state.predict_limiter.requests and not client.app.state.predict_limiter.bytes
    )


def test_the_id_of_a_request_is_that_of_its_answer_where_it_is_short_and_plain(client, url, fake):
    for sent, is_kept in (("page-7.A_", True), ("x" * 65, False), ("a b", False), ("", False)):
        headers = {"Content-Type": "image/png", "X-Request-Id": sent}
        told = client.post(url, content=b"a", headers=headers).headers["x-request-id"]
        assert (told == sent) is is_kept and len(told) <= 64


def test_arrays_have_no_names(client, url, fake):
    assert read_first_prediction(client.post(url, json={"images": [[[1]]]}))["name"] is None


def test_the_document_names_every_part_that_works(shared):
    path = "/v1/models/{model}/versions/{version}/predict"
    operation = shared.get("/openapi.json").json()["paths"][path]["post"]
    form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert (
        set(form["properties"]) == {"file", "files", "image", "images"}
        and form["minProperties"] == 1
    )
    assert {p["name"] for p in operation["parameters"]} >= {"task", "top_k"}


def test_the_document_names_every_kind_of_body(shared):
    path = "/v1/models/{model}/versions/{version}/predict"
    content = shared.get("/openapi.json").json()["paths"][path]["post"]["requestBody"]["content"]
    assert set(content) == {*FILES, "multipart/form-data", "application/json"}
    schema = content["application/json"]["schema"]
    for body in (build_instances(b"a"), {"images": [[[1]]]}):
        jsonschema.validate(body, schema)
    for body in (
        {"instances": []},
        {"instances": [{"b64": 1}]},
        {"instances": [{}]},
        {},
        {**build_instances(b"a"), "x": 1},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(body, schema)


def test_the_helper_is_started_once_and_kept(client, url, fake):
    assert fake.pid is None
    assert (
        read_first_prediction(send_image_files(client, url, b"a"))["pid"]
        == read_first_prediction(send_image_files(client, url, b"a"))["pid"]
        == fake.pid
    )


def test_a_helper_that_dies_is_a_503_and_the_next_request_gets_another(client, url, fake):
    before = read_first_prediction(send_image_files(client, url, b"a"))["pid"]
    died = send_image_files(client, url, b"die")
    assert died.status_code == 503 and died.json()["type"] == "/problems/unavailable"
    assert read_first_prediction(send_image_files(client, url, b"a"))["pid"] != before


def test_a_helper_that_was_killed_between_requests_is_not_noticed(client, url, fake):
    pid = read_first_prediction(send_image_files(client, url, b"a"))["pid"]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert send_image_files(client, url, b"a").status_code == 200


def test_a_helper_that_takes_too_long_is_ended(client, url, fake):
    pid = read_first_prediction(send_image_files(client, url, b"a"))["pid"]
    fake._settings.predict_answer_s = 0.1
    answer = send_image_files(client, url, b"hang")
    assert answer.status_code == 503 and "longer than" in answer.json()["detail"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_requests_at_the_same_time_wait_in_line(client, url, fake):
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: send_image_files(client, url, b"slow"), range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4


def test_an_owner_with_as_many_as_he_may_have_is_refused_and_another_is_not(
    client, url, fake, key_of, publish
):
    settings = client.app.state.settings.model_copy(update={"predict_owner_requests": 1})
    line = client.app.state.predict_limiter = PredictConcurrencyLimiter(settings)
    theirs = key_of("somebody", "write")
    with client.app.state.database.read() as session:
        owner = session.scalars(select(Owner.id).where(Owner.name == "somebody")).one()
    place = line.acquire_predict_slot(owner)
    body = {"name": "theirs", "scenario": "class", "architecture": "small-cnn"}
    client.post("/v1/models", json=body, headers=theirs)
    publish("theirs")
    refused = client.post(url.replace("birds", "theirs"), files={"image": b"a"}, headers=theirs)
    assert refused.status_code == 429 and refused.headers["Retry-After"] == "1"
    assert "1 predictions under way" in refused.json()["detail"]
    assert send_image_files(client, url, b"a").status_code == 200
    place.release_predict_slot()


def test_a_full_line_is_a_503_that_says_when_to_come_back(client, url, fake):
    settings = client.app.state.settings.model_copy(update={"predict_requests": 1})
    line = client.app.state.predict_limiter = PredictConcurrencyLimiter(settings)
    place = line.acquire_predict_slot("somebody")
    answer = send_image_files(client, url, b"a")
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"
    place.release_predict_slot()
    assert send_image_files(client, url, b"a").status_code == 200


def test_every_place_and_byte_is_given_back(client, url, fake):
    for sent in ([b"a"], [b"a", b"cut"], [b"cut"], [b"die"], [b"bad"], [b"a"] * 300):
        send_image_files(client, url, *sent)
    client.post(
        url, content=b"nonsense", headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    line = client.app.state.predict_limiter
    assert not line.requests and not line.bytes


def test_more_labels_than_an_answer_may_hold_are_refused_with_the_numbers(
    client, model, publish, fake
):
    publish(model, manifest={"classes": [f"c{i}" for i in range(500)]})
    url = f"/v1/models/{model}/versions/latest/predict"
    assert send_image_files(client, url + "?top_k=1000", *[b"a"] * 20).status_code == 200
    answer = send_image_files(client, url + "?top_k=1000", *[b"a"] * 21)
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "top_k"
    assert answer.json()["detail"] == (
        "21 images with 500 labels each are 10500 labels, and an answer may hold 10000:"
        " send at most 20 images at once, or ?top_k=476."
    )
    assert send_image_files(client, url + "?top_k=476", *[b"a"] * 21).status_code == 200
    assert send_image_files(client, url, *[b"a"] * 256).status_code == 200


def test_more_labels_of_an_image_than_may_be_asked_for_are_refused(client, url, fake):
    answer = send_image_files(client, url + "?top_k=1001", b"a")
    assert answer.status_code == 422 and "?top_k=1000 or less" in answer.json()["detail"]
    assert fake.pid is None


def test_what_the_helper_refuses_is_a_typed_422(client, url, fake):
    assert send_image_files(client, url, b"bad").json()["type"] == "/problems/invalid"


def test_an_image_that_cannot_be_used_is_an_error_in_its_place_and_a_single_one_a_422(
    client, url, fake
):
    items = send_image_files(client, url, b"cut", b"a", b"cut").json()["predictions"]
    error = {"code": "image-invalid", "detail": "The image cannot be used: cut."}
    assert items[0] == {"name": "0.png", "error": error} and items[2] == {
        "name": "2.png",
        "error": error,
    }
    assert items[1]["name"] == "1.png" and items[1]["pid"] == fake.pid
    assert send_image_files(client, url, b"cut").json()["type"] == "/problems/image-invalid"


def test_a_version_that_knows_no_classes_is_409(client, model, fake):
    answer = send_image_files(client, f"/v1/models/{model}/versions/0/predict", b"a")
    assert answer.status_code == 409 and fake.pid is None


def test_the_task_is_named_in_the_task_scenario_and_nowhere_else(client, publish, model, fake):
    client.post(
        "/v1/models", json={"name": "heads", "scenario": "task", "architecture": "small-cnn"}
    )
    publish("heads", manifest={"classes": [], "heads": [{"task": 1, "classes": ["cat", "dog"]}]})
    url = "/v1/models/heads/versions/1/predict"
    codes = [
        send_image_files(client, url + query, b"a").status_code
        for query in ("", "?task=1", "?task=2")
    ]
    assert codes == [422, 200, 422]
    publish(model)
    assert (
        send_image_files(client, f"/v1/models/{model}/versions/1/predict?task=1", b"a").status_code
        == 422
    )


def test_too_many_images_are_refused(client, url, fake):
    assert send_image_files(client, url, *[b"a"] * 257).status_code == 422
    assert send_image_files(client, url, *[b"a"] * 256).status_code == 200


def test_a_body_beyond_the_limit_is_413(client, url, fake):
    headers = {"Content-Length": str(65 << 20), "Content-Type": "application/json"}
    assert client.post(url, content=b"", headers=headers).status_code == 413


def test_other_content_types_and_broken_forms_are_refused(client, url, fake):
    assert client.post(url, content=b"a", headers={"Content-Type": "text/plain"}).status_code == 415
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    assert client.post(url, content=b"--x\r\n", headers=kind).status_code == 400
    assert client.post(url, content=b"nonsense", headers=kind).status_code == 422
    assert client.post(url, files={"other": b"a"}).status_code == 422


def test_a_file_that_is_gone_while_its_model_is_there_is_damage(client, url, fake):
    answer = send_image_files(client, url, b"gone")
    assert answer.status_code == 500 and answer.json()["type"] == "/problems/store-corrupt"


@pytest.mark.parametrize("what", ["predict", "download", "files/head"])
def test_a_model_deleted_between_its_rows_and_its_files_is_not_found(
    client, model, url, fake, monkeypatch, what
):
    reads = {
        "predict": "fetch_verified_file",
        "download": "fetch_verified_file",
        "files/head": "read",
    }
    read = getattr(Blobs, reads[what])

    def deleted_first(self, *given):
        monkeypatch.undo()
        assert client.delete(f"/v1/models/{model}").status_code == 204
        return read(self, *given)

    monkeypatch.setattr(Blobs, "find_recently_verified_file", lambda *_: None)
    monkeypatch.setattr(Blobs, reads[what], deleted_first)
    of_version = url.removesuffix("predict")
    answer = (
        send_image_files(client, url, b"a") if what == "predict" else client.get(of_version + what)
    )
    assert answer.status_code == 404, answer.text


@pytest.mark.slow
def test_the_real_helper_answers_for_files_and_arrays_alike(client, model, publish):
    import torch

    from core.learning.networks import HeadSpec, ImageSpec, build_network

    heads = HeadSpec(classes=("cat", "dog"))
    network = build_network({"name": "small-cnn"}, ImageSpec(32, 3), "class", heads, seed=1)
    network.head.bias.data = torch.tensor([0.0, 1.0])
    publish(
        model,
        {
            name: {k: t.numpy() for k, t in part.items()}
            for name, part in network.copy_parts_to_cpu().items()
        },
    )
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    png = io.BytesIO()
    Image.fromarray(pixels).save(png, "PNG")
    url = f"/v1/models/{model}/versions/1/predict"
    from_file = send_image_files(client, url, png.getvalue()).json()
    from_array = client.post(url, json={"images": [pixels.tolist()]}).json()
    assert from_file["predictions"][0].pop("name") == "0.png"
    assert from_array["predictions"][0].pop("name") is None
    assert from_file == from_array and from_file["version"] == 1 and from_file["task"] is None
    (one,) = from_file["predictions"]
    assert one["label"] == "dog" and abs(sum(one["probabilities"].values()) - 1) < 1e-5
    assert one["probability"] == one["probabilities"]["dog"]
    raw = client.post(url, content=png.getvalue(), headers={"Content-Type": "image/png"}).json()
    from_base64 = client.post(url, json=build_instances(png.getvalue())).json()
    assert raw["predictions"][0].pop("name") is from_base64["predictions"][0].pop("name") is None
    assert raw == from_base64 == from_file
    bad = send_image_files(client, url, png.getvalue()[:100])
    assert bad.status_code == 422 and bad.json()["type"] == "/problems/image-invalid"
    huge = io.BytesIO()
    Image.new("L", (8000, 8000)).save(huge, "PNG")
    assert (
        send_image_files(client, url, huge.getvalue()).json()["type"] == "/problems/image-invalid"
    )
    several = send_image_files(
        client, url, png.getvalue(), png.getvalue()[:100], huge.getvalue(), png.getvalue()
    )
    assert several.status_code == 200
    items = several.json()["predictions"]
    assert [item["name"] for item in items] == ["0.png", "1.png", "2.png", "3.png"]
    assert [item.get("label") for item in items] == ["dog", None, None, "dog"]
    damaged = {"code": "image-invalid", "detail": "The image cannot be used: damaged or cut off."}
    assert items[1]["error"] == damaged
    assert "8000×8000 pixels" in items[2]["error"]["detail"]
    for wrong in ([], [[[256]]], [[[0.5]]], [[1, 2]], [[[1], [2, 3]]], [[["a"]]], {"pictures": []}):
        assert client.post(url, json=wrong).status_code == 422, wrong


def test_each_request_finds_what_its_version_is_now_though_versions_are_kept_in_memory(
    client, model, publish, fake
):
    publish(model)
    url = f"/v1/models/{model}/versions/latest/predict"
    assert [send_image_files(client, url, b"a").json()["version"] for _ in range(2)] == [1, 1]
    publish(model)
    assert [send_image_files(client, url, b"a").json()["version"] for _ in range(2)] == [2, 2]
    assert send_image_files(client, url.replace("latest", "1"), b"a").json()["version"] == 1
    assert send_image_files(client, url.replace("latest", "01"), b"a").status_code == 404
    assert send_image_files(client, f"{url}?task=1", b"a").status_code == 422
    with client.app.state.database.write() as session:
        (key, *_) = [
            Blobs.make_blob_key(sha256) for sha256 in session.scalars(select(VersionPart.sha256))
        ]
        session.add(StoredObjectDamageMark(key=key, kind="digest", tag="", found_at=0.0))
    assert send_image_files(client, url, b"a").status_code == 500
    with client.app.state.database.write() as session:
        session.delete(session.get_one(StoredObjectDamageMark, key))
    assert send_image_files(client, url, b"a").status_code == 200
    assert client.delete(f"/v1/models/{model}").status_code in (200, 202, 204)
    assert send_image_files(client, url, b"a").status_code == 404


def test_a_helper_has_a_folder_that_goes_when_it_is_killed(client):
    settings = client.app.state.settings
    writes = FAKE.replace(
        'write_framed_message(out, b"{}")',
        'open(os.environ["TMPDIR"] + "/graph", "w")\nwrite_framed_message(out, b"{}")',
    )
    network = PredictionProcess(settings, [sys.executable, "-c", writes])
    network.ensure_process_running()
    assert len(list(settings.make_folder("predict").glob("*/graph"))) == 1
    network.close()
    assert list(settings.make_folder("predict").iterdir()) == []


@pytest.mark.slow
@pytest.mark.campaign  # tests/core/predictions/helper/test_graphs.py shows it
def test_a_version_that_is_asked_often_says_that_its_graph_answers_and_answers_the_same(
    client, model, publish
):
    import torch

    from core.learning.networks import HeadSpec, ImageSpec, build_network

    heads = HeadSpec(classes=("cat", "dog"))
    network = build_network({"name": "small-cnn"}, ImageSpec(32, 3), "class", heads, seed=1)
    with torch.no_grad():
        network.get_parameter("head.weight").normal_(std=0.1, generator=torch.manual_seed(1))
    publish(
        model,
        {
            name: {k: t.numpy() for k, t in part.items()}
            for name, part in network.copy_parts_to_cpu().items()
        },
    )
    pixels = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
    images = []
    for one in pixels:
        png = io.BytesIO()
        Image.fromarray(one).save(png, "PNG")
        images.append(png.getvalue())
    url = f"/v1/models/{model}/versions/1/predict"
    before = send_image_files(client, url, *images).json()
    assert before["engine"] == "torch"
    end = time.monotonic() + 240
    while send_image_files(client, url, images[0]).json()["engine"] != "onnxruntime":
        assert time.monotonic() < end
        time.sleep(0.2)
    after = send_image_files(client, url, *images).json()
    assert after["engine"] == "onnxruntime"
    for ours, theirs in zip(before["predictions"], after["predictions"], strict=True):
        assert ours["label"] == theirs["label"]
        assert abs(ours["probability"] - theirs["probability"]) <= 1e-5


def test_a_version_whose_parts_are_fetched_slowly_holds_up_no_other(client, url, fake, monkeypatch):
    paths, asked, answered = (
        PredictableVersion.fetch_part_paths,
        threading.Event(),
        threading.Event(),
    )

    def slow_once(found, blobs):
        if not asked.is_set():
            asked.set()
            assert answered.wait(60)
        return paths(found, blobs)

    monkeypatch.setattr(PredictableVersion, "find_recently_verified_part_paths", lambda *_: None)
    monkeypatch.setattr(PredictableVersion, "fetch_part_paths", slow_once)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(send_image_files, client, url, b"a")
        assert asked.wait(60)
        assert send_image_files(client, url, b"b").status_code == 200
        assert not first.done()
        answered.set()
        assert first.result().status_code == 200
