"""Migration 0020 on rows from before it: nothing else changes, and webhooks and their outbox find room."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect, select

from core.db import deliveries, migrate
from core.db.session import Database
from core.db.tables import Delivery, Model, Webhook
from core.protocol.webhook import EVENTS
from tests.older_data import DIALECTS, written_before
from tests.test_upgrade_of_job_kinds import rows

BEFORE_IT = "0019"
OLDER = ("models", "tasks", "jobs", "versions", "owners", "keys", "events")


@pytest.fixture(params=DIALECTS)
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """What older code wrote, with the schema from before."""
    with written_before(request.param, tmp_path, BEFORE_IT) as db:
        yield db


def test_older_rows_are_as_they_were_both_ways_and_their_models_can_be_told_of(before: Database) -> None:
    older = {table: rows(before, table) for table in OLDER}
    migrate.upgrade(before, "0020")
    assert {table: rows(before, table) for table in OLDER} == older
    with before.write() as session:
        model = session.scalars(select(Model)).first()
        assert model is not None
        values = {"owner_id": model.owner_id, "url": "https://example.org/", "events": list(EVENTS)}
        session.add(Webhook(id="whk_1", secret_sha256="0" * 64, model_id=model.id, created_at=0.5, **values))
        session.flush()
        deliveries.tell(session, "task.data_deleted", model.owner_id, model.id, {"task": 1}, 1.5)
    with before.read() as session:
        (row,) = session.scalars(select(Delivery)).all()
        assert (row.webhook_id, row.state, row.next_at) == ("whk_1", "pending", 1.5)
        assert session.get_one(Webhook, "whk_1").due_at == 1.5
    migrate.downgrade(before, BEFORE_IT)
    assert not {"webhooks", "deliveries"} & set(inspect(before.engine).get_table_names())
    assert {table: rows(before, table) for table in OLDER} == older
