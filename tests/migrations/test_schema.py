"""The migrations on both databases, and what a process says to a schema that it does not fit."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import alembic.config
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from core.database import migrate
from core.database.session import Database
from core.database.tables import DatabaseTable
from core.errors import SchemaOutdated
from tests.migrations import databases
from tests.migrations.databases import read_rows, read_schema, set_revision

ROOT = Path(__file__).parents[2]


def list_tables(db: Database) -> set[str]:
    return set(inspect(db.engine).get_table_names()) - {"alembic_version"}


def test_the_migrations_make_exactly_the_tables_of_the_code(
    dialect: str, empty: Database, tmp_path: Path
) -> None:
    for _ in range(2):  # the second time changes nothing
        migrate.upgrade_schema(empty)
        migrate.require_current_schema(empty)
    with databases.open_database(
        databases.create_database(dialect, tmp_path / "of-the-code")
    ) as of_the_code:
        DatabaseTable.metadata.create_all(of_the_code.engine)
        assert list_tables(empty) == list_tables(of_the_code) == set(DatabaseTable.metadata.tables)
        assert read_schema(empty) == read_schema(of_the_code)


CHANGES = (
    "ALTER TABLE jobs ADD COLUMN more BIGINT",
    "ALTER TABLE jobs ADD COLUMN more BIGINT DEFAULT 1 NOT NULL",
    "DROP INDEX ix_jobs_anytime",
    "DROP INDEX ix_tasks_train; CREATE INDEX ix_tasks_train ON tasks (model_id, n_train)",
    "DROP TABLE scrub; CREATE TABLE scrub (id BIGINT PRIMARY KEY)",
)


@databases.parametrize_pairs("change", CHANGES, CHANGES[:1])
def test_the_comparison_sees_each_difference(empty: Database, change: str) -> None:
    migrate.upgrade_schema(empty)
    before = read_schema(empty)
    with empty.write() as session:
        for statement in change.split("; "):
            session.execute(text(statement))
    assert read_schema(empty) != before


def test_autogenerate_finds_nothing_to_add(empty: Database) -> None:
    migrate.upgrade_schema(empty)
    with empty.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, DatabaseTable.metadata) == []


def test_each_revision_is_named_as_its_file() -> None:
    """A bare number could be that of a revision before version 0.1.0."""
    names = {path.stem for path in (ROOT / "migrations" / "versions").glob("*.py")}
    assert migrate._read_migration_revisions().keys() == names
    assert not names & set(migrate.FORMER)


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
    assert migrate.get_newest_schema_revision() == scripts.get_current_head()
    written = "revision = '0002'\ndown_revision = '0001'\n"  # as the template writes it
    single = migrate._REVISION.findall(written)
    assert single == [("revision", "0002"), ("down_revision", "0001")]


def test_an_empty_database_names_the_command(empty: Database) -> None:
    with pytest.raises(SchemaOutdated, match="perennial migrate"):
        migrate.require_current_schema(empty)


CHECKS = (migrate.require_current_schema, migrate.upgrade_schema)


@databases.parametrize_pairs("check", CHECKS, CHECKS[1:])
def test_a_newer_schema_is_refused_and_stays(
    empty: Database, check: Callable[[Database], object]
) -> None:
    migrate.upgrade_schema(empty)
    set_revision(empty, "9999_of_a_later_release")
    before = read_schema(empty)
    with pytest.raises(SchemaOutdated, match=r"is newer than this code .*: run the release that"):
        check(empty)
    assert migrate.read_schema_revision(empty) == "9999_of_a_later_release"
    assert read_schema(empty) == before


def test_a_migration_that_breaks_leaves_the_schema_as_it_was(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import op

    monkeypatch.setattr(op, "create_table", _make_failing_create("jobs", op.create_table))
    with pytest.raises(RuntimeError, match="power cut"):
        migrate.upgrade_schema(empty)
    assert list_tables(empty) == set()
    assert migrate.read_schema_revision(empty) is None


def _make_failing_create(table: str, original: object) -> object:
    def create_table_or_fail(name: str, *columns: object, **options: object) -> object:
        if name == table:
            raise RuntimeError("power cut")
        return original(name, *columns, **options)  # type: ignore[operator]

    return create_table_or_fail


@pytest.mark.slow
def test_starts_at_the_same_moment_migrate_once(empty: Database) -> None:
    code = (
        "import sys; from core.database import migrate; from core.database.session import Database;"
        "migrate.upgrade_schema(Database(sys.argv[1]))"
    )
    starts = [subprocess.Popen([sys.executable, "-c", code, empty.url], cwd=ROOT) for _ in range(2)]
    assert [start.wait() for start in starts] == [0, 0]
    migrate.require_current_schema(empty)


def test_the_command_line_upgrades_and_makes_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(
        "logging.config.fileConfig", lambda *_, **__: None
    )  # of the process of the tests
    umask, db = os.umask(0o077), Database(databases.make_sqlite_url(tmp_path / "data"))
    try:
        for command in (["upgrade", "head"], ["check"], ["downgrade", "base"]):
            alembic.config.main(["-c", str(ROOT / "alembic.ini"), *command])
            if command[0] == "upgrade":
                migrate.require_current_schema(db)
                assert (tmp_path / "data" / "store").is_dir()
        assert list_tables(db) == set()
    finally:
        os.umask(umask)
        db.close()
