"""One owner attacks predictions with a read key; another's are answered all the same, and helpers
know no secret.
"""

import contextlib
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx2
import psutil
import pytest

from core.settings import Settings
from tests.core.ingest.hostile_corpus import build_zip, draw_png
from tests.core.ingest.hostile_corpus import draw_pictures as honest_pictures
from tests.descendants import list_descendants
from tests.rest import Rest
from tests.security import neighbours
from tests.security.memory import Memory
from tests.security.neighbours import (
    NAMES,
    PREDICT,
    Site,
    build_attacks,
    build_form,
    predict_during_attack,
    stop_after_answers,
    stop_after_seconds,
)
from tools.service import RunningService

pytestmark = pytest.mark.slow

HELPERS = {
    "predict helper": "core.predictions.helper.helper",
    "image decoder": "core.predictions.helper.decoder",
    "decoder": "core.ingest.decoding.decoder",
    "zygote": "worker.attempts.zygote",
}


@pytest.fixture(scope="module")
def found(running: RunningService) -> Site:
    return neighbours.prepare_site(running)


def test_every_attack_has_a_name() -> None:
    assert tuple(build_attacks()) == NAMES


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "mpo" else pytest.mark.campaign) for name in NAMES],
)
def test_a_neighbour_is_answered_through_an_attack(found: Site, name: str) -> None:
    answers = predict_during_attack(found, build_attacks()[name], stop_after_answers(6))
    assert answers.statuses == [200] * 6, dict(found.told)


@pytest.mark.parametrize("name", ["large", pytest.param("arrays", marks=pytest.mark.campaign)])
def test_a_neighbour_waits_for_a_small_part_of_a_request_and_not_for_its_end(
    found: Site, name: str
) -> None:
    answers = predict_during_attack(
        found, replace(build_attacks()[name], times=1), lambda _: bool(found.told)
    )
    assert answers.refused == 0 and len(answers.statuses) > 3, (
        "answers within one request of the attacker"
    )


@pytest.mark.campaign
@pytest.mark.parametrize("name", NAMES)
def test_a_neighbour_never_waits_for_an_image_of_the_attacker(found: Site, name: str) -> None:
    answers = predict_during_attack(found, build_attacks()[name], stop_after_seconds(3))
    print(f"{name}: {answers}; attacker {dict(found.told)}")
    assert answers.refused == 0 and len(answers.statuses) > 5
    assert max(answers.seconds) < Settings().predict_image_s


def test_answers_that_nobody_takes_stay_small(running: RunningService, found: Site) -> None:
    memory = Memory(running.process.pid)
    memory.start()
    predict_during_attack(found, build_attacks()["unread"], stop_after_answers(3))
    # Without a bound each of four answers holds 256 × 400 labels of 200 characters.
    assert memory.stop()["api"] < 400
    assert found.told[422] == 4


@pytest.mark.campaign  # tests/security/test_corpus.py sends such a body
def test_a_body_that_stops_is_a_408_and_leaves_room(found: Site) -> None:
    with socket.create_connection(found.address) as connection:
        connection.settimeout(60)
        connection.sendall(found.head(1 << 20) + b"--xx\r\n")
        with connection.makefile("rb") as answers:
            answer = answers.read()
    assert answer.startswith(b"HTTP/1.1 408 ") and b"/problems/body-timeout" in answer
    assert b"Nothing of the body came for 3 s." in answer


def test_an_answer_of_too_many_labels_is_refused_with_what_to_send(found: Site) -> None:
    headers = {"Authorization": f"Bearer {found.attacker}"}
    files = [("image", ("a.png", draw_png(1), "image/png"))] * 256
    url = found.url + PREDICT.format("wide")
    answer = httpx2.post(f"{url}?top_k=1000", files=files, headers=headers, timeout=60)
    assert answer.status_code == 422
    assert "256 images with 400 labels each are 102400 labels" in answer.json()["detail"]
    assert "send at most 25 images at once, or ?top_k=39" in answer.json()["detail"]
    allowed = httpx2.post(f"{url}?top_k=39", files=files, headers=headers, timeout=60)
    assert [len(item["probabilities"]) for item in allowed.json()["predictions"]] == [39] * 256


def test_many_images_are_answered_as_each_is_alone(found: Site) -> None:
    headers = {
        "Authorization": f"Bearer {found.neighbour}",
        "Content-Type": "multipart/form-data; boundary=xx",
    }
    url = found.url + PREDICT.format("own")
    sent = [draw_png(number) for number in range(70)]
    together = httpx2.post(url, content=build_form(sent), headers=headers, timeout=60).json()[
        "predictions"
    ]
    for position in (0, 1, 5, 69):
        form = build_form([sent[position]])
        answer = httpx2.post(url, content=form, headers=headers, timeout=60)
        (alone,) = answer.json()["predictions"]
        assert together[position]["probability"] == pytest.approx(alone["probability"], abs=1e-5)
        assert together[position]["label"] == alone["label"]


def test_no_helper_inherits_a_secret(running: RunningService, admin: Rest) -> None:
    seen: dict[str, bytes] = {}
    over = threading.Event()
    watch = threading.Thread(target=_watch_helpers, args=[running.process.pid, seen, over])
    watch.start()
    try:
        admin.models.create(
            "helped", recipe={"method": "finetune", "epochs": 1}, architecture="small-cnn"
        )
        job = admin.wait(admin.submit("helped", build_zip(honest_pictures(10))))
        admin.call(
            "POST", PREDICT.format("helped"), files={"image": ("a.png", draw_png(1), "image/png")}
        )
    finally:
        over.set()
        watch.join()
    assert job.state == "succeeded" and seen.keys() == HELPERS.keys()
    for name, given in seen.items():
        assert b"canary" not in given and b"PERENNIAL_" not in given, name
        assert b"PATH=" in given, name


def _watch_helpers(root: int, seen: dict[str, bytes], over: threading.Event) -> None:
    """Read the environment of every helper that shows up below a process."""
    read: set[int] = set()
    while not over.is_set():
        for process in list_descendants(root):
            if process.pid in read:
                continue
            with contextlib.suppress(psutil.Error, OSError):
                words = process.cmdline()
                for name, module in HELPERS.items():
                    if module in words and (
                        given := Path(f"/proc/{process.pid}/environ").read_bytes()
                    ):
                        seen[name] = given
                        read.add(process.pid)
        time.sleep(0.01)
