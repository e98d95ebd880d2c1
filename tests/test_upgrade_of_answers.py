"""Migration 0021 on rows from before it: cells are as they were, without answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from core.db import migrate
from core.db.session import Database
from core.db.tables import Result
from tests.older_data import DIALECTS, written_before
from tests.test_upgrade_of_job_kinds import rows

BEFORE_IT = "0020"


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """What older code wrote, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        yield db


def test_older_cells_are_as_they_were_both_ways_and_have_no_answers(before: Database) -> None:
    with before.read() as session:
        query = text("SELECT version, task, correct, total FROM results ORDER BY model_id, version, task")
        older = session.execute(query).all()
    versions = rows(before, "versions")
    assert older
    migrate.upgrade(before)
    with before.read() as session:
        assert session.execute(query).all() == older
        assert {cell.answers for cell in session.query(Result)} == {None}
    migrate.downgrade(before, BEFORE_IT)
    columns = {column["name"] for column in inspect(before.engine).get_columns("results")}
    assert not columns & {"answers", "answers_bytes"}
    with before.read() as session:
        assert session.execute(query).all() == older
    assert rows(before, "versions") == versions
