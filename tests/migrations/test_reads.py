"""Migration 0016 on rows from before it: each version has its ACC, each audit row its model."""

import pytest
from sqlalchemy import select

from core.db import migrate
from core.db.session import Database
from core.db.tables import Audit, Measurement, Model, Version
from core.line.coverage import list_taught_tasks
from core.line.row import row_of
from core.matrix_row import row_figures

BEFORE = "0015"


def test_each_version_has_the_acc_of_its_row(older: Database) -> None:
    migrate.upgrade(older)
    measured = 0
    with older.read() as session:
        query = select(Version, Model, Measurement.value).join(Model, Model.id == Version.model_id)
        query = query.join(
            Measurement,
            (Measurement.model_id == Version.model_id)
            & (Measurement.version == Version.number)
            & (Measurement.name == "row"),
        )
        for version, model, value in session.execute(query):
            cells = row_of(session, model.id, version.number)
            expected = row_figures(list_taught_tasks(version.manifest), cells, model.scenario).acc
            assert value == (None if expected is None else pytest.approx(expected))
            measured += expected is not None
    assert measured


def test_each_audit_row_names_the_model_that_it_concerns(older: Database) -> None:
    migrate.upgrade(older)
    with older.read() as session:
        models = set(session.scalars(select(Model.id)))
        for row in session.scalars(select(Audit)):
            of_a_model = row.object[:4] in ("mdl_", "tsk_", "job_", "ver_")
            assert (row.model_id in models) if of_a_model else (row.model_id is None)
            if "model" in row.data:
                assert row.model_id == row.data["model"]
