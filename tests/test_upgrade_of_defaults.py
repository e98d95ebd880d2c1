"""Migration 0014 on rows from before it: models and jobs keep the recipes that they were made with."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from core.db import migrate
from core.db.session import Database
from core.db.tables import Job, Model, Owner, Task
from core.learn.catalogue import catalogue
from core.recipe.resolve import completed, resolve
from tests.older_data import DIALECTS, empty

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mdl_1": ("task", {"method": "si", "epochs": 2}),
    "mdl_2": ("task", {"method": {"name": "si", "xi": 0.01}}),
    "mdl_3": ("class", {"method": {"name": "lwf", "lambda_o": 2.0}}),
    "mdl_4": ("data", {"method": "dlcft"}),
    "mdl_5": ("class", {"method": "er"}),
    "mdl_6": ("class", {"epochs": 3}),
}
FORMER: dict[str, dict[str, Any]] = {
    "mdl_1": {"c": 0.1, "xi": 0.1},
    "mdl_2": {"c": 0.1, "xi": 0.01},
    "mdl_3": {"lambda_o": 2.0, "temperature": 2.0, "warmup_epochs": 0, "weight": "constant"},
    "mdl_4": {"curvature": "tkfac", "norms": "fold", "alpha": 15.0},
}
"""What the recipes of these models meant to the code that stored them."""
OVERRIDES: dict[str, tuple[str, dict[str, Any]]] = {
    "job_1": ("mdl_2", {"method": "si"}),  # the model's own xi counts
    "job_2": ("mdl_5", {"method": {"name": "si", "c": 1.0}}),
    "job_3": ("mdl_5", {"epochs": 4}),
}


@pytest.fixture(params=DIALECTS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of revision 0013, with patches as older code stored them."""
    with empty(request.param, tmp_path) as db:
        migrate.upgrade(db)
        _fill(db)
        migrate.downgrade(db, "0013")
        yield db


def _fill(db: Database) -> None:
    shared = {"owner_id": "own_1", "created_at": 1.0}
    model = {
        "architecture": {"name": "mlp"},
        "image": {"size": 8, "channels": 1},
        "base": "random",
        "gate": {},
    }
    model |= {
        "classes": None,
        "keep_training_data": False,
        "held_out": "keep",
        "warnings": [],
        "deleted_at": None,
    }
    batch = {"sha256": "0" * 64, "bytes": 1, "media_type": "zip", "classes": {}, "report": {}, "warnings": []}
    with db.write() as session:
        session.add(Owner(id="own_1", name="one", created_at=1.0))
        session.flush()
        for id_, (scenario, recipe) in MODELS.items():
            session.add(Model(id=id_, name=id_, scenario=scenario, recipe=recipe, **model, **shared))
        session.flush()
        for number, (id_, (of, override)) in enumerate(OVERRIDES.items(), 1):
            task = f"tsk_{number}"
            session.add(Task(id=task, model_id=of, number=number, created_at=1.0, **batch))
            session.flush()
            place = {"task_id": task, "task_number": number, "place": number, "recipe": {}, "gate": None}
            more = {"recipe_override": override, "progress": {}, "warnings": []}
            session.add(Job(id=id_, model_id=of, **place, **more, **shared))


def test_models_of_before_keep_what_their_recipes_meant(old: Database) -> None:
    migrate.upgrade(old)
    known = catalogue()
    with old.read() as session:
        stored = {id_: recipe for id_, recipe in session.execute(select(Model.id, Model.recipe))}
    for id_, wanted in FORMER.items():
        scenario, sent = MODELS[id_]
        shown = completed(known, scenario, stored[id_])
        assert shown == resolve(known, scenario, stored[id_]).recipe
        hyper = dict(shown["method"])
        assert {name: hyper[name] for name in wanted} == wanted
        assert {key: value for key, value in stored[id_].items() if key != "method"} == {
            key: value for key, value in sent.items() if key != "method"
        }
    assert [stored[id_] for id_ in ("mdl_5", "mdl_6")] == [MODELS[id_][1] for id_ in ("mdl_5", "mdl_6")]


def test_a_model_of_today_has_the_defaults_of_today() -> None:
    known = catalogue()
    assert resolve(known, "task", {"method": "si"}).recipe["method"] == {"name": "si", "c": 0.1, "xi": 0.001}


def test_a_jobs_override_says_the_former_default_where_its_model_does_not(old: Database) -> None:
    migrate.upgrade(old)
    with old.read() as session:
        stored = {id_: patch for id_, patch in session.execute(select(Job.id, Job.recipe_override))}
    assert stored == {
        "job_1": {"method": "si"},
        "job_2": {"method": {"name": "si", "c": 1.0, "xi": 0.1}},
        "job_3": {"epochs": 4},
    }


def test_code_of_before_finds_no_field_that_it_does_not_know(old: Database) -> None:
    migrate.upgrade(old)
    migrate.downgrade(old, "0013")
    with old.read() as session:
        assert "weight" not in json.dumps(list(session.scalars(select(Model.recipe))))
