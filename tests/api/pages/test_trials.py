"""The trials of a job on its page, and the choice of one of them."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.keys.keys import ADMIN_OWNER
from tests.api.choosing import RECIPES, make_choosing_job
from tests.api.conftest import KeyOf, Make
from tests.api.pages.test_submit import PATH, create_upload

Text = Callable[[str], str]


def test_a_person_chooses_on_the_page_of_the_job(
    client: TestClient, archive: Make, text: Text, request: pytest.FixtureRequest
) -> None:
    job = make_choosing_job(client, archive, "to-choose")
    browser = request.getfixturevalue("logged_in")
    page = text(browser.get(f"/ui/jobs/{job}").text)
    assert "Trial 2 is suggested, and it is chosen on" in page
    assert "90.0 % ± 1.0 % (40 images) 90.0 % (10 images)" in page
    chosen = browser.post(f"/ui/jobs/{job}/choose", data={"trial": "1"})
    assert chosen.status_code == 303, chosen.text
    page = text(browser.get(f"/ui/jobs/{job}").text)
    assert "Choose trial" not in page and "1 of 2" not in page
    again = browser.post(f"/ui/jobs/{job}/choose", data={"trial": "2"})
    assert again.status_code == 409 and "Trial 1 is chosen already" in text(again.text)


def test_trials_are_read_and_chosen_by_those_who_may(
    client: TestClient, archive: Make, key_of: KeyOf
) -> None:
    job = make_choosing_job(client, archive, "to-choose")
    reader, stranger = key_of(ADMIN_OWNER, "read"), key_of("stranger", "write")
    table = client.get(f"/v1/jobs/{job}/trials", headers=reader).json()
    assert (table["best"], table["chosen"], table["state"]) == (2, None, "choosing")
    assert client.get(f"/v1/jobs/{job}/trials", headers=stranger).status_code == 404
    path, body = f"/v1/jobs/{job}/choose", {"trial": 1}
    assert client.post(path, json=body, headers=reader).status_code == 403
    assert client.post(path, json=body, headers=stranger).status_code == 404
    table = client.post(path, json=body).json()
    assert (table["chosen"], table["state"]) == (1, "queued")
    assert table["items"][1]["why_lost"] is not None


@pytest.mark.parametrize(
    ("inputs", "recipes", "choose"),
    [
        ({"trials": "list", "trials_list": json.dumps(RECIPES)}, RECIPES, "best"),
        (
            {"trials": "list", "trials_list": json.dumps(RECIPES), "choose": "manual"},
            RECIPES,
            "manual",
        ),
    ],
    ids=["the best", "by a person"],
)
def test_a_form_sends_a_batch_with_trials(
    inputs: dict[str, str],
    recipes: list[Any],
    choose: str,
    logged_in: TestClient,
    model: str,
    archive: Make,
) -> None:
    files = {"file": ("a.zip", archive(cat=9, dog=9), "application/zip")}
    answer = logged_in.post(PATH, data={"do": "submit", **inputs}, files=files)
    assert answer.status_code == 303, answer.text
    trials = logged_in.get(f"{answer.headers['location'].replace('/ui/', '/v1/')}/trials").json()
    assert [one["recipe"] for one in trials["items"]] == recipes
    assert trials["choose"] == choose


def test_a_check_lists_the_recipes_that_would_be_compared(
    logged_in: TestClient, model: str, archive: Make, text: Text
) -> None:
    listed = {"trials": "list", "trials_list": json.dumps(RECIPES)}
    form = {"upload": create_upload(logged_in, archive(cat=9, dog=9)), **listed}
    page = logged_in.post(f"{PATH}/check", data=form)
    assert page.status_code == 200, page.text
    assert "Recipes that are compared:" in text(page.text)
    assert html.unescape(text(page.text)).count("It was listed in the request.") == 2


def test_the_plan_has_the_trials_for_the_script_and_as_commands(
    logged_in: TestClient, model: str, text: Text
) -> None:
    form = {"trials": "auto", "choose": "manual"}
    page = logged_in.post(f"{PATH}/plan", data=form).text
    trials = re.search(r'data-trials="([^"]*)"', page)
    assert trials is not None
    assert json.loads(html.unescape(trials[1])) == form
    assert "BATCH.zip --trials auto --choose manual" in text(page)
    assert "&trials=auto&choose=manual" in html.unescape(text(page))


@pytest.mark.parametrize(
    ("inputs", "name", "error"),
    [
        ({"trials": "list"}, "trials_list", "is empty"),
        ({"trials": "list", "trials_list": "{}"}, "trials_list", "a JSON list of recipes"),
        ({"trials": "auto", "epochs": "3"}, "trials", "by one recipe or by trials of several"),
    ],
    ids=["no list", "no JSON list", "a recipe too"],
)
def test_what_is_wrong_with_trials_stands_beside_their_input(
    inputs: dict[str, str], name: str, error: str, logged_in: TestClient, model: str
) -> None:
    page = logged_in.post(f"{PATH}/plan", data=inputs).text
    errors = re.search(r'data-errors="([^"]*)"', page)
    assert errors is not None
    assert error in json.loads(html.unescape(errors[1]))[name]


def test_a_job_that_waits_for_a_choice_is_what_a_model_needs_attention_for(
    client: TestClient, archive: Make, text: Text, request: pytest.FixtureRequest
) -> None:
    job = make_choosing_job(client, archive, "to-choose")
    (item,) = client.get("/v1/models/to-choose").json()["attention"]
    assert (item["kind"], item["task"]) == ("choosing", 1)
    assert "Trial 2 is suggested, and it is chosen on " in item["detail"]
    best, other = item["actions"]
    assert best["body"] == {"trial": 2} and other["body"] == {"trial": 1}
    browser = request.getfixturevalue("logged_in")
    page = browser.get("/ui/models/to-choose").text
    assert f'href="/ui/jobs/{job}#trials">See the trials and choose' in page
    assert "1 thing waits for you" in text(browser.get("/ui").text)
    settled = client.request(best["method"], best["path"], json=best["body"])
    assert settled.status_code == 200, settled.text
    assert client.get("/v1/models/to-choose").json()["attention"] == []
