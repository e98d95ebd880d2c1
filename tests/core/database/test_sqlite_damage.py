"""Detection of damaged tables in an SQLite file, by a full check or by one row of each."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from core.database import sqlite_damage
from core.database.session import Database
from tests.damaged_database import damage_head, damage_table


@pytest.fixture
def file(tmp_path: Path, _sqlite_template: bytes) -> Path:
    path = tmp_path / "perennial.db"
    path.write_bytes(_sqlite_template)
    return path


def test_a_sound_file_has_no_findings(file: Path) -> None:
    assert (
        sqlite_damage.find_sqlite_tables_with_unreadable_start(file)
        == sqlite_damage.find_sqlite_damage_by_quick_check(file)
        == []
    )


def test_a_file_that_is_not_there_yet_is_sound(tmp_path: Path) -> None:
    assert sqlite_damage.find_sqlite_tables_with_unreadable_start(tmp_path / "none") == []
    (tmp_path / "empty").touch()
    assert sqlite_damage.find_sqlite_tables_with_unreadable_start(tmp_path / "empty") == []


@pytest.mark.parametrize(
    "look",
    [
        sqlite_damage.find_sqlite_tables_with_unreadable_start,
        sqlite_damage.find_sqlite_damage_by_quick_check,
    ],
)
def test_a_file_that_is_no_database_is_told(file: Path, look: Callable[[Path], list[str]]) -> None:
    damage_head(file)
    assert look(file) == ["file is not a database"]


@pytest.mark.parametrize("table", ["jobs", "owners"])
def test_a_damaged_page_is_told_by_its_table(file: Path, table: str) -> None:
    damage_table(file, table)
    assert any(
        f"table {table}" in line
        for line in sqlite_damage.find_sqlite_tables_with_unreadable_start(file)
    )
    found = sqlite_damage.find_sqlite_damage_by_quick_check(file)
    assert any(f"table {table}" in line for line in found) and len(found) <= sqlite_damage.MOST
    assert all(line.isprintable() for line in found)


def test_a_damaged_index_is_told_by_its_table(file: Path) -> None:
    damage_table(file, "ix_audit_at_id")
    assert sqlite_damage.find_sqlite_tables_with_unreadable_start(file) == []
    assert [
        line.partition(":")[0] for line in sqlite_damage.find_sqlite_damage_by_quick_check(file)
    ] == ["table audit"]


def test_a_file_that_is_cut_off_is_told(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    assert sqlite_damage.find_sqlite_damage_by_quick_check(file)


def test_looking_changes_nothing_and_waits_for_no_writer(file: Path, tmp_path: Path) -> None:
    before = shutil.copy(file, tmp_path / "copy")
    db = Database(f"sqlite:///{file}")
    with db.write() as session:
        session.connection()
        assert sqlite_damage.find_sqlite_damage_by_quick_check(file) == []
    db.close()
    with closing(sqlite3.connect(before)) as one, closing(sqlite3.connect(file)) as other:
        assert list(one.iterdump()) == list(other.iterdump())
