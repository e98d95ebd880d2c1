"""The migrations: up, down, up again, on both databases; and what a process says to an old
schema.
"""

import os
import subprocess
import sys
from pathlib import Path

import alembic.config
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from core.db import migrate
from core.db.session import Database
from core.db.tables import Table
from core.errors import SchemaOutdated
from tests.migrations.databases import read_rows

ROOT = Path(__file__).parents[2]


def tables(db: Database) -> set[str]:
    return set(inspect(db.engine).get_table_names()) - {"alembic_version"}


def test_up_makes_every_table_and_down_removes_it(empty: Database) -> None:
    migrate.upgrade(empty)
    assert tables(empty) == set(Table.metadata.tables)
    migrate.downgrade(empty, "base")
    assert tables(empty) == set()
    migrate.upgrade(empty)
    assert tables(empty) == set(Table.metadata.tables)


@pytest.mark.both_databases  # types of columns differ between them
def test_the_migrations_make_exactly_the_tables_of_the_code(database: Database) -> None:
    migrate.upgrade(database)  # once more, which changes nothing
    migrate.require_current(database)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Table.metadata) == []


def test_the_partial_unique_indexes_are_there(database: Database) -> None:
    query = {
        "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE "
        "'%UNIQUE%WHERE%'",
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes WHERE indexdef LIKE "
        "'%UNIQUE%WHERE%'",
    }[database.dialect]
    found = dict(read_rows(database, query))
    assert set(found) == {"uq_jobs_model_id_leased", "uq_models_owner_id_name"}
    for state in ("validating", "running", "pausing", "cancelling"):
        assert state in found["uq_jobs_model_id_leased"]


def test_the_head_that_is_read_as_text_is_the_head_that_alembic_sees() -> None:
    scripts = ScriptDirectory(str(ROOT / "migrations"))
    assert migrate.find_head() == scripts.get_current_head()
    written = "revision = '0002'\ndown_revision = '0001'\n"  # as the template writes
    single = migrate._REVISION.findall(written)
    assert single == [("revision", "0002"), ("down_revision", "0001")]


def test_an_empty_database_names_the_command(empty: Database) -> None:
    with pytest.raises(SchemaOutdated, match="alembic upgrade head"):
        migrate.require_current(empty)


def test_a_newer_schema_is_refused_too(empty: Database) -> None:
    migrate.upgrade(empty, "0001")
    with empty.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'future'"))
    with pytest.raises(SchemaOutdated, match="newer"):
        migrate.require_current(empty)


def test_a_migration_that_breaks_leaves_the_schema_as_it_was(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import op

    monkeypatch.setattr(op, "create_table", _break_at("jobs", op.create_table))
    with pytest.raises(RuntimeError, match="power cut"):
        migrate.upgrade(empty)
    assert tables(empty) == set()
    assert migrate.read_revision(empty) is None


def _break_at(table: str, original: object) -> object:
    def create(name: str, *columns: object, **options: object) -> object:
        if name == table:
            raise RuntimeError("power cut")
        return original(name, *columns, **options)  # type: ignore[operator]

    return create


@pytest.mark.slow
def test_starts_at_the_same_moment_migrate_once(empty: Database) -> None:
    code = (
        "import sys; from core.db import migrate; from core.db.session import Database;"
        "migrate.upgrade(Database(sys.argv[1]))"
    )
    starts = [subprocess.Popen([sys.executable, "-c", code, empty.url], cwd=ROOT) for _ in range(2)]
    assert [start.wait() for start in starts] == [0, 0]
    migrate.require_current(empty)


def test_the_command_line_upgrades_and_makes_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(
        "logging.config.fileConfig", lambda *_, **__: None
    )  # of the process of the tests
    umask = os.umask(0o077)
    try:
        for command in (["upgrade", "head"], ["check"], ["downgrade", "base"]):
            alembic.config.main(["-c", str(ROOT / "alembic.ini"), *command])
            if command[0] == "upgrade":
                migrate.require_current(Database(f"sqlite:///{tmp_path / 'data' / 'perennial.db'}"))
                assert (tmp_path / "data" / "store").is_dir()
    finally:
        os.umask(umask)
