"""Edits by forms: choices lead to a plan, a plan to a job, and what is refused says why."""

from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from tests.api.routes.conftest import Publish

Text = Callable[[str], str]
RECIPE = {"recipe": {"method": {"name": "finetune", "hyper": {}}}}


@pytest.fixture
def birds(logged_in: TestClient, model: str, publish: Publish) -> str:
    """The path of a model with one version, of the classes cat and dog."""
    publish("birds", manifest=RECIPE)
    return f"/ui/models/{model}"


def build_plan_url(query: dict[str, object]) -> str:
    return "/edits/plan?" + urlencode(query)


def test_the_classes_are_listed_with_forms_that_change_them(
    logged_in: TestClient, birds: str, text: Text
) -> None:
    page = logged_in.get(f"{birds}/classes")
    assert page.status_code == 200
    assert "2 classes of version 1" in text(page.text)
    assert 'aria-label="Merge cat"' in page.text and "what=drop&amp;name=dog" in page.text


def test_a_rename_is_shown_sent_and_listed(logged_in: TestClient, birds: str, text: Text) -> None:
    choice = {"what": "rename", "name": "cat", "to": "tiger"}
    page = logged_in.get(birds + build_plan_url(choice))
    assert "cat → tiger" in text(page.text) and "2 before, 2 after" in text(page.text)
    sent = {"choice": urlencode(choice), "head": "1", "reason": "it has stripes"}
    stale = logged_in.post(f"{birds}/edits", data={**sent, "head": "0"})
    assert stale.status_code == 409 and "Look at the plan again" in text(stale.text)
    answer = logged_in.post(f"{birds}/edits", data=sent)
    assert answer.status_code == 303 and "/ui/jobs/job_" in answer.headers["location"]
    assert "Editing what was learned" in text(logged_in.get(answer.headers["location"]).text)
    edits = text(logged_in.get(f"{birds}/edits").text)
    assert "it has stripes" in edits and "1 operation" in edits and "queued" in edits
    second = logged_in.get(birds + build_plan_url({**choice, "name": "dog"}))
    assert "Edit 1 is queued" in text(second.text)


def test_ticked_classes_lead_to_their_plan_which_says_that_it_is_approximate(
    logged_in: TestClient, birds: str, text: Text
) -> None:
    ticked = {"what": "merge", "ticked.1": "cat", "ticked.2": "dog", "to": "pet"}
    answer = logged_in.post(f"{birds}/edits/plan", data=ticked)
    assert answer.status_code == 303
    page = text(logged_in.get(answer.headers["location"]).text)
    assert "Merge 2 classes" in page and "Approximate:" in page


def test_a_rename_to_a_known_class_offers_to_merge_both(
    logged_in: TestClient, birds: str, text: Text
) -> None:
    page = logged_in.get(birds + build_plan_url({"what": "rename", "name": "cat", "to": "dog"}))
    assert "There is a class dog already. Merge cat into it…" in text(page.text)


@pytest.mark.parametrize(
    "query",
    [
        {"what": "burn"},
        {"what": "remove", "task": "1", "images": "x"},
        {"what": "remove", "task": "1", "images": ",".join(map(str, range(49)))},
        {"what": "relabel", "task": "1", "images": "0", "part": "test"},
        {"what": "merge", "names": "[1]", "to": "pet"},
        {"what": "merge", "names": "[" * 5000, "to": "pet"},
    ],
)
def test_a_choice_that_no_page_makes_is_refused(
    logged_in: TestClient, birds: str, query: dict[str, object]
) -> None:
    assert logged_in.get(birds + build_plan_url(query)).status_code == 422


def test_a_choice_without_a_label_asks_for_it(
    logged_in: TestClient, birds: str, text: Text
) -> None:
    page = logged_in.get(birds + build_plan_url({"what": "relabel", "task": 1, "images": "3,5"}))
    assert "Change the label of 2 images" in text(page.text)
    assert 'name="images" value="3,5"' in page.text and "What it changes" not in page.text


def test_a_model_of_another_owner_has_no_pages_of_edits(logged_in: TestClient) -> None:
    for path in ("/classes", "/edits", "/edits/plan", "/tasks/1/images"):
        assert logged_in.get(f"/ui/models/nobody{path}").status_code == 404
    for path in ("/edits", "/edits/plan", "/edits/1/undo", "/edits/1/purge", "/classes/forget"):
        assert logged_in.post(f"/ui/models/nobody{path}", data={}).status_code == 404, path
