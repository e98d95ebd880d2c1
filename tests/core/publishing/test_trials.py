"""The verdict on a trial leaves nothing behind."""

from typing import Any

import pytest

from core.database.tables import (
    Model,
    StoredJobEvent,
    Task,
    Version,
    VersionMeasurement,
    VersionPart,
    VersionTaskResult,
)
from core.publishing.trials import judge_trial_version_without_publishing

PARTS = {"backbone.1": "b1", "head": "h1"}
CELLS = [("base", 1, 1, 10), ("new", 1, 9, 10)]
TABLES = (StoredJobEvent, VersionMeasurement, VersionPart, VersionTaskResult, Version)


@pytest.mark.both_databases
def test_a_trial_is_judged_without_a_version(desk: Any) -> None:
    model = desk.model(gate={"min_acc": 0.95})
    job_id, claim = desk.begin(model)
    result = desk.result(PARTS, CELLS)
    before = [len(desk.all(table)) for table in TABLES]
    for _ in range(2):  # the second verdict is the same
        figures = judge_trial_version_without_publishing(
            desk.db, desk.store, claim, result, desk.folder / "cache"
        )
        assert figures.accuracy == {"1": [9, 10]}
        assert (figures.acc, figures.images, figures.bytes) == (0.9, 0, 4)
    assert [len(desk.all(table)) for table in TABLES] == before
    assert desk.state(job_id) == "running"
    (row,) = desk.all(Model)
    assert (row.next_version, row.head) == (1, 0)
    (task,) = desk.all(Task)
    assert task.standing is None
