"""The page that creates a model: what it asks for, and what it says of what is wrong."""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

PATH = "/ui/models/new"
GIVEN = {
    "name": "owls",
    "scenario": "class",
    "base": "packaged",
    "max_forgetting": "10",
    "description": "Owls.",
}


def test_a_form_creates_a_model_and_shows_it(logged_in: TestClient) -> None:
    answer = logged_in.post(PATH, data={**GIVEN, "min_acc": "75 %"})
    made = logged_in.get("/v1/models/owls").json()
    assert answer.status_code == 303 and answer.headers["location"] == f"/ui/models/{made['id']}"
    assert made["gate"]["max_forgetting"] == 0.1 and made["gate"]["min_acc"] == 0.75
    assert made["base"] == "perennial/resnet20-cifar100" and made["description"] == "Owls."
    assert "Nothing learned yet" in logged_in.get(answer.headers["location"]).text


def test_random_weights_and_weights_of_timm_are_asked_for_by_name(logged_in: TestClient) -> None:
    assert logged_in.post(PATH, data={**GIVEN, "base": "random"}).status_code == 303
    assert logged_in.get("/v1/models/owls").json()["base"] == "random"
    wanted = {**GIVEN, "name": "hawks", "base": "timm", "timm": "mobilenetv3_small_100.lamb_in1k"}
    assert logged_in.post(PATH, data=wanted).status_code == 303
    made = logged_in.get("/v1/models/hawks").json()
    assert made["architecture"]["model"] == "mobilenetv3_small_100.lamb_in1k" and made["state"] == "fetching"


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
        ({"base": "elsewhere"}, "must be packaged, timm or random"),
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


def test_a_name_that_is_taken_is_said(logged_in: TestClient, model: str) -> None:
    answer = logged_in.post(PATH, data={**GIVEN, "name": model})
    assert answer.status_code == 409 and 'role="alert"' in answer.text and 'value="birds"' in answer.text
