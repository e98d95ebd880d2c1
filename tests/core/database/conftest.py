"""One owner, model, task and job for the tests of `core.database`."""

from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.database.session import Database
from core.database.tables import AccessKey, Owner, StoredJobEvent
from tests.core.rows import make_job_row, make_model_row, make_task_row


def _add_rows(session: Session) -> None:
    job = make_job_row("job_1", "mdl_1", "own_1", "tsk_1", recipe={"epochs": 3}, created_at=1.5)
    job.progress = {"phase": "train", "step": 2}
    key = AccessKey(
        id="key_1", owner_id="own_1", name="k", prefix="abc", hash="h", scope="read", created_at=1.0
    )
    for row in (
        Owner(id="own_1", name="team", created_at=1.0),
        make_model_row("mdl_1", "own_1", architecture={}, image={}),
        make_task_row("tsk_1", "mdl_1"),
        job,
        key,
        *(
            StoredJobEvent(
                job_id="job_1", type="state" if n % 2 else "log", data={"n": n}, at=float(n)
            )
            for n in range(5)
        ),
    ):
        session.add(row)
        session.flush()


@pytest.fixture
def filled(database: Database) -> Any:
    with database.write() as session:
        _add_rows(session)
    return database
