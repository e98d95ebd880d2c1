"""Methods that may learn a model's next task: architectures, network families, and memory that is
lost.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from core.database.session import Database
from core.database.states import JobAction
from core.learning.methods.method import SCENARIOS, Method
from core.learning.methods.registry import METHODS
from tests.api.conftest import Make, apply_job_actions, create_model

PROMPTED = {"network": {"family": "vpt", "prompts": 10, "deep": True, "tasks": None}}
LINEARISED = {
    "network": {
        "family": "linearised",
        "slope": 0.01,
        "fixed_head": False,
        "frozen": True,
        "references": [],
    }
}
DLCFT = {"name": "dlcft", "slope": 0.01, "head_mode": "bilinear", "alpha": 15.0}
LINEAR_HEAD = {"name": "dlcft", "head_mode": "linear"}
SAID = {"training_data_days": 7, "image": {"size": 32}}
"""So that creation does not tell of these defaults."""
VPT = {"name": "vpt", "prompts": 10, "deep": True, "per_task": False}


@pytest.fixture
def vit(client: TestClient) -> str:
    return create_model(client, "vit", architecture="vit")


@pytest.fixture
def submit(client: TestClient, archive: Make) -> Callable[..., Response]:
    def submit_with_recipe(
        model: str, recipe: dict[str, Any] | None = None, query: str = ""
    ) -> Response:
        headers = {"Perennial-Recipe": json.dumps(recipe or {})}
        url = f"/v1/models/{model}/tasks{query or '?'}&again=true"
        return client.post(url, content=archive(cat=2, dog=2), headers=headers)

    return submit_with_recipe


def assert_recipe_refused(answer: Response, field: str, *words: str) -> None:
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["type"] == "/problems/invalid-recipe"
    assert [e["field"] for e in problem["errors"]] == [field]
    for word in words:
        assert word in problem["detail"], problem["detail"]


def change_recipe(client: TestClient, model: str, recipe: dict[str, Any]) -> Response:
    return client.patch(f"/v1/models/{model}", json={"recipe": recipe})


@pytest.fixture
def everywhere(client: TestClient, submit: Any) -> Callable[..., list[Response]]:
    """Sends a recipe wherever a model takes one: as its own, with a batch to check, and with one to
    learn.
    """

    def send_recipe_everywhere(model: str, recipe: dict[str, Any]) -> list[Response]:
        return [
            change_recipe(client, model, recipe),
            submit(model, recipe, "?validate=only"),
            submit(model, recipe),
        ]

    return send_recipe_everywhere


def read_warnings(answer: Response) -> list[str]:
    found = answer.json()
    return list(found.get("task", found)["warnings"])


def build_learned_with(method: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"recipe": {"method": method}, "method": {"name": method["name"]}, **more}


def test_a_method_needs_an_architecture_that_it_accepts(
    client: TestClient, model: str, everywhere: Any
) -> None:
    body = {
        "name": "x",
        "scenario": "class",
        "architecture": "small-cnn",
        "recipe": {"method": "vpt"},
    }
    for answer in (client.post("/v1/models", json=body), *everywhere(model, {"method": "vpt"})):
        assert_recipe_refused(answer, "recipe.method.name", "vpt", "not on small-cnn", "vit_b_16")
    made = client.post("/v1/models", json={**body, "architecture": "vit"})
    assert made.status_code == 201
    assert made.json()["recipe"]["depth"] == 1


def test_only_the_depth_of_the_method_is_accepted(client: TestClient, vit: str) -> None:
    assert_recipe_refused(
        change_recipe(client, vit, {"method": "vpt", "depth": 3}), "recipe.depth", "vpt accepts 1"
    )


def test_prompts_per_task_are_for_the_task_scenario(client: TestClient, vit: str) -> None:
    own = {"method": {"name": "vpt", "per_task": True}}
    assert_recipe_refused(
        change_recipe(client, vit, own), "recipe.method.per_task", "task scenario"
    )
    body = {"name": "x", "scenario": "task", "architecture": "vit", "recipe": own}
    assert client.post("/v1/models", json=body).status_code == 201


def test_any_family_can_start_from_version_0(client: TestClient, vit: str, submit: Any) -> None:
    for method in ("vpt", "er", "vpt"):
        assert change_recipe(client, vit, {"method": method}).status_code == 200
    assert submit(vit).status_code == 202


def test_the_family_of_production_is_kept(
    client: TestClient, vit: str, publish: Any, everywhere: Any, submit: Any
) -> None:
    publish(vit, manifest=build_learned_with({"name": "er"}))
    for answer in everywhere(vit, {"method": "vpt"}):
        words = ("vpt", "version 1, a plain network", "finetune", "start a new model")
        assert_recipe_refused(answer, "recipe.method.name", *words)
    assert client.get(f"/v1/models/{vit}").json()["recipe"]["method"]["name"] == "der++"
    assert client.get(f"/v1/models/{vit}/tasks").json()["items"][-1]["number"] == 1
    assert submit(vit, {"method": "finetune"}).status_code == 202


def test_a_prompted_model_keeps_its_family_and_the_shape_of_its_prompts(
    client: TestClient, vit: str, publish: Any
) -> None:
    assert change_recipe(client, vit, {"method": "vpt"}).status_code == 200
    publish(vit, manifest=build_learned_with(VPT, **PROMPTED))
    assert_recipe_refused(
        change_recipe(client, vit, {"method": "er"}),
        "recipe.method.name",
        "a vpt network",
        "Use one of vpt",
    )
    shorter = change_recipe(client, vit, {"method": {"prompts": 5}})
    assert_recipe_refused(shorter, "recipe.method.prompts", "is 10 in version 1")
    assert_recipe_refused(
        change_recipe(client, vit, {"method": {"deep": False}}), "recipe.method.deep"
    )
    assert change_recipe(client, vit, {"epochs": 3}).status_code == 200


def test_a_linearised_model_keeps_its_family_and_what_its_curvature_was_measured_with(
    client: TestClient, model: str, publish: Any, everywhere: Any, submit: Any
) -> None:
    assert change_recipe(client, model, {"method": "dlcft"}).status_code == 200
    publish(model, manifest=build_learned_with(DLCFT, **LINEARISED))
    for answer in everywhere(model, {"method": "er"}):
        assert_recipe_refused(
            answer, "recipe.method.name", "version 1, a linearised network", "Use one of dlcft"
        )
    for name, value in (("slope", 0.2), ("alpha", 5.0)):
        other = change_recipe(client, model, {"method": {name: value}})
        assert_recipe_refused(other, f"recipe.method.{name}", "in version 1", "shapes the network")
    assert (
        change_recipe(
            client, model, {"method": {"curvature": "diagonal", "lambda": 0.3}}
        ).status_code
        == 200
    )
    assert submit(model).status_code == 202


def test_a_plain_model_is_not_linearised_in_mid_life(
    client: TestClient, model: str, publish: Any, everywhere: Any
) -> None:
    publish(model, manifest=build_learned_with({"name": "er"}))
    for answer in everywhere(model, {"method": "dlcft"}):
        assert_recipe_refused(
            answer, "recipe.method.name", "dlcft", "version 1, a plain network", "start a new model"
        )


def test_a_linearised_version_is_no_base_of_another_model(
    client: TestClient, model: str, publish: Any
) -> None:
    publish(model, manifest=build_learned_with(DLCFT, **LINEARISED))
    publish(model, manifest=build_learned_with({"name": "er"}))  # as after going back to version 0
    for number, status in ((1, 422), (2, 201), (0, 201)):
        base = {"model": model, "version": number}
        body = {
            "name": f"x-{number}",
            "scenario": "class",
            "architecture": "small-cnn",
            "base": base,
        }
        answer = client.post("/v1/models", json=body)
        assert answer.status_code == status, answer.text
        if status == 422:
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert [e["field"] for e in answer.json()["errors"]] == ["base"]
            assert "is linearised" in answer.json()["detail"]
    assert client.get("/v1/models/x-1").status_code == 404


def test_a_prompted_version_lends_its_backbone_alone(
    client: TestClient, vit: str, publish: Any
) -> None:
    ones = np.ones(1, np.float32)
    parts = {"backbone.1": {"w": ones}, "head": {"b": ones}, "prompts": {"prompts.shared": ones}}
    publish(vit, parts, manifest=build_learned_with(VPT, **PROMPTED))
    body = {
        "name": "x",
        "scenario": "class",
        "architecture": "vit",
        "base": {"model": vit, "version": 1},
    }
    assert client.post("/v1/models", json=body).status_code == 201
    first = client.get("/v1/models/x/versions/0").json()
    assert [part["name"] for part in first["parts"]] == ["backbone.1"]
    assert "network" not in first["manifest"]


def test_what_jobs_in_the_line_will_leave_counts_before_production(
    client: TestClient, vit: str, submit: Any
) -> None:
    first = submit(vit, {"method": "vpt"})
    assert first.status_code == 202
    way_out = f"cancel job {first.json()['job']['id']}"
    assert_recipe_refused(
        submit(vit), "recipe.method.name", "the result of task 1, a vpt network", way_out
    )
    assert_recipe_refused(
        submit(vit, {"method": {"name": "vpt", "prompts": 3}}), "recipe.method.prompts"
    )
    assert submit(vit, {"method": "vpt"}).status_code == 202
    for job in client.get("/v1/jobs").json()["items"]:
        assert client.post(f"/v1/jobs/{job['id']}/cancel").status_code == 200
    assert submit(vit).status_code == 202


def test_a_job_that_is_being_cancelled_leaves_nothing_to_start_from(
    client: TestClient, db: Database, vit: str, submit: Any
) -> None:
    job = submit(vit, {"method": "vpt"}).json()["job"]["id"]
    apply_job_actions(db, job, JobAction.VALIDATE, JobAction.CANCEL)
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "cancelling"
    assert submit(vit, {"method": "er"}).status_code == 202


def test_a_retry_is_checked_against_what_it_would_start_from_now(
    client: TestClient, db: Database, vit: str, submit: Any, publish: Any
) -> None:
    job = submit(vit, {"method": "vpt"}).json()["job"]["id"]
    apply_job_actions(db, job, JobAction.VALIDATE, JobAction.FAIL)
    publish(vit, manifest=build_learned_with({"name": "er"}))
    assert_recipe_refused(
        client.post(f"/v1/jobs/{job}/retry"), "recipe.method.name", "version 1, a plain network"
    )
    again = client.post(f"/v1/jobs/{job}/retry", json={"recipe": {"method": "er"}})
    assert again.status_code == 202
    assert again.json()["recipe"]["method"]["name"] == "er"


BUFFER = {"buffer": {"images": np.zeros(1, np.uint8)}}


@pytest.mark.parametrize(
    ("before", "parts", "after", "said"),
    [
        ("er", BUFFER, "er", None),
        ("er", BUFFER, "der++", None),
        ("er", BUFFER, "ewc-online", "nothing is taken over, the replay buffer is not used"),
        ("finetune", {}, "er", "nothing is taken over. "),
        ("ewc-online", {}, "finetune", None),
        (
            "er",
            {**BUFFER, "own": {"x": np.zeros(1, np.float32)}},
            "der++",
            "only the replay buffer is taken over, its other memory is not used",
        ),
    ],
)
def test_a_change_of_method_warns_of_memory_that_is_lost(
    client: TestClient,
    model: str,
    publish: Any,
    everywhere: Any,
    before: str,
    parts: Any,
    after: str,
    said: str,
) -> None:
    publish(
        model,
        {"head": {"w": np.zeros(1, np.float32)}, **parts},
        manifest=build_learned_with({"name": before}),
    )
    for answer in everywhere(model, {"method": after}):
        warnings = read_warnings(answer)
        found = [
            w for w in warnings if w.startswith(f"The method changes from {before} to {after}: ")
        ]
        assert len(found) == (said is not None)
        assert all(said in w and "Earlier tasks are unprotected" in w for w in found)
    assert not [w for w in client.get(f"/v1/models/{model}").json()["warnings"] if "changes" in w]


def test_a_first_task_loses_no_memory_and_a_queued_one_counts(
    client: TestClient, model: str, submit: Any
) -> None:
    def list_change_warnings(answer: Response) -> list[str]:
        return [w for w in answer.json()["task"]["warnings"] if "The method changes" in w]

    assert list_change_warnings(submit(model, {"method": "er"})) == []
    assert list_change_warnings(submit(model, {"method": "der++"})) == []
    lost = list_change_warnings(submit(model, {"method": "ewc-online"}))
    assert len(lost) == 1 and "the replay buffer is not used" in lost[0]


EXAMPLES = {
    "data": {"mas": "weak", "icarl": "refused", "er": "accepted"},
    "task": {"slca": "refused", "finetune": "accepted"},
    "class": {"finetune": "weak", "vpt": "weak", "er": "accepted"},
}
"""Scenario → method → its treatment, written down here beside what the methods declare."""


def find_expected_treatment(scenario: str, method: type[Method]) -> str:
    """Return the treatment that a method declares for a scenario."""
    if scenario not in method.scenarios:
        return "refused"
    return "weak" if scenario in method.scenario_warnings else "accepted"


def find_treatment(answer: Response, name: str, scenario: str) -> str:
    """Check the sentences of a response, and return the treatment that it shows."""
    if answer.status_code == 422:
        assert_recipe_refused(
            answer, "recipe.method.name", f"{name} does not work in the {scenario} scenario"
        )
        return "refused"
    assert answer.status_code == 201, answer.text
    warnings = answer.json()["warnings"]
    known = [w for w in warnings if w.startswith(f"{name} is known to be weak in the {scenario} ")]
    assert warnings == known and len(known) <= 1
    assert all(len(w.partition(": ")[2]) > 20 for w in known), "a reason"
    return "weak" if known else "accepted"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_method_is_accepted_warned_about_or_refused_in_a_scenario(
    client: TestClient, scenario: str
) -> None:
    names = [entry["name"] for entry in client.get("/v1/methods?limit=100").json()["items"]]
    assert sorted(names) == sorted(METHODS)
    shown, declared = {}, {}
    for name in names:
        possible = METHODS[name].accepts.architectures or ("vit",)
        body = {
            "name": f"m-{name.replace('+', 'p')}",
            "scenario": scenario,
            "recipe": {"method": name},
            "architecture": possible[0],
            **SAID,
        }
        shown[name] = find_treatment(client.post("/v1/models", json=body), name, scenario)
        declared[name] = find_expected_treatment(scenario, METHODS[name])
    assert shown == declared
    assert shown.items() >= EXAMPLES[scenario].items()


def test_joint_training_is_no_method_of_the_service(client: TestClient, model: str) -> None:
    assert_recipe_refused(
        change_recipe(client, model, {"method": "joint"}),
        "recipe.method.name",
        "unknown method",
        "finetune",
    )


@pytest.mark.parametrize(
    ("scenario", "recipe", "reason"),
    [
        ("class", {"preset": "olor-sgd", "method": "finetune"}, "OLOR is known to be weak"),
        ("class", {"preset": "linear-probe", "method": "finetune"}, "depth 1 (the head alone) is "
            "known to be weak"),
        ("class", {"preset": "fast"}, "new-rows-zero"),
        ("data", {"preset": "fast"}, "the head goes on from what it learned before"),
        ("data", {"method": "mas"}, "mas is known to be weak in the data scenario"),
        ("class", {"preset": "olor-sgd", "method": "er"}, None),
        ("task", {"preset": "olor-sgd", "method": "finetune"}, None),
        ("task", {"preset": "linear-probe", "method": "finetune"}, None),
        ("task", {"preset": "fast"}, None),
    ],
)  # fmt: skip
def test_a_weak_recipe_is_warned_about_wherever_it_is_asked_for(
    client: TestClient, everywhere: Any, scenario: str, recipe: dict[str, Any], reason: str | None
) -> None:
    body: dict[str, Any] = {
        "scenario": scenario,
        "classes": ["cat", "dog"] if scenario == "data" else None,
    }
    made = client.post("/v1/models", json={"name": "asked", "recipe": recipe, **body})
    client.post("/v1/models", json={"name": "later", "recipe": {"method": "er"}, **body})
    for answer in (made, client.get("/v1/models/asked"), *everywhere("later", recipe)):
        found = [w for w in read_warnings(answer) if "known to be weak" in w or "preset fast" in w]
        assert bool(found) == (reason is not None)
        assert reason is None or any(reason in w for w in found), found


@pytest.mark.parametrize(
    ("scenario", "architecture", "recipe", "field"),
    [
        ("data", "small-cnn", {"method": "icarl"}, "recipe.method.name"),
        ("class", "small-cnn", {"method": "vpt"}, "recipe.method.name"),
        ("class", "vit", {"method": "vpt", "optimizer": {"olor": {}}}, "recipe.optimizer.olor"),
        ("class", "vit", {"method": "vpt", "depth": 5}, "recipe.depth"),
        ("class", "small-cnn", {"method": LINEAR_HEAD}, "recipe.method.head_mode"),
        (
            "task",
            "small-cnn",
            {"method": "dlcft", "optimizer": {"olor": {}}},
            "recipe.optimizer.olor",
        ),
        ("data", "small-cnn", {"method": "dlcft", "head": {"init": "default"}}, "recipe.head.init"),
    ],
)
def test_an_impossible_recipe_is_refused_wherever_it_is_asked_for(
    client: TestClient,
    everywhere: Any,
    scenario: str,
    architecture: str,
    recipe: dict[str, Any],
    field: str,
) -> None:
    body: dict[str, Any] = {"name": "m", "scenario": scenario, "architecture": architecture}
    assert_recipe_refused(client.post("/v1/models", json={**body, "recipe": recipe}), field)
    client.post("/v1/models", json=body)
    for answer in everywhere("m", recipe):
        assert_recipe_refused(answer, field)
    assert client.get("/v1/models/m/tasks").json()["items"] == []


def test_a_classifier_of_sums_does_not_follow_another_method_whose_classes_it_would_lose(
    client: TestClient, model: str, publish: Any, submit: Any
) -> None:
    publish(model, manifest=build_learned_with({"name": "er"}))
    for answer in (
        change_recipe(client, model, {"method": "analytic"}),
        submit(model, {"method": "analytic"}),
    ):
        words = (
            "analytic",
            "version 1",
            "learned by er",
            "learn the batches of er again",
            "start a new model",
        )
        assert_recipe_refused(answer, "recipe.method.name", *words)
    assert submit(model, {"method": "er-ace"}).status_code == 202


def test_a_classifier_of_sums_goes_on_where_it_began(model: str, publish: Any, submit: Any) -> None:
    publish(model, manifest=build_learned_with({"name": "analytic"}))
    assert submit(model, {"method": "analytic"}).status_code == 202
