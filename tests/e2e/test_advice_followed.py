"""Advice of warnings, followed literally: it helps, measured before and after."""

import io
import zipfile
from typing import Any

import pytest

from perennial.steps import (
    ApiRequestForAdvice,
    find_requests_in_sentence,
    render_query_parameters_in_text,
)
from tests.e2e import small
from tests.e2e.test_first_advice import read_mean_accuracy
from tests.rest import Json, Rest

pytestmark = pytest.mark.slow

ALL_OFF = {"checks": "off"}


def create_model(client: Rest, name: str, recipe: Json, **fields: Any) -> None:
    client.models.create(
        name, "class", **{**small.MODEL, "gate": ALL_OFF, "recipe": recipe, **fields}
    )


def find_advised_requests(
    client: Rest, model: str, version: int, begins: str
) -> list[ApiRequestForAdvice]:
    """Return the requests of the warning of a version that has these words."""
    texts = client.get(f"/v1/models/{model}/versions/{version}")["warnings"]
    (text,) = [one for one in texts if begins in one]
    return [step for _, _, step in find_requests_in_sentence(text)]


@pytest.mark.campaign
def test_rebalancing_the_next_batch_makes_up_for_a_biased_head(client: Rest) -> None:
    recipe = {"method": {"name": "er", "buffer": 60}, "epochs": 2, "batch_size": 8}
    shares = {}
    for name, follows in (("biased-left", False), ("biased-mended", True)):
        create_model(client, name, recipe)
        small.learn_batches(client, name, *small.WEEKS[:2])
        step = find_advised_requests(client, name, 2, "better than its head")[0]
        assert step.path == f"/v1/models/{name}/tasks" and step.recipe == {
            "rebalance": {"epochs": 5}
        }
        small.learn_batches(
            client, name, small.WEEKS[2], **({"recipe": dict(step.recipe)} if follows else {})
        )
        shares[name] = read_mean_accuracy(client, name, 3)
    assert shares["biased-mended"] > shares["biased-left"] + 0.1


@pytest.mark.campaign
def test_going_back_from_collapsed_features_brings_the_accuracy_back(client: Rest) -> None:
    replay = {"method": {"name": "er", "buffer": 100}, "epochs": 20, "batch_size": 8}
    create_model(client, "wrecked-followed", replay)
    small.learn_batches(client, "wrecked-followed", *small.WEEKS[:2])
    absurd = {"method": "finetune", "optimizer": {"lr": 300.0, "clip": 1.0}}
    small.learn_batches(client, "wrecked-followed", small.WEEKS[2], recipe=absurd)
    back = find_advised_requests(client, "wrecked-followed", 3, "have collapsed")[0]
    assert back.body is not None and back.body["version"] == 2
    client.call(back.method, back.path, json=dict(back.body))
    assert client.get("/v1/models/wrecked-followed")["aliases"]["production"] == 2
    small.learn_batches(client, "wrecked-followed", small.WEEKS[3])
    before, after = (read_mean_accuracy(client, "wrecked-followed", version) for version in (3, 4))
    assert after > before + 0.1


@pytest.mark.campaign  # tests/core/publishing/test_advice.py shows when it is given
def test_more_images_of_classes_tell_them_apart_better(client: Rest) -> None:
    """Follow the advice on a confused pair; tests/core/publishing/test_advice.py shows when it
    is given.
    """
    create_model(client, "few-then-more", {"method": {"name": "analytic", "projection": 50}})
    whole = small.WEEKS[4]
    first = small.thin_out(whole)
    small.learn_batches(client, "few-then-more", first, whole)
    before, after = (read_mean_accuracy(client, "few-then-more", version) for version in (1, 2))
    assert after > before + 0.1


def test_damaged_images_are_left_out_by_the_parameter_that_the_refusal_names(client: Rest) -> None:
    create_model(client, "damaged", {"method": {"name": "analytic", "projection": 50}})
    images = unpack_zip(small.WEEKS[0])
    broken = {f"train/0/broken-{n}.png": b"\x89PNG\r\n\x1a\n nothing" for n in range(20)}
    batch = small.pack_zip({**images, **broken})
    refused = client.http.post("/v1/models/damaged/tasks", content=batch)
    if refused.status_code == 202:  # what the first look lets pass, the job finds
        said = client.wait(refused.json()["job"]["id"]).error
        assert said is not None
        detail = said.detail
    else:
        detail = refused.json()["detail"]
    parameters = list[str]()
    render_query_parameters_in_text(
        detail, lambda name, value: parameters.append(f"{name}={value}") or ""
    )  # type: ignore[func-returns-value]
    sent = client.call("POST", f"/v1/models/damaged/tasks?{parameters[0]}", content=batch).json()
    assert client.wait(sent["job"]["id"]).state == "succeeded"


def test_what_a_person_has_accepted_neither_warns_nor_holds_when_it_is_learned_again(
    client: Rest,
) -> None:
    create_model(
        client, "settled", {"method": {"name": "analytic", "projection": 50}, "data_report": "hold"}
    )
    small.learn_batches(client, "settled", small.WEEKS[0])
    images = unpack_zip(small.WEEKS[1])
    trained = {name: data for name, data in images.items() if name.startswith("train/")}
    seen = {name.replace("train/", "test/", 1): data for name, data in trained.items()}
    held = client.wait(client.submit("settled", small.pack_zip({**trained, **seen})))
    assert held.state == "rejected" and held.error is not None
    assert "nearly the same in the training part" in held.error.detail
    (step,) = [one for _, _, one in find_requests_in_sentence(held.error.detail)]
    assert step.body is not None
    assert (
        client.wait(client.call("POST", step.path, json=dict(step.body)).json()["id"]).state
        == "succeeded"
    )
    assert not is_warned_of_copies(client)
    client.call("POST", "/v1/models/settled/aliases/production/rollback", json={})
    body = {"recipe": {"data_report": "hold"}}
    again = client.call("POST", "/v1/models/settled/tasks/2/relearn", json=body).json()
    assert client.wait(again["id"]).state == "succeeded"
    assert not is_warned_of_copies(client)


def is_warned_of_copies(client: Rest) -> bool:
    """Tell whether the task's warnings have the finding; its report has it in any case."""
    task = client.get("/v1/models/settled/tasks/2")
    text = "nearly the same in the training part"
    assert any(
        text in one["text"] and not one["holds"] for one in task["report"]["data"]["findings"]
    )
    return any(text in one for one in task["warnings"])


def unpack_zip(batch: bytes) -> dict[str, bytes]:
    """Return the files of a zip by name."""
    with zipfile.ZipFile(io.BytesIO(batch)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
