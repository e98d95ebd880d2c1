"""The migrations: up, down, up again, on both databases; and what a process says to an old schema."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from core.db import migrate
from core.db.session import Database
from core.db.tables import Table
from core.errors import SchemaOutdated
from tests import older_data

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=older_data.DIALECTS)
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with older_data.empty(request.param, tmp_path) as db:
        yield db


def tables(db: Database) -> set[str]:
    return set(inspect(db.engine).get_table_names()) - {"alembic_version"}


def test_up_makes_every_table_and_down_removes_it(empty: Database) -> None:
    migrate.upgrade(empty)
    assert tables(empty) == set(Table.metadata.tables)
    migrate.downgrade(empty, "base")
    assert tables(empty) == set()
    migrate.upgrade(empty)
    assert tables(empty) == set(Table.metadata.tables)


def test_up_twice_changes_nothing(empty: Database) -> None:
    migrate.upgrade(empty)
    migrate.upgrade(empty)
    migrate.require_current(empty)


def test_the_migrations_make_exactly_the_tables_of_the_code(empty: Database) -> None:
    migrate.upgrade(empty)
    with empty.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Table.metadata) == []


def test_the_partial_unique_indexes_are_there(empty: Database) -> None:
    migrate.upgrade(empty)
    query = {
        "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '%UNIQUE%WHERE%'",
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes WHERE indexdef LIKE '%UNIQUE%WHERE%'",
    }[empty.dialect]
    with empty.engine.connect() as connection:
        found = {name: sql for name, sql in connection.execute(text(query))}
    assert set(found) == {"uq_jobs_model_id_leased", "uq_models_owner_id_name"}
    for state in ("validating", "running", "pausing", "cancelling"):
        assert state in found["uq_jobs_model_id_leased"]


def test_the_head_that_is_read_as_text_is_the_head_that_alembic_sees() -> None:
    scripts = ScriptDirectory(str(ROOT / "migrations"))
    assert migrate.head() == scripts.get_current_head()
    single = migrate._REVISION.findall(
        "revision = '0002'\ndown_revision = '0001'\n"
    )  # as the template writes
    assert single == [("revision", "0002"), ("down_revision", "0001")]


def test_an_empty_database_names_the_command(empty: Database) -> None:
    with pytest.raises(SchemaOutdated, match="alembic upgrade head"):
        migrate.require_current(empty)


def test_a_newer_schema_is_refused_too(empty: Database) -> None:
    migrate.upgrade(empty)
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
    assert migrate.current(empty) is None


def _break_at(table: str, original: object) -> object:
    def create(name: str, *columns: object, **options: object) -> object:
        if name == table:
            raise RuntimeError("power cut")
        return original(name, *columns, **options)  # type: ignore[operator]

    return create


def test_starts_at_the_same_moment_migrate_once(empty: Database) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            upgrade_in_a_process(empty.url)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    migrate.require_current(empty)


def upgrade_in_a_process(url: str) -> None:
    code = (
        "import sys; from core.db import migrate; from core.db.session import Database;"
        "migrate.upgrade(Database(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, url], cwd=ROOT, check=True, timeout=60)


def test_the_command_line_upgrades_and_makes_the_store(tmp_path: Path) -> None:
    environment = {**os.environ, "PERENNIAL_DATA_DIR": str(tmp_path / "data")}
    alembic = Path(sys.executable).with_name("alembic")
    for command in (["upgrade", "head"], ["check"], ["downgrade", "base"]):
        done = subprocess.run(
            [alembic, *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        if command[0] == "upgrade":
            migrate.require_current(Database(f"sqlite:///{tmp_path / 'data' / 'perennial.db'}"))
            assert (tmp_path / "data" / "store").is_dir()
