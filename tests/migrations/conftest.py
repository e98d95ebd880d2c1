"""Databases without tables and of the former code, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.database.session import Database
from tests.migrations import databases


@pytest.fixture(
    scope="session",
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql"))],
)
def dialect(request: pytest.FixtureRequest) -> str:
    """The database that a test runs on."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def _drop_unused() -> Iterator[None]:
    """Drop the databases at the end."""
    yield
    databases.drop_unused()


@pytest.fixture
def empty(dialect: str, tmp_path: Path) -> Iterator[Database]:
    """A database without tables."""
    with databases.open_database(databases.create_database(dialect, tmp_path)) as db:
        yield db


@pytest.fixture
def former(dialect: str, tmp_path: Path) -> Iterator[Database]:
    """A database as the last commit with the former migrations left it."""
    with databases.open_database(databases.restore_former(dialect, tmp_path / "former")) as db:
        yield db
