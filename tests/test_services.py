"""The service fixtures themselves: what they give, and what happens where a service is missing."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from fault_proxy import FaultProxy
from redis.exceptions import ConnectionError as RedisDown
from sqlalchemy import inspect

from core.database.session import Database
from core.database.tables import DatabaseTable
from core.errors import Unavailable
from core.storage import open_object_store
from core.storage.address import S3Address
from core.storage.s3 import S3Store, S3TimeLimits

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).relative_to(ROOT)
CLOSED = "postgresql+psycopg://postgres@127.0.0.1:1/postgres"


def test_a_postgresql_database_is_fresh_and_empty(postgres_url: str) -> None:
    db = Database(postgres_url)
    assert db.dialect == "postgresql"
    assert inspect(db.engine).get_table_names() == []
    db.close()


@pytest.mark.both_databases
def test_a_database_has_all_tables(database: Database) -> None:
    assert set(inspect(database.engine).get_table_names()) >= set(DatabaseTable.metadata.tables)


def test_redis_answers(redis_url: str) -> None:
    assert redis.Redis.from_url(redis_url, socket_timeout=30).ping()


def test_a_redis_of_ones_own_can_be_stopped_and_started(redis_server: Any) -> None:
    client = redis.Redis.from_url(redis_server.url, socket_timeout=30, retry=None)
    redis_server.stop()
    with pytest.raises(RedisDown):
        client.ping()
    redis_server.start()
    assert client.ping()


def test_the_s3_server_has_its_bucket(s3: Any, tmp_path: Path) -> None:
    open_object_store(s3.settings(tmp_path)).check_store_usable()


@pytest.mark.parametrize("kind", ["refused", "silent", "overloaded", "cut"])
def test_a_relay_fails_as_it_is_told_and_heals(s3: Any, kind: Any) -> None:
    relay = FaultProxy(s3.port)
    address = replace(S3Address.parse(s3.store_url), endpoint=f"127.0.0.1:{relay.port}")
    store = S3Store(address, s3.access_key, s3.secret_key, limits=S3TimeLimits(1.0, 1.0, retries=0))
    relay.fault(kind, [10])
    with pytest.raises(Unavailable):
        store.stat("a/x")
    relay.heal()
    store = S3Store(address, s3.access_key, s3.secret_key)
    assert store.stat("a/x") is None
    relay.close()


def _run_test(test: str, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    base = {
        name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")
    }
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *options,
            f"{FILE}::{test}",
        ],
        cwd=ROOT,
        env=base | {"PERENNIAL_TEST_DATABASE_URL": CLOSED} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), marks=pytest.mark.slow, id="alone"),
        pytest.param(("-n", "2"), marks=pytest.mark.campaign, id="by workers"),
    ],
)
def test_without_a_service_its_tests_are_left_out_with_a_line_that_says_so(
    options: tuple[str, ...],
) -> None:
    done = _run_test("test_a_database_has_all_tables", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "left out: 1 tests that need postgresql" in done.stdout
    assert "docker compose -f tests/services/docker-compose.yml up -d" in done.stdout


@pytest.mark.slow
def test_in_ci_a_missing_service_fails_its_tests_with_a_clear_sentence() -> None:
    done = _run_test("test_a_database_has_all_tables", CI="true")
    assert done.returncode == 1
    assert "PostgreSQL does not answer" in done.stdout
