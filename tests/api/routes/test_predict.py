"""Prediction over HTTP: what is refused before the helper, what the helper's end means, and real answers."""

import io
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image

from api import predictor as client_side
from api.predictor import Predictor
from core.requests.predictions import Predictable
from core.store import Blobs

# Answers with the number of images and its own process id; an image that begins with "die" ends it, "hang" sleeps.
FAKE = """
import json, os, sys, time
from core.messages import read_exactly, read_message, write_message
out = os.fdopen(os.dup(1), "wb")
write_message(out, b"{}")
while True:
    try:
        header = json.loads(read_message(sys.stdin.buffer))
    except EOFError:
        break
    body = [read_exactly(sys.stdin.buffer, n) for n in header["sizes"]]
    if body[0].startswith(b"die"):
        os._exit(9)
    if body[0].startswith(b"hang"):
        time.sleep(60)
    if body[0].startswith(b"slow"):
        time.sleep(0.3)
    if body[0].startswith(b"bad"):
        write_message(out, json.dumps({"kind": "image", "detail": "Image 0 cannot be used."}).encode())
        continue
    if body[0].startswith(b"gone"):
        write_message(out, json.dumps({"kind": "gone", "detail": "A file is gone."}).encode())
        continue
    write_message(out, b'{"ok": true}')
    write_message(out, json.dumps({"n": len(body), "pid": os.getpid(), "version": header["version"]}).encode())
"""


@pytest.fixture
def fake(client):
    helper = Predictor(client.app.state.settings, command=[sys.executable, "-c", FAKE], answer_s=2)
    client.app.state.predictor = helper
    return helper


@pytest.fixture
def url(model, publish) -> str:
    publish(model)
    return f"/v1/models/{model}/versions/latest/predict"


def send(client, url, *images: bytes):
    return client.post(
        url, files=[("image", (f"{i}.png", data, "image/png")) for i, data in enumerate(images)]
    )


def test_images_go_to_the_helper_in_order_and_its_answer_comes_back(client, url, fake):
    answer = send(client, url, b"a", b"b")
    assert answer.status_code == 200 and answer.json()["n"] == 2 and answer.json()["version"] == 1


def test_the_helper_is_started_once_and_kept(client, url, fake):
    assert fake.pid is None
    assert send(client, url, b"a").json()["pid"] == send(client, url, b"a").json()["pid"] == fake.pid


def test_a_helper_that_dies_is_a_503_and_the_next_request_gets_another(client, url, fake):
    first = send(client, url, b"a").json()["pid"]
    died = send(client, url, b"die")
    assert died.status_code == 503 and died.json()["type"] == "/problems/unavailable"
    assert send(client, url, b"a").json()["pid"] != first


def test_a_helper_that_was_killed_between_requests_is_not_noticed(client, url, fake):
    pid = send(client, url, b"a").json()["pid"]
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    assert send(client, url, b"a").status_code == 200


def test_a_helper_that_takes_too_long_is_ended(client, url, fake):
    pid = send(client, url, b"a").json()["pid"]
    answer = send(client, url, b"hang")
    assert answer.status_code == 503 and "longer than" in answer.json()["detail"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_requests_at_the_same_time_wait_in_line(client, url, fake):
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda: codes.append(send(client, url, b"slow").status_code))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 4


def test_a_full_line_is_a_503_that_says_when_to_come_back(client, url, fake, monkeypatch):
    monkeypatch.setattr(client_side, "WAITING", 0)
    answer = send(client, url, b"a")
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"


def test_an_image_that_the_helper_refuses_is_a_typed_422(client, url, fake):
    assert send(client, url, b"bad").json()["type"] == "/problems/image-invalid"


def test_a_version_that_knows_no_classes_is_409(client, model, fake):
    answer = send(client, f"/v1/models/{model}/versions/0/predict", b"a")
    assert answer.status_code == 409 and fake.pid is None


def test_the_task_is_named_in_the_task_scenario_and_nowhere_else(client, publish, model, fake):
    client.post("/v1/models", json={"name": "heads", "scenario": "task"})
    publish("heads", manifest={"classes": [], "heads": [{"task": 1, "classes": ["cat", "dog"]}]})
    url = "/v1/models/heads/versions/1/predict"
    codes = [send(client, url + query, b"a").status_code for query in ("", "?task=1", "?task=2")]
    assert codes == [422, 200, 422]
    publish(model)
    assert send(client, f"/v1/models/{model}/versions/1/predict?task=1", b"a").status_code == 422


def test_too_many_images_are_refused(client, url, fake):
    assert send(client, url, *[b"a"] * 257).status_code == 422
    assert send(client, url, *[b"a"] * 256).status_code == 200


def test_a_body_beyond_the_limit_is_413(client, url, fake):
    answer = client.post(
        url, content=b"", headers={"Content-Length": str(65 << 20), "Content-Type": "application/json"}
    )
    assert answer.status_code == 413


def test_other_content_types_and_broken_forms_are_refused(client, url, fake):
    assert client.post(url, content=b"a", headers={"Content-Type": "image/png"}).status_code == 415
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    assert client.post(url, content=b"--x\r\n", headers=kind).status_code == 400
    assert client.post(url, content=b"nonsense", headers=kind).status_code == 422
    assert client.post(url, files={"other": b"a"}).status_code == 422


def test_a_file_that_is_gone_while_its_model_is_there_is_damage(client, url, fake):
    answer = send(client, url, b"gone")
    assert answer.status_code == 500 and answer.json()["type"] == "/problems/store-corrupt"


@pytest.mark.parametrize("what", ["predict", "download", "files/head"])
def test_a_model_deleted_between_its_rows_and_its_files_is_not_found(
    client, model, url, fake, monkeypatch, what
):
    reads = {"predict": "fetch", "download": "fetch", "files/head": "read"}
    read = getattr(Blobs, reads[what])

    def deleted_first(self, *given):
        monkeypatch.undo()
        assert client.delete(f"/v1/models/{model}").status_code == 204
        return read(self, *given)

    monkeypatch.setattr(Blobs, reads[what], deleted_first)
    of_version = url.removesuffix("predict")
    answer = send(client, url, b"a") if what == "predict" else client.get(of_version + what)
    assert answer.status_code == 404, answer.text


@pytest.mark.slow
def test_the_real_helper_answers_for_files_and_arrays_alike(client, model, publish):
    import torch

    from core.learn.networks import HeadSpec, ImageSpec, build_network

    heads = HeadSpec(classes=("cat", "dog"))
    network = build_network({"name": "small-cnn"}, ImageSpec(32, 3), "class", heads, seed=1)
    network.head.bias.data = torch.tensor([0.0, 1.0])
    publish(model, {name: {k: t.numpy() for k, t in part.items()} for name, part in network.parts().items()})
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    png = io.BytesIO()
    Image.fromarray(pixels).save(png, "PNG")
    url = f"/v1/models/{model}/versions/1/predict"
    from_file = send(client, url, png.getvalue()).json()
    from_array = client.post(url, json={"images": [pixels.tolist()]}).json()
    assert from_file == from_array and from_file["version"] == 1 and from_file["task"] is None
    (one,) = from_file["predictions"]
    assert one["label"] == "dog" and abs(sum(one["probabilities"].values()) - 1) < 1e-5
    assert one["probability"] == one["probabilities"]["dog"]
    bad = send(client, url, png.getvalue()[:100])
    assert bad.status_code == 422 and bad.json()["type"] == "/problems/image-invalid"
    huge = io.BytesIO()
    Image.new("L", (5000, 5000)).save(huge, "PNG")
    assert send(client, url, huge.getvalue()).json()["type"] == "/problems/image-invalid"
    for wrong in ([], [[[256]]], [[[0.5]]], [[1, 2]], [[[1], [2, 3]]], [[["a"]]], {"pictures": []}):
        assert client.post(url, json=wrong).status_code == 422, wrong


def test_a_version_whose_parts_are_fetched_slowly_holds_up_no_other(client, url, fake, monkeypatch):
    paths, asked, answered = Predictable.paths, threading.Event(), threading.Event()

    def slow_once(found, blobs):
        if not asked.is_set():
            asked.set()
            assert answered.wait(60)
        return paths(found, blobs)

    monkeypatch.setattr(Predictable, "paths", slow_once)
    first = threading.Thread(target=send, args=[client, url, b"a"])
    first.start()
    assert asked.wait(30)
    assert send(client, url, b"b").status_code == 200
    assert first.is_alive()
    answered.set()
    first.join()
