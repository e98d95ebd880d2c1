"""Request of the submit page's script before it uploads: a sentence about images that cannot be
read.
"""

import base64
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.core.ingest.hostile_corpus import draw_png

PATH = "/ui/models/birds/submit/look"
RAW = b"\0\0\0\x18ftypcrx \0\0\0\1crx isom" + bytes(90)


def build_file_head(name: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "size": len(data), "head": base64.b64encode(data[:2048]).decode()}


def request_first_look(client: TestClient, heads: list[dict[str, Any]], files: int = 0) -> Any:
    return client.post(PATH, json={"files": files, "heads": heads})


GOOD = [build_file_head(f"cat/{i}.png", draw_png(i)) for i in range(40)]


def test_good_images_are_nothing_to_speak_of(logged_in: TestClient, model: str) -> None:
    beside = [
        build_file_head("README.md", b"hello"),
        build_file_head("__MACOSX/cat/._a.png", b"x"),
        build_file_head("labels.csv", b"path,label"),
    ]
    assert request_first_look(logged_in, [*GOOD, *beside]).json() == {"refused": "", "warning": ""}


def test_a_few_that_cannot_be_read_are_a_warning(logged_in: TestClient, model: str) -> None:
    said = request_first_look(
        logged_in, [*GOOD, build_file_head("dog/a\n.png", RAW)], files=1000
    ).json()
    assert said["refused"] == ""
    assert said["warning"].startswith(
        "1 of 41 images looked at cannot be read and is left out; the first is “dog/a .png”"
    )


def test_too_many_refuse_the_file_before_it_is_uploaded(logged_in: TestClient, model: str) -> None:
    said = request_first_look(
        logged_in, [*GOOD[:5], *[build_file_head(f"dog/{i}.png", RAW) for i in range(5)]]
    ).json()
    assert (
        "5 of 10 images cannot be read" in said["refused"]
        and "a camera RAW file" in said["refused"]
    )
    assert said["warning"] == ""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"files": 1, "heads": [{"name": "a", "size": 1, "head": "*"}]}, 422),
        ({"files": 1, "heads": [GOOD[0]] * 65}, 422),
        ({"files": -1, "heads": []}, 422),
        ({"files": 1}, 422),
        ({"files": 1, "heads": [{"name": "a" * 600_000, "size": 1, "head": ""}]}, 413),
    ],
)
def test_what_the_script_does_not_send_is_refused(
    logged_in: TestClient, model: str, body: Any, status: int
) -> None:
    assert logged_in.post(PATH, json=body).status_code == status


def test_another_sites_page_may_not_ask(logged_in: TestClient, model: str) -> None:
    answer = logged_in.post(
        PATH, json={"files": 0, "heads": []}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert answer.status_code == 403


def test_a_model_that_is_not_seen_is_not_found(logged_in: TestClient, model: str) -> None:
    assert (
        logged_in.post(PATH.replace("birds", "owls"), json={"files": 0, "heads": []}).status_code
        == 404
    )
