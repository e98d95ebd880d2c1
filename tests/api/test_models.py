"""Models over HTTP."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from core.database.session import Database
from core.database.tables import Model
from core.lineage.checks import ALL_OFF, CHECKS, NEW_GATE
from core.publishing.biased_head import build_analytic_successor_request
from tests.api.conftest import KeyOf


def test_name_and_scenario_are_enough_and_the_recipe_is_shown_resolved(client: TestClient) -> None:
    answer = client.post("/v1/models", json={"name": "birds", "scenario": "class"})
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["location"] == f"/v1/models/{made['id']}"
    assert made["architecture"] == {"name": "resnet20", "width": 32}
    assert made["image"] == {"size": 32, "channels": 3, "decoding": 2}
    assert made["base"] == "perennial/resnet20-cifar100"
    assert made["recipe"]["method"]["name"] == "analytic"
    assert made["recipe"]["depth"] == 1
    assert made["recipe"]["optimizer"]["clip"] == 1.0
    assert made["aliases"] == {"production": 0, "latest": 0}
    assert made["created_at"].endswith("Z")
    assert (
        client.get("/v1/models/birds").json()
        == made
        == client.get(f"/v1/models/{made['id']}").json()
    )


def test_a_model_learns_classification_and_an_unknown_problem_is_named(
    client: TestClient, db: Database
) -> None:
    body = {"name": "birds", "scenario": "class"}
    assert client.post("/v1/models", json=body).json()["problem"] == "classification"
    same = {"name": "fish", "scenario": "class", "problem": "classification"}
    assert client.post("/v1/models", json=same).json()["problem"] == "classification"
    with db.read() as session:
        assert {model.problem for model in session.query(Model)} == {None}
    refused = client.post("/v1/models", json={**body, "name": "c", "problem": "clasification"})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["field"] == "problem"
    assert "classification" in error["message"]
    # It is chosen at creation alone.
    assert client.patch("/v1/models/birds", json={"problem": "classification"}).status_code == 422


def test_a_method_may_be_a_string_and_a_weak_one_is_warned_about(client: TestClient) -> None:
    body = {"name": "a", "scenario": "class", "recipe": {"method": "finetune"}}
    answer = client.post("/v1/models", json=body)
    assert answer.json()["recipe"]["method"]["name"] == "finetune"
    assert answer.json()["warnings"]


def test_what_is_asked_for_after_training_is_shown_with_what_was_left_open(
    client: TestClient,
) -> None:
    wanted = {"method": "er", "merge": {"weight": 0.5}, "rebalance": {}, "features": "cached"}
    made = client.post(
        "/v1/models", json={"name": "fair", "scenario": "class", "recipe": wanted}
    ).json()
    assert made["recipe"]["merge"] == {"weight": 0.5, "within": None}
    assert made["recipe"]["rebalance"] == {"epochs": 5, "lr": None}
    assert made["recipe"]["features"] == "cached"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "Birds"}, "name"),
        ({"name": "mdl_1"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": "birds\n"}, "name"),
        ({"scenario": "domain"}, "scenario"),
        ({"recipe": {"epochs": 0}}, "recipe.epochs"),
        ({"recipe": {"epochs": 10.0}}, "recipe.epochs"),
        ({"recipe": {"colour": 1}}, "recipe.colour"),
        ({"recipe": {"optimizer": {"lr": -1}}}, "recipe.optimizer.lr"),
        ({"recipe": {"method": {"name": "er", "bufer": 1}}}, "recipe.method.bufer"),
        ({"recipe": {"method": "nothing"}}, "recipe.method.name"),
        ({"recipe": {"preset": "nothing"}}, "recipe.preset"),
        ({"recipe": {"depth": 6}}, "recipe.depth"),
        ({"recipe": {"features": "kept"}}, "recipe.features"),
        ({"recipe": {"merge": {"within": 0.01}}}, "recipe.validation"),
        ({"recipe": {"method": "ewc", "rebalance": {}}}, "recipe.rebalance"),
        ({"architecture": "nothing"}, "architecture.name"),
        ({"architecture": {"name": "mlp", "hidden": [0]}}, "architecture.hidden.0"),
        ({"image": {"size": 4}}, "image.size"),
        ({"gate": {"min_acc": 1.5}}, "gate.min_acc"),
        ({"gate": {"max_predicted_loss_rise": -0.1}}, "gate.max_predicted_loss_rise"),
        ({"gate": {"max_predicted_loss_rise": "low"}}, "gate.max_predicted_loss_rise"),
        ({"gate": {"max_negative_flips": 1.5}}, "gate.max_negative_flips"),
        ({"gate": {"min_coverage": 0.5}}, "gate.min_coverage"),
        ({"gate": {"min_coverage": 1.5}, "answers": {"precision": 0.9}}, "gate.min_coverage"),
        ({"answers": {"precision": 0.5}}, "answers.precision"),
        ({"answers": {"precision": 1.0}}, "answers.precision"),
        ({"answers": {}}, "answers.precision"),
        ({"classes": ["a"]}, "classes"),
        ({"base": "bas_00000000000000000000000000"}, "base"),
        ({"scenario": "data", "classes": ["a", "a "]}, "classes"),
        ({"keep_training_data": "yes"}, "keep_training_data"),
    ],
)
def test_a_wrong_field_is_422_and_named(
    shared: TestClient, fields: dict[str, object], field: str
) -> None:
    answer = shared.post("/v1/models", json={"name": "birds", "scenario": "class", **fields})
    assert answer.status_code == 422, answer.text
    assert field in [e["field"] for e in answer.json()["errors"]], answer.text
    assert [model["name"] for model in shared.get("/v1/models").json()["items"]] == ["shared"]


def test_a_taken_name_is_409_and_free_again_after_deletion(client: TestClient) -> None:
    body = {"name": "birds", "scenario": "class"}
    assert client.post("/v1/models", json=body).status_code == 201
    answer = client.post("/v1/models", json=body)
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/name-taken"
    assert client.delete("/v1/models/birds").status_code == 204
    assert client.get("/v1/models/birds").status_code == 404
    assert client.post("/v1/models", json=body).status_code == 201


def test_patch_merges_recipe_and_gate(client: TestClient) -> None:
    recipe = {"method": {"name": "er", "buffer": 100}, "epochs": 3}
    client.post("/v1/models", json={"name": "birds", "scenario": "class", "recipe": recipe})
    patch = {"recipe": {"epochs": None, "depth": 2}, "gate": {"min_acc": 0.5}}
    changed = client.patch("/v1/models/birds", json=patch).json()
    assert changed["recipe"]["epochs"] == 10
    assert changed["recipe"]["depth"] == 2
    assert changed["recipe"]["method"]["buffer"] == 100
    assert changed["gate"]["min_acc"] == 0.5
    again = client.patch(
        "/v1/models/birds", json={"gate": {"max_forgetting": 0.1}, "recipe": None}
    ).json()
    none = dict.fromkeys(
        ("min_new_task", "max_predicted_loss_rise", "max_negative_flips", "min_coverage")
    )
    assert again["gate"] == {"max_forgetting": 0.1, "min_acc": 0.5, **none, **NEW_GATE}
    assert again["recipe"]["method"]["name"] == "analytic"


def test_a_new_model_has_all_checks_and_each_can_be_switched_off(client: TestClient) -> None:
    client.post(
        "/v1/models", json={"name": "birds", "scenario": "class", "gate": {"drifted": None}}
    )
    steps: list[tuple[dict[str, Any] | None, dict[str, Any]]] = [
        ({}, {**NEW_GATE, "drifted": None}),
        (
            {"forgotten": 0.1, "confused": None},
            {**NEW_GATE, "forgotten": 0.1, "confused": None, "drifted": None},
        ),
        ({"checks": "off"}, ALL_OFF),
        ({"checks": "on", "class_lost": 0.2}, {**NEW_GATE, "class_lost": 0.2}),
        ({"checks": "off"}, ALL_OFF),
        (None, NEW_GATE),
    ]
    for patch, expected in steps:
        gate = client.patch("/v1/models/birds", json={"gate": patch}).json()["gate"]
        assert {name: gate[name] for name in CHECKS} == expected
        assert "checks" not in gate


def test_a_model_from_before_one_check_keeps_its_gate_until_that_is_switched_on(
    client: TestClient, db: Database
) -> None:
    model = client.post("/v1/models", json={"name": "birds", "scenario": "class"}).json()["id"]
    before = {name: limit for name, limit in NEW_GATE.items() if name != "features_collapsed"}
    with db.write() as session:
        session.get_one(Model, model).gate = before  # as it was stored then
    assert client.get("/v1/models/birds").json()["gate"]["features_collapsed"] is None
    gate = client.patch("/v1/models/birds", json={"gate": {"drifted": 0.5}}).json()["gate"]
    assert {name: gate[name] for name in CHECKS} == {
        **before,
        "drifted": 0.5,
        "features_collapsed": None,
    }
    gate = client.patch("/v1/models/birds", json={"gate": {"checks": "on"}}).json()["gate"]
    assert {name: gate[name] for name in CHECKS} == NEW_GATE


def test_a_model_from_before_the_checks_shows_them_as_off(client: TestClient, db: Database) -> None:
    model = client.post("/v1/models", json={"name": "birds", "scenario": "class"}).json()["id"]
    with db.write() as session:
        session.get_one(Model, model).gate = {"max_forgetting": 0.1}  # as it was stored then
    gate = client.get("/v1/models/birds").json()["gate"]
    assert gate["max_forgetting"] == 0.1 and {name: gate[name] for name in CHECKS} == ALL_OFF
    changed = client.patch("/v1/models/birds", json={"gate": {"min_acc": 0.5}}).json()["gate"]
    assert {name: changed[name] for name in CHECKS} == ALL_OFF


def test_a_promise_of_sure_answers_is_made_changed_and_taken_back(client: TestClient) -> None:
    made = client.post("/v1/models", json={"name": "birds", "scenario": "class"}).json()
    assert made["answers"] is None and made["gate"]["min_coverage"] is None
    both = {"answers": {"precision": 0.98}, "gate": {"min_coverage": 0.5}}
    changed = client.patch("/v1/models/birds", json=both).json()
    assert changed["answers"] == both["answers"] and changed["gate"]["min_coverage"] == 0.5
    refused = client.patch("/v1/models/birds", json={"answers": None})
    assert (
        refused.status_code == 422 and refused.json()["errors"][0]["field"] == "gate.min_coverage"
    )
    back = client.patch(
        "/v1/models/birds", json={"answers": None, "gate": {"min_coverage": None}}
    ).json()
    assert back["answers"] is None and back["gate"]["min_coverage"] is None
    other = {"name": "sure", "scenario": "class", **both}
    assert client.post("/v1/models", json=other).json()["answers"] == {"precision": 0.98}


def test_a_model_of_random_weights_replays_by_default_at_the_rate_that_suits_them(
    client: TestClient,
) -> None:
    for fields in (
        {"architecture": "small-cnn"},
        {"base": "random"},
        {"architecture": "resnet20", "base": "random"},
    ):
        body = {"name": f"m{len(fields)}-{len(str(fields))}", "scenario": "class", **fields}
        made = client.post("/v1/models", json=body)
        assert made.json()["base"] == "random"
        recipe = made.json()["recipe"]
        assert (recipe["preset"], recipe["method"]["name"], recipe["method"]["beta"]) == (
            "from-random",
            "der++",
            1.0,
        )
        assert (recipe["optimizer"]["lr"], recipe["optimizer"]["clip"]) == (0.1, 2.0)


def test_a_null_preset_resets_to_that_of_random_weights(client: TestClient) -> None:
    body = {
        "name": "net",
        "scenario": "class",
        "architecture": "small-cnn",
        "recipe": {"preset": "fast"},
    }
    assert client.post("/v1/models", json=body).json()["recipe"]["method"]["name"] == "finetune"
    changed = client.patch("/v1/models/net", json={"recipe": {"preset": None}}).json()["recipe"]
    assert (changed["preset"], changed["method"]["name"]) == ("from-random", "der++")


def test_null_resets_a_recipe_to_what_its_base_needs(client: TestClient) -> None:
    recipe = {"method": "er", "optimizer": {"clip": 5.0, "lr": 0.01}}
    made = client.post(
        "/v1/models", json={"name": "birds", "scenario": "class", "recipe": recipe}
    ).json()
    assert (made["recipe"]["method"]["name"], made["recipe"]["optimizer"]["clip"]) == ("er", 5.0)
    changed = client.patch("/v1/models/birds", json={"recipe": {"method": None}}).json()["recipe"]
    assert (changed["method"]["name"], changed["optimizer"]["clip"]) == ("analytic", 5.0)
    changed = client.patch("/v1/models/birds", json={"recipe": {"optimizer": None}}).json()[
        "recipe"
    ]
    assert (changed["optimizer"]["clip"], changed["optimizer"]["lr"]) == (1.0, 0.03)
    unbounded = client.patch(
        "/v1/models/birds", json={"recipe": {"optimizer": {"clip": None}}}
    ).json()
    assert unbounded["recipe"]["optimizer"]["clip"] is None


def test_an_architecture_with_weights_by_name_starts_from_them(client: TestClient) -> None:
    body = {"name": "birds", "scenario": "class", "architecture": {"name": "resnet20", "width": 32}}
    assert client.post("/v1/models", json=body).json()["base"] == "perennial/resnet20-cifar100"
    named = {"name": "fish", "scenario": "class", "architecture": "timm/resnet18.a1_in1k"}
    assert client.post("/v1/models", json=named).json()["base"] == "pretrained"


def test_the_base_of_the_package_warns_of_images_that_it_does_not_know(client: TestClient) -> None:
    body = {"name": "birds", "scenario": "class", "image": {"size": 64}}
    said = client.post("/v1/models", json=body).json()["warnings"]
    known = "learned on images of 32 × 32 pixels"
    assert any(known in text and '"image": {"size": 32}' in text for text in said)


def test_a_limit_of_the_forecast_is_a_gate_like_the_others(client: TestClient) -> None:
    body = {"name": "birds", "scenario": "class", "gate": {"max_predicted_loss_rise": 0}}
    made = client.post("/v1/models", json=body)
    assert made.status_code == 201 and made.json()["gate"]["max_predicted_loss_rise"] == 0
    raised = client.patch("/v1/models/birds", json={"gate": {"max_predicted_loss_rise": 250.0}})
    assert raised.json()["gate"]["max_predicted_loss_rise"] == 250.0
    none = client.patch("/v1/models/birds", json={"gate": {"max_predicted_loss_rise": None}})
    assert none.json()["gate"]["max_predicted_loss_rise"] is None


def test_a_method_with_advice_says_so_and_a_model_of_it_takes_it(client: TestClient) -> None:
    entry = client.get("/v1/methods/dlcft").json()
    optimizer = {"name": "adam", "lr": 0.001, "head_lr": 0.01, "weight_decay": 1e-5}
    assert (entry["advice"], entry["family"]) == ({"optimizer": optimizer}, "linearised")
    assert entry["accepts"]["refused"] == {"class": {"head_mode": "linear"}}
    listed = {item["name"]: item for item in client.get("/v1/methods?limit=100").json()["items"]}
    assert listed["dlcft"] == entry and listed["er"]["advice"] == {}
    recipe = {"method": "dlcft", "optimizer": {"lr": 0.0005}}
    made = client.post(
        "/v1/models", json={"name": "birds", "scenario": "task", "recipe": recipe}
    ).json()
    optimizer = made["recipe"]["optimizer"]
    assert (optimizer["name"], optimizer["lr"], optimizer["weight_decay"]) == ("adam", 0.0005, 1e-5)
    other = client.patch("/v1/models/birds", json={"recipe": {"method": "er"}}).json()["recipe"][
        "optimizer"
    ]
    assert (other["name"], other["lr"], other["weight_decay"]) == ("sgd", 0.0005, 0)


def test_a_patch_that_leads_to_a_bad_recipe_changes_nothing(client: TestClient) -> None:
    client.post("/v1/models", json={"name": "birds", "scenario": "class"})
    before = client.get("/v1/models/birds").json()
    assert client.patch("/v1/models/birds", json={"recipe": {"epochs": -1}}).status_code == 422
    assert client.patch("/v1/models/birds", json={"name": "other"}).status_code == 422
    assert client.get("/v1/models/birds").json() == before


def test_another_method_starts_with_its_own_defaults(client: TestClient) -> None:
    recipe = {"method": {"name": "der++", "alpha": 0.3}}
    client.post("/v1/models", json={"name": "birds", "scenario": "class", "recipe": recipe})
    changed = client.patch("/v1/models/birds", json={"recipe": {"method": "er"}}).json()
    assert changed["recipe"]["method"]["name"] == "er"
    assert "alpha" not in changed["recipe"]["method"]


def test_the_same_idempotency_key_makes_one_model(client: TestClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    body = {"name": "birds", "scenario": "class"}
    first = client.post("/v1/models", json=body, headers=headers)
    again = client.post("/v1/models", json=body, headers=headers)
    assert again.status_code == first.status_code == 201
    assert again.content == first.content
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotency-replayed"] == "true"
    other = client.post("/v1/models", json={**body, "name": "fish"}, headers=headers)
    assert other.status_code == 422
    assert other.json()["type"] == "/problems/idempotency-mismatch"


def test_a_refused_request_does_not_use_up_its_idempotency_key(client: TestClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    for name, status in (("A", 422), ("a", 201)):
        answer = client.post(
            "/v1/models", json={"name": name, "scenario": "class"}, headers=headers
        )
        assert answer.status_code == status


def test_two_owners_may_use_one_idempotency_key(client: TestClient, key_of: KeyOf) -> None:
    made = set()
    for owner in ("mine", "other"):
        headers = {**key_of(owner), "Idempotency-Key": "k"}
        answer = client.post(
            "/v1/models", json={"name": "birds", "scenario": "class"}, headers=headers
        )
        made.add(answer.json()["id"])
    assert len(made) == 2


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\u00e4"])
def test_an_unusable_idempotency_key_is_422(shared: TestClient, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    answer = shared.post("/v1/models", json={"name": "a", "scenario": "class"}, headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 422


def test_pages_are_stable_while_models_are_added(client: TestClient) -> None:
    for n in range(5):
        client.post("/v1/models", json={"name": f"m{n}", "scenario": "class"})
    first = client.get("/v1/models?limit=2").json()
    client.post("/v1/models", json={"name": "later", "scenario": "class"})
    names, cursor = [m["name"] for m in first["items"]], first["next_cursor"]
    while cursor:
        page = client.get(f"/v1/models?limit=2&cursor={cursor}").json()
        names += [m["name"] for m in page["items"]]
        cursor = page["next_cursor"]
    assert names == ["m0", "m1", "m2", "m3", "m4", "later"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "cursor=x", "cursor=WzFd", "cursor=%25"]
)
def test_a_wrong_page_is_422(shared: TestClient, query: str) -> None:
    assert shared.get(f"/v1/models?{query}").status_code == 422


def test_the_request_that_the_warning_of_a_biased_head_names_can_be_sent(
    client: TestClient,
) -> None:
    body = {"name": "a" * 60, "scenario": "data", "architecture": "mlp"}
    made = client.post("/v1/models", json=body).json()
    chosen = {name: made[name] for name in ("name", "scenario", "architecture", "image")}
    answer = client.post("/v1/models", json=build_analytic_successor_request(Model(**chosen), 0))
    assert answer.status_code == 201, answer.text
    assert answer.json()["recipe"]["method"]["name"] == "analytic"


def test_a_model_may_start_from_another_ones_random_base(client: TestClient) -> None:
    client.post("/v1/models", json={"name": "a", "scenario": "class", "recipe": {"seed": 7}})
    body = {"name": "b", "scenario": "task", "base": {"model": "a", "version": 0}}
    assert client.post("/v1/models", json=body).status_code == 201
    for wrong in ({"model": "a", "version": 1}, {"model": "none", "version": 0}):
        answer = client.post("/v1/models", json={**body, "name": "c", "base": wrong})
        assert answer.status_code in (404, 422)
    mlp = {**body, "name": "d", "architecture": "mlp"}
    assert client.post("/v1/models", json=mlp).status_code == 422
