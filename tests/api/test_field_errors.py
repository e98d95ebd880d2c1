"""A person reads which field is wrong, what it must be, and which one was probably meant."""

import json
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api.conftest import Make

JARGON = re.compile(
    r"Input should|Extra inputs|constrained-|dict\[|\bNone\b|\bTrue\b|\bFalse\b|schema|'"
)


def read_field_errors(
    client: TestClient, body: dict[str, Any], method: str = "POST", path: str = "/v1/models"
) -> dict[str, str]:
    """Check that a body is refused without terms of a programming language, and return the
    messages by field.
    """
    if path == "/v1/models":
        body = {"name": "a", "scenario": "class", **body}
    answer = client.request(method, path, json=body)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    told = {each["field"]: each["message"] for each in problem["errors"]}
    assert not [message for message in told.values() if JARGON.search(message)], told
    assert problem["errors"][0]["message"] in problem["detail"]
    return told


def test_a_flat_name_is_traced_to_its_block(shared: TestClient) -> None:
    told = read_field_errors(shared, {"image_size": 64})
    meant = "unknown field; did you mean image.size? known here: allow_lost_classes, answers, "
    assert told["image_size"].startswith(meant)


@pytest.mark.parametrize(
    ("body", "field", "meant"),
    [
        ({"image": {"sise": 64}}, "image.sise", "image.size"),
        ({"gate": {"forgetting": 0.1}}, "gate.forgetting", "gate.max_forgetting"),
        ({"max_forgetting": 0.1}, "max_forgetting", "gate.max_forgetting"),
        ({"base": {"model": "m", "versoin": 1}}, "base.versoin", "base.version"),
        ({"recipe": {"lr": 0.1}}, "recipe.lr", "recipe.optimizer.lr"),
        ({"recipe": {"method": "er", "buffer_size": 500}}, "recipe.buffer_size", "recipe.method.buffer"),
        ({"recipe": {"name": "x"}}, "recipe.name", "recipe.method.name"),
        ({"recipe": {"method": {"name": "er", "buffer_size": 5}}}, "recipe.method.buffer_size", "recipe.method.buffer"),
        ({"recipe": {"method": {"name": "der++", "lr": 0.1}}}, "recipe.method.lr", "recipe.optimizer.lr"),
        ({"recipe": {"optimizer": {"learning_rate": 0.1}}}, "recipe.optimizer.learning_rate", "recipe.optimizer.lr"),
        ({"recipe": {"head": {"inti": "zero"}}}, "recipe.head.inti", "recipe.head.init"),
        ({"recipe": {"optimizer": {"olor": {"iota": 0.1}}}}, "recipe.optimizer.olor.iota",
         "recipe.optimizer.olor.iota1"),
        ({"architecture": {"name": "mlp", "hiden": [4]}}, "architecture.hiden", "architecture.hidden"),
    ],
)  # fmt: skip
def test_an_unknown_field_anywhere_names_the_nearest_one(
    shared: TestClient, body: dict[str, Any], field: str, meant: str
) -> None:
    message = read_field_errors(shared, body)[field]
    assert f"did you mean {meant}? known here: " in message


def test_a_field_of_the_recipe_that_was_put_beside_it_is_traced_there(shared: TestClient) -> None:
    assert shared.get("/v1/methods").status_code == 200  # the catalogue is loaded
    told = read_field_errors(shared, {"epochs": 3, "lr": 0.1})
    assert "did you mean recipe.epochs?" in told["epochs"]
    assert "did you mean recipe.optimizer.lr?" in told["lr"]


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"recipe": {"method": "der+"}}, "recipe.method.name", "unknown method; did you mean "
            "der++? one of a-gem, "),
        ({"recipe": {"preset": "olor"}}, "recipe.preset", "unknown preset; did you mean olor-"),
        ({"architecture": "resnet-18"}, "architecture.name", "unknown architecture; did you mean "
            "resnet18? one of "),
        ({"recipe": {"optimizer": {"name": "adamm"}}}, "recipe.optimizer.name",
         'must be one of sgd, adam, adamw; found "adamm"; did you mean adam'),
    ],
)  # fmt: skip
def test_an_unknown_name_of_the_catalogue_names_the_nearest_one(
    shared: TestClient, body: dict[str, Any], field: str, message: str
) -> None:
    assert read_field_errors(shared, body)[field].startswith(message)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"name": 5}, "name", "must be text; found 5"),
        ({"name": None}, "name", "must be text; found null"),
        ({"scenario": "clas"}, "scenario", 'must be one of data, task, class; found "clas"; did '
            'you mean class?'),
        ({"image": {"size": "big"}}, "image.size", 'must be a whole number; found "big"'),
        ({"image": {"size": 4}}, "image.size", "must be at least 8; found 4"),
        ({"image": {"channels": 2}}, "image.channels", "must be one of 1, 3; found 2"),
        ({"image": [64]}, "image", "must be an object; found a list"),
        ({"gate": {"min_acc": 2}}, "gate.min_acc", "must be at most 1; found 2"),
        ({"gate": {"min_acc": True}}, "gate.min_acc", "must be a number; found true"),
        ({"architecture": 7}, "architecture", "must be text or an object; found 7"),
        ({"classes": []}, "classes", "must be a list of at least 1 entry"),
        ({"keep_training_data": "yes"}, "keep_training_data", 'must be true or false; found "yes"'),
        ({"recipe": {"epochs": 0}}, "recipe.epochs", "must be at least 1; found 0"),
        ({"recipe": {"epochs": "ten"}}, "recipe.epochs", 'must be a whole number; found "ten"'),
        ({"recipe": {"optimizer": {"lr": -1}}}, "recipe.optimizer.lr", "must be above 0; found -1"),
        ({"recipe": {"optimizer": {"clip": "x"}}}, "recipe.optimizer.clip", 'must be a number or '
            'null; found "x"'),
        ({"recipe": {"anytime": "yes"}}, "recipe.anytime", 'must be true or false; found "yes"'),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_what_it_must_be_and_what_it_is(
    shared: TestClient, body: dict[str, Any], field: str, message: str
) -> None:
    assert read_field_errors(shared, body)[field] == message


def test_a_field_of_another_method_names_the_methods_that_have_it(shared: TestClient) -> None:
    told = read_field_errors(
        shared, {"recipe": {"method": {"name": "finetune", "replay_batch": 5}}}
    )
    assert told["recipe.method.replay_batch"] == (
        "unknown field; known here: name; replay_batch belongs to der, der++, er, er-ace"
    )


def test_a_sentence_that_asks_has_one_mark_at_its_end(shared: TestClient) -> None:
    answer = shared.post("/v1/models", json={"name": "a", "scenario": "clas"})
    assert answer.json()["detail"].endswith("; did you mean class?")


def test_a_missing_field_is_named(shared: TestClient) -> None:
    answer = shared.post("/v1/models", json={"scenario": "class"})
    assert answer.json()["errors"] == [{"field": "name", "message": "is missing"}]
    assert answer.json()["detail"] == "name: is missing."


def test_a_recipe_in_the_header_of_a_batch_is_told_the_same_way(
    client: TestClient, archive: Make
) -> None:
    assert client.post("/v1/models", json={"name": "m", "scenario": "class"}).status_code == 201
    headers = {"Content-Type": "application/zip", "Perennial-Recipe": json.dumps({"lr": 0.1})}
    answer = client.post("/v1/models/m/tasks", content=archive(a=2, b=2), headers=headers)
    assert answer.status_code == 422
    assert "recipe.lr: unknown field; did you mean recipe.optimizer.lr?" in answer.json()["detail"]


def test_a_query_parameter_and_a_form_field_name_the_nearest_one_too(client: TestClient) -> None:
    detail = client.get("/v1/models?limt=3").json()["detail"]
    assert "did you mean limit? this call has: cursor, include, limit, q." in detail
    assert client.post("/v1/models", json={"name": "m", "scenario": "class"}).status_code == 201
    answer = client.post("/v1/models/m/tasks", files={"recipes": ("a", b"{}")})
    assert "did you mean recipe? there are: file, recipe." in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/jobs?limit=0&kind=x&state=x", ["state", "kind", "limit"]),
        (f"/v1/models/{64 * 'm'}/tasks?limit=0", ["model", "limit"]),
        ("/v1/audit?limit=0&order=x&action=X", ["action", "order", "limit"]),
    ],
)
def test_fields_are_named_in_the_order_of_the_document(
    shared: TestClient, path: str, names: list[str]
) -> None:
    problem = shared.get(path).json()
    assert [each["field"] for each in problem["errors"]] == names
    assert problem["detail"].startswith(f"{names[0]}: ")


@pytest.mark.slow
def test_fifty_thousand_unknown_fields_are_answered_shortly(shared: TestClient) -> None:
    many = {f"f{i}": i for i in range(50_000)}
    for body, named in ((many, 20), ({"recipe": many}, 1)):  # such a recipe is too large to be read
        answer = shared.post("/v1/models", json={"name": "a", "scenario": "class", **body})
        assert answer.status_code == 422
        assert len(answer.json()["errors"]) == named


def test_a_model_without_an_image_says_at_creation_that_pixels_are_lost(client: TestClient) -> None:
    made = client.post("/v1/models", json={"name": "a", "scenario": "class"}).json()
    assert made["image"] == {"size": 32, "channels": 3, "decoding": 2}
    assert "resized to 32 × 32 pixels where nothing else is said" in made["warnings"][0]
    assert '"base": "perennial/efficientnet-lite0"' in made["warnings"][0]
    assert client.get("/v1/models/a").json()["warnings"] == made["warnings"]
    grey = client.post(
        "/v1/models", json={"name": "b", "scenario": "class", "image": {"channels": 1}}
    ).json()
    assert "resized to 32 × 32 pixels" in grey["warnings"][0]
    said = client.post(
        "/v1/models", json={"name": "c", "scenario": "class", "image": {"size": 32}}
    ).json()
    assert not any("resized" in text for text in said["warnings"])
