"""One owner, model, task and job for the tests of `core.db`."""

from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Event, Job, Key, Model, Owner, Task


def _rows(session: Session) -> None:
    session.add(Owner(id="own_1", name="team", created_at=1.0))
    session.flush()
    session.add(
        Model(
            id="mdl_1", owner_id="own_1", name="birds", scenario="class", architecture={}, image={}, base="random",
            recipe={}, gate={}, keep_training_data=False, held_out="keep", warnings=[], created_at=1.0,
        )
    )  # fmt: skip
    session.flush()
    session.add(
        Task(
            id="tsk_1", model_id="mdl_1", number=1, sha256="0" * 64, bytes=3, media_type="zip", classes={},
            report={}, warnings=[], created_at=1.0,
        )
    )  # fmt: skip
    session.flush()
    session.add(
        Job(
            id="job_1", model_id="mdl_1", owner_id="own_1", task_id="tsk_1", task_number=1, place=1, state="queued",
            recipe_override={}, recipe={"epochs": 3}, progress={"phase": "train", "step": 2}, created_at=1.5,
        )
    )  # fmt: skip
    session.add(
        Key(id="key_1", owner_id="own_1", name="k", prefix="abc", hash="h", scope="read", created_at=1.0)
    )
    session.flush()
    for number in range(5):
        kind = "state" if number % 2 else "log"
        session.add(Event(job_id="job_1", type=kind, data={"n": number}, at=float(number)))
        session.flush()


@pytest.fixture
def filled(database: Database) -> Any:
    with database.write() as session:
        _rows(session)
    return database
