"""SQL statements of a submission over HTTP, from the key of the request to its last event."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from core.database.session import Database
from core.keys import keys
from core.settings import Settings
from tests.api.conftest import SETTINGS, Make, create_model, serve_api

TASKS = "/v1/models/birds/tasks"
MOST = {"sqlite": 20, "postgresql": 18}
"""Most statements of a submission; on SQLite, three of them begin a transaction."""


@pytest.fixture
def on_database(
    database: Database, tmp_path: Path, prepare_folder: Callable[[Path], Path]
) -> Settings:
    """Settings of an API over a database of either kind."""
    settings = {"data_dir": prepare_folder(tmp_path), "database_url": database.url}
    keys.ensure_admin_key_and_write_file(database, tmp_path)
    return SETTINGS.model_copy(update=settings)


@pytest.mark.both_databases
def test_a_submit_sends_few_statements(
    database: Database, on_database: Settings, archive: Make
) -> None:
    statements: list[str] = []

    def record_statement(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    with serve_api(on_database) as client:
        create_model(client)
        key = {"Idempotency-Key": "first"}
        assert client.post(TASKS, content=archive(a=2, b=2), headers=key).status_code == 202
        event.listen(Engine, "before_cursor_execute", record_statement)
        try:
            key = {"Idempotency-Key": "second"}
            answer = client.post(TASKS, content=archive(a=3, b=3), headers=key)
        finally:
            event.remove(Engine, "before_cursor_execute", record_statement)
    assert answer.status_code == 202, answer.text
    assert answer.json()["task"]["number"] == 2
    assert 0 < len(statements) <= MOST[database.dialect], statements
