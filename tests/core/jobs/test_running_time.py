"""The time that a job has run, by its events: attempts together, without pauses, from the last end
on.
"""

from typing import Any

import pytest

from core.database.tables import StoredJobEvent
from core.execution import progress

DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("states", "now", "seconds"),
    [
        ([("queued", 0)], 100, 0),
        ([("queued", 0), ("validating", 10), ("running", 15)], 40, 30),
        (
            [("queued", 0), ("running", 10), ("pausing", 20), ("paused", 25), ("queued", 500)],
            600,
            15,
        ),
        ([("running", 0), ("queued", 30), ("running", 40)], 50, 40),
        ([("running", 0), ("failed", 70), ("queued", 80), ("running", 90)], 95, 5),
        ([("running", 0), ("cancelling", 5), ("cancelled", 6)], 100, 0),
        ([("running", 0), ("queued", 30), ("running", 40)], 400 * DAY_S, 30),
        (
            [("running", 500 * DAY_S), ("queued", 100 * DAY_S), ("running", 100 * DAY_S + 5)],
            100 * DAY_S + 9,
            4,
        ),
    ],
    ids=[
        "waits",
        "decodes and learns",
        "was paused",
        "second attempt",
        "was retried",
        "cancelled",
        "the clock was put forward",
        "the clock was put back",
    ],
)
def test_time_counts_where_a_worker_has_the_job(
    desk: Any, states: list[tuple[str, float]], now: float, seconds: float
) -> None:
    job = desk.submit(desk.model())
    with desk.db.write() as session:
        session.query(StoredJobEvent).delete()
        for state, at in states:
            session.add(
                StoredJobEvent(job_id=job, type="state", data={"state": state}, at=float(at))
            )
    with desk.db.read() as session:
        assert (
            progress.count_seconds_job_was_claimed(session, job, float(now), 7 * DAY_S) == seconds
        )
