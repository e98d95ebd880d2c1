"""Migration 0016 on rows from before it: each version has its ACC, each audit row its model, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from core.db import migrate
from core.db.session import Database
from core.db.tables import Audit, Measurement, Model, Version
from core.line.coverage import taught
from core.line.row import row_of
from core.matrix_row import row_figures
from tests.older_data import DIALECTS, written_before
from tests.test_upgrade_of_job_kinds import rows

BEFORE_IT = "0015"
NEW = {"models": {"description", "tags"}, "versions": {"note"}, "audit": {"model_id"}}


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Models, versions and an audit trail that older code wrote, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        yield db


def test_older_rows_keep_what_they_have_both_ways(before: Database) -> None:
    old = {table: rows(before, table) for table in NEW}
    assert all(old.values()), "the data of before has such rows"
    migrate.upgrade(before)
    for table, added in NEW.items():
        now = rows(before, table)
        assert [{k: v for k, v in row.items() if k not in added} for row in now] == old[table]
        assert {key for row in now for key in row} - old[table][0].keys() == added
    with before.read() as session:
        assert not session.scalars(select(Version.note).where(Version.note.is_not(None))).all()
        assert all(
            model.tags is None and model.description is None for model in session.scalars(select(Model))
        )
    migrate.downgrade(before, BEFORE_IT)
    assert {table: rows(before, table) for table in NEW} == old


def test_each_version_has_the_acc_of_its_row(before: Database) -> None:
    migrate.upgrade(before)
    measured = 0
    with before.read() as session:
        query = select(Version, Model, Measurement.value).join(Model, Model.id == Version.model_id)
        query = query.join(
            Measurement,
            (Measurement.model_id == Version.model_id)
            & (Measurement.version == Version.number)
            & (Measurement.name == "row"),
        )
        for version, model, value in session.execute(query):
            cells = row_of(session, model.id, version.number)
            expected = row_figures(taught(version.manifest), cells, model.scenario).acc
            assert value == (None if expected is None else pytest.approx(expected))
            measured += expected is not None
    assert measured


def test_each_audit_row_names_the_model_that_it_concerns(before: Database) -> None:
    migrate.upgrade(before)
    with before.read() as session:
        models = set(session.scalars(select(Model.id)))
        for row in session.scalars(select(Audit)):
            of_a_model = row.object[:4] in ("mdl_", "tsk_", "job_", "ver_")
            assert (row.model_id in models) if of_a_model else (row.model_id is None)
            if "model" in row.data:
                assert row.model_id == row.data["model"]
