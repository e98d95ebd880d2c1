"""Migration 0009 on rows from before it: recipes with nulls of any name, and an audit row of any size."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text

from core.db import migrate
from core.db.session import Database
from core.db.tables import Audit, Job, Model, Owner, Task
from core.requests import models
from core.requests.actor import Actor
from core.requests.audit import MAX_DATA_BYTES
from tests.core.requests.batches import CATALOGUE
from tests.older_data import DIALECTS, empty

JUNK = {"x" * 900_000: None, "method": None, "epochs": 4, "optimizer": {"lr": 0.1, "clip": None}}


@pytest.fixture(params=DIALECTS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of revision 0008."""
    with empty(request.param, tmp_path) as db:
        migrate.upgrade(db)
        _fill(db)
        migrate.downgrade(db, "0008")
        yield db


def _fill(db: Database) -> None:
    shared = {"owner_id": "own_1", "created_at": 1.0}
    with db.write() as session:
        session.add(Owner(id="own_1", name="one", created_at=1.0))
        session.flush()
        for number in range(1, 3):
            model = Model(
                id=f"mdl_{number}",
                name=f"m{number}",
                scenario="class",
                architecture={"name": "small-cnn"},
                image={"size": 32, "channels": 3},
                base="random",
                classes=None,
                recipe=JUNK if number == 1 else {"epochs": 2},
                gate={},
                keep_training_data=False,
                held_out="keep",
                warnings=[],
                deleted_at=None,
                **shared,
            )
            session.add(model)
        session.flush()
        task = {
            "sha256": "0" * 64,
            "bytes": 1,
            "media_type": "zip",
            "classes": {},
            "report": {},
            "warnings": [],
        }
        session.add(Task(id="tsk_1", model_id="mdl_1", number=1, created_at=1.0, **task))
        session.flush()
        job = {"task_id": "tsk_1", "task_number": 1, "place": 1, "recipe": {}, "gate": None, "progress": {}}
        session.add(Job(id="job_1", model_id="mdl_1", recipe_override=JUNK, warnings=[], **job, **shared))
        for data in ({"recipe": JUNK}, {"name": "é" * 5000}):
            session.add(Audit(at=1.0, owner_id="own_1", actor=None, action="a.b", object="mdl_1", data=data))


def test_what_said_nothing_goes_and_what_was_said_stays(old: Database) -> None:
    migrate.upgrade(old)
    with old.read() as session:
        recipes = list(session.scalars(select(Model.recipe).order_by(Model.id)))
        assert recipes == [{"epochs": 4, "optimizer": {"lr": 0.1}}, {"epochs": 2}]
        assert session.scalars(select(Job.recipe_override)).one() == {
            "method": None,
            "epochs": 4,
            "optimizer": {"lr": 0.1, "clip": None},
        }
        huge, short = session.scalars(select(Audit.data).order_by(Audit.id))
        assert huge == {"left_out": ["recipe"], "bytes": len(json.dumps({"recipe": JUNK}))}
        assert huge["bytes"] > MAX_DATA_BYTES and short == {"name": "é" * 5000}


def test_a_model_from_before_is_listed_with_its_recipe_completed(old: Database) -> None:
    migrate.upgrade(old)
    with old.write() as session:
        for number in (1, 2):
            session.execute(
                text(
                    "INSERT INTO aliases (model_id, name, version, updated_at) VALUES (:m, 'production', 0, 1)"
                ),
                {"m": f"mdl_{number}"},
            )
    found = models.list_models(old, CATALOGUE, Actor("own_1", None, "write"), 50, None)["items"]
    assert [model["recipe"]["epochs"] for model in found] == [4, 2]
    assert found[0]["recipe"]["method"]["name"] == "er" and len(json.dumps(found)) < 5000
