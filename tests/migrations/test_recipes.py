"""Migrations 0009, 0014, 0025 and 0035 on recipes and overrides as older code stored them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import select

from core.db import migrate
from core.db.session import Database
from core.db.tables import Alias, Audit, Job, Model, Owner, Task
from core.learn.catalogue import build_catalogue
from core.recipe import start
from core.recipe.resolve import complete_stored, resolve
from core.requests import models
from core.requests.actor import Actor
from core.requests.audit import MAX_DATA_BYTES
from tests.core.requests.batches import CATALOGUE

JUNK = {"x" * 900_000: None, "method": None, "epochs": 4, "optimizer": {"lr": 0.1, "clip": None}}
"""A recipe with nulls, one of them of an impossible name."""
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mdl_1": ("task", {"method": "si", "epochs": 2}),
    "mdl_2": ("task", {"method": {"name": "si", "xi": 0.01}}),
    "mdl_3": ("class", {"method": {"name": "lwf", "lambda_o": 2.0}}),
    "mdl_4": ("data", {"method": "dlcft"}),
    "mdl_5": ("class", {"method": "er"}),
    "mdl_6": ("class", {"epochs": 3}),
}
"""Model → scenario and recipe."""
FORMER: dict[str, dict[str, Any]] = {
    "mdl_1": {"c": 0.1, "xi": 0.1},
    "mdl_2": {"c": 0.1, "xi": 0.01},
    "mdl_3": {"lambda_o": 2.0, "temperature": 2.0, "warmup_epochs": 0, "weight": "constant"},
    "mdl_4": {"curvature": "tkfac", "norms": "fold", "alpha": 15.0},
}
"""Model → the defaults that its recipe had for the code that stored it."""
OVERRIDES: dict[str, tuple[str, dict[str, Any]]] = {
    "job_1": ("mdl_2", {"method": "si"}),  # the model's own xi counts
    "job_2": ("mdl_5", {"method": {"name": "si", "c": 1.0}}),
    "job_3": ("mdl_5", {"epochs": 4}),
}
"""Job → model and override."""


NO_RECIPE: Mapping[str, Any] = {"recipe": {}}
"""Columns of a job without a resolved recipe."""


def store(
    db: Database,
    revision: str,
    recipes: dict[str, tuple[str, dict[str, Any]]],
    overrides: dict[str, tuple[str, dict[str, Any]]],
    *audited: dict[str, Any],
    job: Mapping[str, Any] = NO_RECIPE,
) -> None:
    """Store models, jobs and audit rows with these recipes, overrides and data, and go to an
    earlier revision.
    """
    migrate.upgrade(db)
    shared = {"owner_id": "own_1", "created_at": 1.0, "warnings": []}
    model = {"architecture": {"name": "mlp"}, "image": {"size": 8, "channels": 1}, "base": "random"}
    model |= {"gate": {}, "keep_training_data": False, "held_out": "keep"}
    batch = {
        "sha256": "0" * 64,
        "bytes": 1,
        "media_type": "zip",
        "classes": {},
        "report": {},
        "warnings": [],
    }
    with db.write() as session:
        session.add(Owner(id="own_1", name="one", created_at=1.0))
        session.flush()
        for id_, (scenario, recipe) in recipes.items():
            session.add(
                Model(id=id_, name=id_, scenario=scenario, recipe=recipe, **model, **shared)
            )
        session.flush()
        for number, (id_, (of, override)) in enumerate(overrides.items(), 1):
            task = f"tsk_{number}"
            session.add(Task(id=task, model_id=of, number=number, created_at=1.0, **batch))
            session.flush()
            place = {"task_id": task, "task_number": number, "place": number, "progress": {}, **job}
            session.add(Job(id=id_, model_id=of, recipe_override=override, **place, **shared))
        for data in audited:
            session.add(Audit(at=1.0, owner_id="own_1", action="a.b", object="mdl_1", data=data))
    migrate.downgrade(db, revision)


@pytest.mark.slow
def test_nulls_that_say_nothing_go_and_huge_audit_rows_are_shortened(empty: Database) -> None:
    recipes = {"mdl_1": ("class", JUNK), "mdl_2": ("class", {"epochs": 2})}
    store(
        empty, "0008", recipes, {"job_1": ("mdl_1", JUNK)}, {"recipe": JUNK}, {"name": "é" * 5000}
    )
    migrate.upgrade(empty)
    with empty.write() as session:
        stored = list(session.scalars(select(Model.recipe).order_by(Model.id)))
        assert stored == [{"epochs": 4, "optimizer": {"lr": 0.1}}, {"epochs": 2}]
        kept = {"method": None, "epochs": 4, "optimizer": {"lr": 0.1, "clip": None}}
        assert session.scalars(select(Job.recipe_override)).one() == kept
        huge, short = session.scalars(select(Audit.data).order_by(Audit.id))
        assert huge == {"left_out": ["recipe"], "bytes": len(json.dumps({"recipe": JUNK}))}
        assert huge["bytes"] > MAX_DATA_BYTES and short == {"name": "é" * 5000}
        for id_ in recipes:
            session.add(Alias(model_id=id_, name="production", version=0, updated_at=1.0))
    found = models.list_models(empty, CATALOGUE, Actor("own_1", None, "write"), 50, None)["items"]
    assert [model["recipe"]["epochs"] for model in found] == [4, 2]
    assert found[0]["recipe"]["method"]["name"] == "er" and len(json.dumps(found)) < 5000


def test_models_and_overrides_say_the_defaults_that_they_were_made_with(empty: Database) -> None:
    store(empty, "0013", MODELS, OVERRIDES)
    migrate.upgrade(empty)
    with empty.read() as session:
        stored = {id_: recipe for id_, recipe in session.execute(select(Model.id, Model.recipe))}
        overrides = {
            id_: override for id_, override in session.execute(select(Job.id, Job.recipe_override))
        }
    known = build_catalogue()
    for id_, wanted in FORMER.items():
        scenario, sent = MODELS[id_]
        shown = complete_stored(known, scenario, stored[id_])
        assert shown == resolve(known, scenario, stored[id_]).recipe
        assert wanted.items() <= dict(shown["method"]).items()
        assert {**stored[id_], "method": None} == {**sent, "method": None}
    assert [stored[id_] for id_ in ("mdl_5", "mdl_6")] == [
        MODELS[id_][1] for id_ in ("mdl_5", "mdl_6")
    ]
    complete = {"method": {"name": "si", "c": 1.0, "xi": 0.1}}  # where its model does not say it
    assert overrides == {"job_1": {"method": "si"}, "job_2": complete, "job_3": {"epochs": 4}}
    migrate.downgrade(empty, "0013")
    with empty.read() as session:  # older code finds no field that it does not know
        assert "weight" not in json.dumps(list(session.scalars(select(Model.recipe))))


def test_a_model_of_today_has_the_defaults_of_today() -> None:
    found = resolve(build_catalogue(), "task", {"method": "si"}).recipe["method"]
    assert found == {"name": "si", "c": 0.1, "xi": 0.001}


FORMER_ANALYTIC = {"head": "ridge", "projection": 1000, "balanced": False, "keep": "sums"}


@pytest.mark.parametrize(
    ("recipe", "former"),
    [
        ({"method": {"name": "analytic"}, "epochs": 2}, FORMER_ANALYTIC),
        ({"method": "analytic"}, FORMER_ANALYTIC),
        (
            {"method": {"name": "analytic", "head": "lda", "projection": 0}},
            {**FORMER_ANALYTIC, "head": "lda", "projection": 0},
        ),
    ],
    ids=["named", "short", "own"],
)
def test_a_closed_form_of_before_keeps_its_head_and_its_projection(
    recipe: dict[str, Any], former: dict[str, Any], empty: Database
) -> None:
    store(empty, "0024", {"mdl_1": ("class", recipe)}, {})
    migrate.upgrade(empty)
    with empty.read() as session:
        stored = session.scalars(select(Model.recipe)).one()
    assert (
        former.items() <= dict(resolve(build_catalogue(), "class", stored).recipe["method"]).items()
    )
    migrate.downgrade(empty, "0024")
    with empty.read() as session:
        assert "keep" not in session.scalars(select(Model.recipe)).one()["method"]


@pytest.mark.parametrize(
    "method", ["analytic", {"name": "analytic", "head": "lda"}], ids=["short", "own"]
)
def test_a_closed_form_of_before_has_no_offsets(method: Any, empty: Database) -> None:
    store(
        empty,
        "0034",
        {"mdl_1": ("class", {"method": method})},
        {"job_1": ("mdl_1", {"method": "er"})},
    )
    migrate.upgrade(empty)
    with empty.read() as session:
        stored = session.scalars(select(Model.recipe)).one()
        assert session.scalars(select(Job.recipe_override)).one() == {"method": "er"}
    assert dict(resolve(build_catalogue(), "class", stored).recipe["method"])["offsets"] is False
    migrate.downgrade(empty, "0034")
    with empty.read() as session:
        assert "offsets" not in session.scalars(select(Model.recipe)).one()["method"]


@pytest.mark.parametrize(
    ("state", "known"), [("queued", True), ("paused", True), ("succeeded", False)], ids=str
)
def test_older_code_reads_the_recipes_of_a_new_model(
    state: str, known: bool, empty: Database
) -> None:
    known_methods = build_catalogue()
    made = dict(
        start.new_recipe(known_methods, {"method": {"name": "analytic", "offsets": True}}, "random")
    )
    override = {"balanced_batches": None, "epochs": 2}
    shown = resolve(known_methods, "class", made).recipe
    store(
        empty,
        "0034",
        {"mdl_1": ("class", made)},
        {"job_1": ("mdl_1", override)},
        job={"recipe": shown, "state": state},
    )
    with empty.read() as session:
        assert session.scalars(select(Model.recipe)).one() == {
            "preset": "from-random",
            "method": {"name": "analytic"},
        }
        assert session.scalars(select(Job.recipe_override)).one() == {"epochs": 2}
        kept: dict[str, Any] = dict(session.scalars(select(Job.recipe)).one())
    assert ("balanced_batches" not in kept) is ("offsets" not in kept["method"]) is known
    fields = {*shown} - ({"balanced_batches"} if known else set())
    assert {*kept} == fields


def test_a_closed_form_of_today_chooses_its_head_and_keeps_features() -> None:
    found = resolve(build_catalogue(), "class", {"method": "analytic"}).recipe["method"]
    today = {"head": "auto", "projection": None, "balanced": True, "keep": "features"}
    today |= {"offsets": True}
    assert today.items() <= dict(found).items()
