"""The page that creates a model: what it asks for, and what it says of what is wrong."""

import re
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from api.pages.parts import wording
from core.packaged import imagenet_base, packaged_base

PATH = "/ui/models/new"
GIVEN = {
    "name": "owls",
    "scenario": "class",
    "base": "packaged",
    "max_forgetting": "10",
    "description": "Owls.",
}
CHOSEN = 'Not taught task 2 (“POST /v1/models {"name": "\\ud800", "scenario": "x", "base": {}}.”).'
"""Somebody named a batch so."""


def test_a_form_creates_a_model_and_shows_it(logged_in: TestClient) -> None:
    answer = logged_in.post(PATH, data={**GIVEN, "min_acc": "75 %"})
    made = logged_in.get("/v1/models/owls").json()
    assert answer.status_code == 303 and answer.headers["location"] == f"/ui/models/{made['id']}"
    assert made["gate"]["max_forgetting"] == 0.1 and made["gate"]["min_acc"] == 0.75
    assert made["base"] == "perennial/resnet20-cifar100" and made["description"] == "Owls."
    assert "Nothing learned yet" in logged_in.get(answer.headers["location"]).text


def test_where_the_base_for_photos_is_the_default_the_small_one_can_be_chosen(
    logged_in: TestClient,
) -> None:
    state = logged_in.app.state  # type: ignore[attr-defined]
    assert "the base for photos" not in logged_in.get(PATH).text
    state.settings = state.settings.model_copy(update={"default_base": imagenet_base.NAME})
    assert "the base for photos" in logged_in.get(PATH).text
    for name, base, stored in (
        ("a", "packaged", imagenet_base.NAME),
        ("b", "small", packaged_base.PACKAGED),
    ):
        assert logged_in.post(PATH, data={**GIVEN, "name": name, "base": base}).status_code == 303
        assert logged_in.get(f"/v1/models/{name}").json()["base"] == stored


def test_random_weights_and_weights_of_timm_are_asked_for_by_name(logged_in: TestClient) -> None:
    assert logged_in.post(PATH, data={**GIVEN, "base": "random"}).status_code == 303
    assert logged_in.get("/v1/models/owls").json()["base"] == "random"
    wanted = {**GIVEN, "name": "hawks", "base": "timm", "timm": "mobilenetv3_small_100.lamb_in1k"}
    assert logged_in.post(PATH, data=wanted).status_code == 303
    made = logged_in.get("/v1/models/hawks").json()
    assert (
        made["architecture"]["model"] == "mobilenetv3_small_100.lamb_in1k"
        and made["state"] == "fetching"
    )


def test_a_model_on_a_version_of_another_has_its_architecture_and_images(
    logged_in: TestClient, model: str
) -> None:
    wanted = {**GIVEN, "base": "version", "model": "birds", "version": "0"}
    assert logged_in.post(PATH, data=wanted).status_code == 303
    source, made = (logged_in.get(f"/v1/models/{name}").json() for name in (model, "owls"))
    assert made["base"] == {"model": source["id"], "version": 0}
    assert (made["architecture"], made["image"]) == (source["architecture"], source["image"])
    assert made["recipe"]["method"]["name"] == "analytic"


def test_a_link_fills_in_what_a_warning_advises(logged_in: TestClient) -> None:
    body = (
        '{"name": "b-analytic", "scenario": "data", "base": {"model": "b", "version": 3}, '
        '"recipe": {}}'
    )
    path = wording.find_advised_new_model_form_path(f"Start one: POST /v1/models {body}.")
    assert path == f"{PATH}?name=b-analytic&scenario=data&base=version&model=b&version=3"
    page = logged_in.get(path).text
    for name, value in (("name", "b-analytic"), ("model", "b"), ("version", "3")):
        assert re.search(rf'name="{name}" value="{value}"', page), name
    for value in ("data", "version"):
        assert f'value="{value}" checked' in page


@pytest.mark.parametrize("text", ["Wait.", "POST /v1/models {}.", "POST /v1/models {...}.", CHOSEN])
def test_a_sentence_that_asks_for_no_model_leads_nowhere(text: str) -> None:
    assert wording.find_advised_new_model_form_path(text) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "Owls!"}, "cannot be a name"),
        ({"scenario": "both"}, "must be one of class, data, task"),
        ({"max_forgetting": "much"}, "must be a number from 0 to 100"),
        ({"min_acc": "nan"}, "must be a number from 0 to 100"),
        ({"base": "timm"}, "choose a name of the list"),
        ({"base": "timm", "timm": "resnet"}, "did you mean"),
        ({"timm": "resnet18.a1_in1k"}, "choose one of both"),
        ({"base": "elsewhere"}, "must be packaged, small, timm, version or random"),
        ({"base": "version", "model": "hawks"}, "version is not a number"),
        ({"model": "hawks"}, "choose one of both"),
        ({"description": "a\u202eb"}, "description"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_stays(
    logged_in: TestClient, text: Callable[[str], str], changed: dict[str, str], said: str
) -> None:
    answer = logged_in.post(PATH, data={**GIVEN, "min_new_task": "81", **changed})
    assert answer.status_code == 422 and said in text(answer.text), text(answer.text)
    assert 'name="min_new_task" value="81"' in answer.text
    assert logged_in.get("/v1/models").json()["items"] == []


def test_a_version_of_a_model_that_is_not_there_is_said(logged_in: TestClient) -> None:
    answer = logged_in.post(
        PATH, data={**GIVEN, "base": "version", "model": "hawks", "version": "1"}
    )
    assert answer.status_code == 404 and 'value="hawks"' in answer.text


def test_a_name_that_is_taken_is_said(logged_in: TestClient, model: str) -> None:
    answer = logged_in.post(PATH, data={**GIVEN, "name": model})
    assert (
        answer.status_code == 409
        and 'role="alert"' in answer.text
        and 'value="birds"' in answer.text
    )


@pytest.mark.parametrize(
    "query", [f"{PATH}?name=", "/ui/models/birds/compare?a="], ids=["new model", "compare"]
)
def test_a_query_may_name_what_is_as_long_as_a_name_may_be(
    logged_in: TestClient, query: str
) -> None:
    """Of a model that is missing, too: a query is read first."""
    assert logged_in.get(query + "x" * 63).status_code in (200, 404)
    assert logged_in.get(query + "x" * 64).status_code == 422
