"""Databases of a PostgreSQL server that runs already: fresh ones for tests, dropped afterwards."""

import os
import secrets

import processes
import psycopg
from sqlalchemy.engine import URL, make_url

DEFAULT_URL = "postgresql+psycopg://postgres@127.0.0.1:5432/postgres"
ADVICE = (
    "Start PostgreSQL 15 or later (`docker compose -f tests/services/docker-compose.yml up -d`), or set"
    " PERENNIAL_TEST_DATABASE_URL to a server whose user may create databases."
)


def server_url() -> URL:
    """The server to make databases on: PERENNIAL_TEST_DATABASE_URL, else the local one."""
    return make_url(os.environ.get("PERENNIAL_TEST_DATABASE_URL", DEFAULT_URL))


def _connect() -> "psycopg.Connection[tuple[object, ...]]":
    url = server_url().set(drivername="postgresql")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True, connect_timeout=2)


def missing() -> str | None:
    """Say why the server cannot be used, or return None."""
    try:
        with _connect():
            return None
    except psycopg.Error as error:
        return str(error).strip().splitlines()[0]


def create(template: str = "template1") -> str:
    """Make a database and return its SQLAlchemy URL (with the password, if there is one)."""
    name = f"perennial_test_{secrets.token_hex(6)}"
    try:
        with _connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
    except psycopg.OperationalError as error:
        raise processes.ServiceMissing(f"PostgreSQL does not answer: {error}\n{ADVICE}") from error
    return server_url().set(database=name).render_as_string(hide_password=False)


def drop(url: str) -> None:
    """Drop a database, whoever is still connected to it."""
    with _connect() as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)'.encode())


def name_of(url: str) -> str:
    """The name of the database that a URL of `create` leads to."""
    return make_url(url).database or ""
