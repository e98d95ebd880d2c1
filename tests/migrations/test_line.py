"""Migration 0008 on a database from before it: `data/before-line.tar.gz`, as it is and copied into
PostgreSQL.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from core.db import migrate
from core.db.session import Database
from tests.migrations import databases
from tests.migrations.databases import decode_json, read_rows

LINES: dict[str, tuple[int, bool, list[str | None], list[list[int]]]] = {
    "cancelled": (1, True, ["learned", "cancelled"], [[], [1]]),
    "child": (1, True, ["learned"], [[], [1]]),
    "failed": (2, True, ["learned", "failed", "learned"], [[], [1], [1, 3]]),
    "gone": (1, True, ["learned"], [[], [1]]),
    "held": (1, True, ["learned", "held"], [[], [1], [1, 2]]),
    "held-and-on": (3, True, ["learned", "skipped", "learned"], [[], [1], [1, 2], [1, 3]]),
    "overruled": (3, True, ["learned", "learned", "learned"], [[], [1], [1, 2], [1, 2, 3]]),
    "retrying": (1, True, ["learned", "held", None], [[], [1], [1, 2]]),
    "rolled": (2, False, ["learned", "learned", "rolled_back"], [[], [1], [1, 2], [1, 2, 3]]),
    "rolled-and-on": (4, True, ["learned", "learned", "rolled_back", "learned"],
                      [[], [1], [1, 2], [1, 2, 3], [1, 2, 4]]),
    "seasons": (2, True, ["learned", "learned"], [[], [1], [1, 2]]),
    "waiting": (1, True, ["learned", None], [[], [1]]),
}  # fmt: skip
"""Model → its line head, whether production follows, the standings of its tasks, `manifest.tasks`
of its versions.
"""
EVERYTHING = (
    "SELECT id, head, production_follows FROM models ORDER BY id",
    # `train_until` counts from now
    "SELECT id, standing, standing_at, stops FROM tasks ORDER BY id",
    "SELECT id, again FROM jobs ORDER BY id",
    "SELECT id, status, CAST(gate AS TEXT), CAST(manifest AS TEXT) FROM versions ORDER BY id",
)
"""Queries for the columns that the migration fills."""


@pytest.fixture(scope="module")
def upgraded(
    dialect: str, written_before: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """The old database with the new schema, after an upgrade, a downgrade and another upgrade."""
    folder = tmp_path_factory.mktemp("before")
    with databases.open_database(databases.create(dialect, folder, written_before)) as db:
        assert migrate.read_revision(db) == databases.FIRST
        migrate.upgrade(db, "0008")
        first = [read_rows(db, query) for query in EVERYTHING]
        migrate.downgrade(db, databases.FIRST)
        migrate.upgrade(db, "0008")
        assert first == [read_rows(db, query) for query in EVERYTHING]
        yield db


def test_each_model_has_the_line_head_that_production_named(upgraded: Database) -> None:
    found = read_rows(upgraded, "SELECT name, head, production_follows FROM models")
    assert {name: (head, bool(follows)) for name, head, follows in found} == {
        name: row[:2] for name, row in LINES.items()
    }


def test_each_task_stands_where_it_would_stand_now(upgraded: Database) -> None:
    assert _read_by_model(upgraded, "tasks", "standing") == {
        name: row[2] for name, row in LINES.items()
    }


def test_only_a_version_held_as_the_newest_stops_its_line(upgraded: Database) -> None:
    stops = _read_by_model(upgraded, "tasks", "stops")
    found = {(m, n) for m, flags in stops.items() for n, stop in enumerate(flags, start=1) if stop}
    assert found == {("held", 2), ("retrying", 2)}


def test_a_task_has_its_standing_since_its_job_ended(upgraded: Database) -> None:
    query = (
        "SELECT count(*), sum(CASE WHEN t.standing_at = (SELECT max(j.finished_at) FROM jobs j "
        "WHERE j.task_id = t.id) THEN 1 ELSE 0 END) FROM tasks t WHERE t.standing IS NOT NULL"
    )
    ((all_, right),) = read_rows(upgraded, query)
    assert all_ == right == 27


def test_every_version_names_the_tasks_that_it_was_taught_and_keeps_the_rest(
    upgraded: Database,
) -> None:
    manifests = _read_by_model(upgraded, "versions", "manifest")
    taught = {m: [decode_json(one)["tasks"] for one in found] for m, found in manifests.items()}
    assert taught == {name: row[3] for name, row in LINES.items()}
    learned = [decode_json(one) for found in manifests.values() for one in found[1:]]
    assert all(one["parts"] and one["recipe"]["batch_size"] == 8 for one in learned)


def test_training_parts_that_are_still_there_are_kept_seven_days_from_now(
    upgraded: Database,
) -> None:
    query = (
        "SELECT m.name, t.number, t.train_until FROM tasks t JOIN models m ON m.id = t.model_id"
        " WHERE t.train_until IS NOT NULL ORDER BY m.name"
    )
    dated = read_rows(upgraded, query)
    assert [(model, number) for model, number, _ in dated] == [("held-and-on", 2), ("overruled", 2)]
    assert all(abs(until - time.time() - 7 * 86_400) < 600 for *_, until in dated)


def test_a_retry_that_was_waiting_comes_before_all_others(upgraded: Database) -> None:
    query = (
        "SELECT m.name, j.task_number FROM jobs j JOIN models m ON m.id = j.model_id WHERE j.again"
    )
    assert read_rows(upgraded, query) == [("retrying", 2)]


def test_a_held_version_that_a_person_put_in_production_is_published_with_his_reason(
    upgraded: Database,
) -> None:
    assert _read_by_model(upgraded, "versions", "status")["overruled"] == ["published"] * 4
    gate = decode_json(_read_by_model(upgraded, "versions", "gate")["overruled"][2])
    assert gate["passed"] is False and gate["checks"]
    assert gate["overruled"]["reason"] == "good enough for us" and gate["overruled"][
        "key"
    ].startswith("key_")


def _read_by_model(db: Database, table: str, column: str) -> dict[str, list[Any]]:
    """Map each model to the values of a column, in the order of the numbers."""
    rows = f"{table} x JOIN models m ON m.id = x.model_id ORDER BY m.name, x.number"
    query = f"SELECT m.name, x.{column} FROM {rows}"  # noqa: S608
    found: dict[str, list[Any]] = {}
    for name, value in read_rows(db, query):
        found.setdefault(name, []).append(value)
    return found
