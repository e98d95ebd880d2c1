"""Many rows at once are the rows that one after the other would be, to the last bit."""

import random

import pytest

from core.database.bulk import insert_rows
from core.database.session import Database
from core.database.tables import VersionTaskResult

pytestmark = pytest.mark.both_databases


def test_rows_come_back_as_they_were_given(filled: Database) -> None:
    draw = random.Random(5)
    rows = [
        {
            "model_id": "mdl_1", "version": 1, "task": task, "correct": task, "total": 2**31 - task,
            "per_class": {"Äpfel \"rot\" 'x' \\ \n %s :n": [task, 9], "": [0, 0]},
            "best": None if task % 7 == 0 else draw.random() / draw.randint(1, 10**9),
        }
        for task in range(1, 300)
    ]  # fmt: skip
    with filled.write() as session:
        insert_rows(session, VersionTaskResult, rows)
    with filled.read() as session:
        found = (
            session.query(VersionTaskResult)
            .filter_by(model_id="mdl_1")
            .order_by(VersionTaskResult.task)
            .all()
        )
        assert [{name: getattr(row, name) for name in rows[0]} for row in found] == rows


def test_no_rows_are_no_statement(database: Database) -> None:
    with database.write() as session:
        insert_rows(session, VersionTaskResult, [])
        assert session.query(VersionTaskResult).count() == 0
