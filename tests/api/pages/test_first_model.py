"""The first page of an installation: three ways to a first model, in plain words."""

import io
import re
import tarfile
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from api.pages.first_model import derive_model_name
from core.packaged import sample_pictures
from tests.api.conftest import KeyOf, Make

Text = Callable[[str], str]
JARGON = re.compile(
    r"\b(tasks?|gates?|analytic|replay|scenarios?|recipes?|backbone|epochs?|jobs?|lineage)\b", re.I
)
"""Terms that a user need not know before the first result."""


def test_without_a_model_the_page_shows_three_ways_in_plain_words(
    logged_in: TestClient, text: Text
) -> None:
    page = text(logged_in.get("/ui").text)
    for way in ("Try it with sample pictures", "Drop your own photos", "from a terminal"):
        assert way in page
    assert "perennial login http://127.0.0.1:8000" in page
    assert "perennial submit birds FOLDER" in page
    assert not JARGON.findall(page)
    assert "Filter by name" not in page


def test_one_click_submits_the_sample_pictures_and_shows_how_far_they_are(
    logged_in: TestClient, text: Text
) -> None:
    answer = logged_in.post("/ui/first/samples")
    made = logged_in.get(f"/v1/models/{sample_pictures.MODEL}").json()
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/ui/models/{made['id']}/first"
    tasks = logged_in.get(f"/v1/models/{made['id']}/tasks").json()["items"]
    classes = {task["name"]: tuple(sorted(task["classes"])) for task in tasks}
    assert classes == sample_pictures.BATCHES
    page = text(logged_in.get(answer.headers["location"]).text)
    assert "It is learning" in page and "apple, book, mug" in page
    assert not JARGON.findall(page)
    # The files of the package stay where they are.
    assert all(
        sample_pictures.locate_packaged_sample_archive(name).exists()
        for name in sample_pictures.BATCHES
    )
    again = logged_in.post("/ui/first/samples")
    assert again.status_code == 303
    assert again.headers["location"] == f"/ui/models/{sample_pictures.MODEL}/first"


def submit_first_form(browser: TestClient, content: bytes, name: str) -> tuple[int, str]:
    """Send an archive as the page's form does.

    Return the status, and the location or else the body.
    """
    answer = browser.post("/ui/first", data={"name": name}, files={"file": ("a.zip", content)})
    return answer.status_code, answer.headers.get("location") or answer.text


def test_an_own_archive_becomes_a_model_that_is_named_as_its_folder(
    logged_in: TestClient, archive: Make
) -> None:
    status, location = submit_first_form(logged_in, archive(owl=4, robin=4), "My Birds (2026)")
    made = logged_in.get("/v1/models/my-birds-2026").json()
    assert (status, location) == (303, f"/ui/models/{made['id']}/first")
    [task] = logged_in.get(f"/v1/models/{made['id']}/tasks").json()["items"]
    assert sorted(task["classes"]) == ["owl", "robin"]


def test_pictures_that_are_refused_leave_no_model_and_the_page_says_why(
    logged_in: TestClient, text: Text
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("notes/readme.txt"), io.BytesIO())
    for content in (buffer.getvalue(), b"", b"no archive"):
        status, page = submit_first_form(logged_in, content, "birds")
        assert status in (415, 422), page
        assert 'role="alert"' in page and "Try it with sample pictures" in text(page)
        assert logged_in.get("/v1/models").json()["items"] == []


def test_a_page_of_another_site_can_start_nothing(logged_in: TestClient, archive: Make) -> None:
    logged_in.headers["Origin"] = "https://elsewhere.example"
    assert logged_in.post("/ui/first/samples").status_code == 403
    assert submit_first_form(logged_in, archive(owl=4, robin=4), "birds")[0] == 403
    logged_in.headers["Origin"] = "http://127.0.0.1:8000"
    assert logged_in.get("/v1/models").json()["items"] == []


def test_a_key_that_may_read_sees_no_way(browser: TestClient, key_of: KeyOf, text: Text) -> None:
    key = key_of("reader", scope="read")["Authorization"].removeprefix("Bearer ")
    assert browser.post("/ui/login", data={"key": key, "next": ""}).status_code == 303
    page = text(browser.get("/ui").text)
    assert "No model yet" in page and "Learn the sample pictures" not in page
    assert browser.post("/ui/first/samples").status_code == 403


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("birds", "birds"),
        ("My Birds (2026)", "my-birds-2026"),
        ("--x..", "x"),
        ("птицы", "photos"),
        ("", "photos"),
        ("mdl_x", "photos"),
        ("a" * 100, "a" * 60),
    ],
)
def test_the_name_of_a_folder_becomes_a_name_of_a_model(given: str, name: str) -> None:
    assert derive_model_name(given) == name
