"""Data of the last commit with the former migrations is brought over; older data is refused.

`data/make_head_before.py` says what the data is and how it was made.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import alembic.config
import postgresql
import pytest
from sqlalchemy.engine import make_url

from core.database import copies, migrate
from core.database.session import Database
from core.errors import ProcessCannotStart, SchemaOutdated
from core.settings import Settings
from tests.migrations import databases
from tests.migrations.databases import (
    Schema,
    read_rows,
    read_schema,
    read_tables,
    set_revision,
)
from tools.commands import migrate as migrate_command
from tools.service import link_shared_test_catalogue
from worker import setup

ROOT = Path(__file__).parents[2]
FILLED = {
    "alias_moves", "aliases", "audit", "deliveries", "events", "jobs", "keys", "measurements",
    "models", "owner_events", "owners", "parts", "predict_keys", "results", "tasks",
    "upload_chunks", "uploads", "versions", "webhooks", "workers",
}  # fmt: skip
"""Tables of which the former data has rows."""


@pytest.mark.slow
def test_every_row_stays_as_it_is_and_the_schema_is_that_of_a_new_database(
    former: Database, empty: Database
) -> None:
    assert migrate.read_schema_revision(former) == migrate.FORMER[-1] == "0035"
    before = read_tables(former)
    assert {table for table, rows in before.items() if rows} >= FILLED
    migrate.upgrade_schema(former)
    migrate.require_current_schema(former)
    for model in before["models"]:
        model["problem"] = None  # classification, see migration 0002
        model["selection"] = False  # no image is set aside, see migration 0004
    for task in before["tasks"]:
        task |= {"selection_sha256": None, "n_selection": None}
    for job in before["jobs"]:
        job |= {"choose": None, "chosen_trial": None, "choose_until": None, "trial_budget_s": None}
    for version in before["versions"]:
        version["class_numbers"] = None  # no edit gave classes other numbers, see migration 0005
    # Migrations 0003 and 0004 add tables that former data has no rows of.
    added = ("class_aliases", "edited_parts", "edits", "trials", "trial_files")
    assert read_tables(former) == {**before, **{table: [] for table in added}}
    migrate.upgrade_schema(empty)
    assert _remove_casts(read_schema(former)) == _remove_casts(read_schema(empty))
    assert read_rows(former, "SELECT * FROM alembic_version") == [
        (migrate.get_newest_schema_revision(),)
    ]


def _remove_casts(schema: Schema) -> Schema:
    """Leave out casts and parentheses, which PostgreSQL writes otherwise after dump and restore."""
    noise = re.compile(r"::(character varying|text)(\[\])?|[()]")
    return {key: [noise.sub("", text) for text in texts] for key, texts in schema.items()}


@pytest.mark.slow
def test_the_former_database_is_copied_first(former: Database, tmp_path: Path) -> None:
    before = read_tables(former)
    copy = migrate.upgrade_schema(former, backups=tmp_path / "copies")
    assert copy is not None and copy.stat().st_mode & 0o777 == 0o600
    with databases.open_database(_open_copy(copy, tmp_path)) as db:
        assert migrate.read_schema_revision(db) == "0035"
        assert read_tables(db) == before
    assert migrate.upgrade_schema(former, backups=tmp_path / "copies") is None, "nothing more to do"
    assert [path.name for path in (tmp_path / "copies").iterdir()] == [copy.name]


def _open_copy(copy: Path, folder: Path) -> str:
    """Restore a copy as docs/operations.md says, and return the URL."""
    if copy.suffix == ".db":
        shutil.copy(copy, folder / "perennial.db")
        return databases.make_sqlite_url(folder)
    url = postgresql.create_database()
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    subprocess.run(["pg_restore", "--no-owner", "--dbname", plain, str(copy)], check=True)
    return url


@databases.ON_SQLITE
def test_an_empty_database_is_not_copied(empty: Database, tmp_path: Path) -> None:
    assert migrate.upgrade_schema(empty, backups=tmp_path / "copies") is None
    assert not (tmp_path / "copies").exists()


def test_a_copy_that_fails_leaves_the_database_as_it_was(
    former: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without pg_dump
    (tmp_path / "copies").write_text("a file, where SQLite's copy would need a folder")
    folder = tmp_path / ("copies" if former.dialect == "sqlite" else "others")
    with pytest.raises(
        ProcessCannotStart, match=r"cannot be copied to .*perennial migrate --no-backup"
    ):
        migrate.upgrade_schema(former, backups=folder)
    assert migrate.read_schema_revision(former) == "0035"
    assert not list(tmp_path.glob("others/*"))
    migrate.upgrade_schema(former)
    migrate.require_current_schema(former)


@databases.ON_SQLITE
def test_copies_before_earlier_changes_are_bounded(former: Database, tmp_path: Path) -> None:
    end = "db" if former.dialect == "sqlite" else "dump"
    for age, name in enumerate(("before-0007", "before-0006", "before-0005"), start=1):
        (tmp_path / f"{name}.{end}").write_text("an earlier copy")
        os.utime(tmp_path / f"{name}.{end}", (1000 - age, 1000 - age))
    (tmp_path / "perennial.db").touch()
    copy = migrate.upgrade_schema(former, backups=tmp_path)
    assert copy is not None and copy.name == f"before-{migrate.get_newest_schema_revision()}.{end}"
    kept = {path.name for path in tmp_path.glob(f"before-*.{end}")}
    assert kept == {copy.name, f"before-0007.{end}", f"before-0006.{end}"}
    assert (tmp_path / "perennial.db").exists()


def test_a_dump_that_fails_says_why(former: Database, tmp_path: Path) -> None:
    if former.dialect == "postgresql":
        url = make_url(former.url).set(database="perennial_test_nobody")
        with pytest.raises(
            ProcessCannotStart, match='database "perennial_test_nobody" does not exist'
        ):
            copies.copy_database_before_upgrade(url, tmp_path / "copies", "x")
    else:
        url = make_url("sqlite:////nowhere/perennial.db")
        with pytest.raises(ProcessCannotStart, match="unable to open database file"):
            copies.copy_database_before_upgrade(url, tmp_path / "copies", "x")
    assert not list((tmp_path / "copies").iterdir())


def test_the_password_is_not_an_argument_of_pg_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pg_dump").write_text(
        '#!/bin/sh\necho "$@" > "$(dirname "$0")/arguments"\n'
        'echo "$PGPASSWORD" > "$(dirname "$0")/password"\n'
    )
    (tmp_path / "pg_dump").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    url = make_url("postgresql+psycopg://me:s%2Fcret@db:5433/perennial?sslmode=require")
    copies.copy_database_before_upgrade(url, tmp_path / "copies", "x")
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[-1] == "postgresql://me@db:5433/perennial?sslmode=require"
    assert "cret" not in str(arguments)
    assert (tmp_path / "password").read_text() == "s/cret\n"


@databases.parametrize_pairs("revision", ("0001", "0012", "0034"), ("0034",))
@pytest.mark.parametrize("check", [migrate.require_current_schema, migrate.upgrade_schema])
def test_older_data_is_refused_with_the_commit_to_go_through(
    former: Database, check: Callable[[Database], object], revision: str
) -> None:
    set_revision(former, revision)
    with pytest.raises(SchemaOutdated) as error:
        check(former)
    assert error.value.detail == (
        f"The database schema {revision} is older than commit bbaca810, and this code upgrades "
        "only the schema of that commit (0035) or a later one. Check out bbaca810, run its "
        "`perennial migrate`, and then this one's."
    )
    assert migrate.read_schema_revision(former) == revision


@databases.ON_SQLITE
def test_a_process_names_the_command_that_brings_the_former_data_over(former: Database) -> None:
    with pytest.raises(SchemaOutdated, match=r"is 0035, .* run `perennial migrate` first"):
        migrate.require_current_schema(former)


@pytest.fixture
def settings(former: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a service with the former database and an empty data directory."""
    monkeypatch.setenv("PERENNIAL_DATABASE_URL", former.url)
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path / "data"))
    umask = os.umask(0o077)
    monkeypatch.setattr(os, "umask", lambda _mask: umask)  # of the process of the tests
    return Settings()


@databases.parametrize_pairs("is_copied", (True, False), (True,))
def test_the_command_copies_and_brings_over(
    former: Database, settings: Settings, is_copied: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [] if is_copied else ["--no-backup"]
    migrate_command.main(arguments, standalone_mode=False)
    migrate.require_current_schema(former)
    found = [path for path in settings.data_dir.iterdir() if path.name.startswith("before-")]
    assert len(found) == is_copied
    output = capsys.readouterr().out
    assert ("was copied to" in output) == is_copied
    assert f"The tables are at revision {migrate.get_newest_schema_revision()}." in output


@databases.ON_SQLITE
def test_alembic_copies_and_brings_over(
    former: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logging.config.fileConfig", lambda *_, **__: None)
    alembic.config.main(["-c", str(ROOT / "alembic.ini"), "upgrade", "head"])
    migrate.require_current_schema(former)
    assert list(settings.data_dir.glob(f"before-{migrate.get_newest_schema_revision()}.*"))


@databases.ON_SQLITE
def test_alembic_refuses_older_data_in_a_sentence(
    former: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logging.config.fileConfig", lambda *_, **__: None)
    set_revision(former, "0007")
    with pytest.raises(SystemExit, match="Check out bbaca810"):
        alembic.config.main(["-c", str(ROOT / "alembic.ini"), "upgrade", "head"])


@databases.ON_SQLITE
def test_a_start_of_the_embedded_size_copies_and_brings_over(
    former: Database, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.data_dir.mkdir(exist_ok=True)
    link_shared_test_catalogue(settings.data_dir)
    setup.prepare_service_data(settings)
    migrate.require_current_schema(former)
    assert list(settings.data_dir.glob(f"before-{migrate.get_newest_schema_revision()}.*"))
    assert "was copied to" in capsys.readouterr().err
