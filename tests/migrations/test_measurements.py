"""Migrations 0012 and 0023 on figures from before them: whole manifests, and a row for
each task.
"""

import json
from typing import Any

import pytest
from sqlalchemy import update

from core.db import migrate
from core.db.measurements import EACH_TASK
from core.db.session import Database
from core.db.tables import Version
from core.protocol.manifest import Manifest
from core.requests.metrics import model_metrics
from core.requests.versions import get_version
from tests.core.line.test_metrics_from_all_cells import ADMIN, History, slowly
from tests.core.work.conftest import Desk
from tests.migrations.databases import read_rows

MANIFESTS = "SELECT id, CAST(manifest AS TEXT) FROM versions ORDER BY id"
"""As text: the order of keys counts."""
CELLS = "SELECT model_id, version, task, best FROM results ORDER BY 1, 2, 3"
MEASURED = (
    "SELECT model_id, version, name, task, value, CAST(detail AS TEXT) FROM measurements "
    "ORDER BY 1, 2, 3, 4"
)
BY_TASK = (
    "SELECT model_id, version, name, task, value FROM measurements WHERE task <> 0 ORDER BY "
    "1, 2, 3, 4"
)


SEEDS = (0, 3, 5)
"""A history of each scenario, of six, nine and four versions."""


@pytest.fixture
def histories(desk: Desk) -> list[History]:
    return [History(desk, seed) for seed in SEEDS]


def read_answers(db: Database, histories: list[History]) -> list[Any]:
    """Read the metrics, which are those of all cells, and the manifest of every version."""
    found: list[Any] = []
    for history in histories:
        for number in history.manifests:
            metrics = model_metrics(db, ADMIN, history.model, version=str(number))
            assert metrics == slowly(db, history.model, number, history.manifests)
            found += [metrics, get_version(db, ADMIN, history.model, str(number))]
    return found


def publish_next(histories: list[History]) -> None:
    for history in histories:
        history._publish()


@pytest.mark.slow
def test_figures_in_rows_by_task_are_told_as_they_were(
    desk: Desk, histories: list[History]
) -> None:
    db, before = desk.db, read_answers(desk.db, histories)
    migrate.downgrade(db, "0022")
    rows = read_rows(db, BY_TASK)
    tasks = {task for _, _, name, task, _ in rows if name != "adp"}
    assert len(tasks) > 3 and EACH_TASK not in tasks, "a row for each task"
    migrate.upgrade(db)
    assert {task for _, _, name, task, _ in read_rows(db, BY_TASK) if name != "adp"} == {EACH_TASK}
    assert read_answers(db, histories) == before
    migrate.downgrade(db, "0022")
    assert read_rows(db, BY_TASK) == rows
    migrate.upgrade(db)
    publish_next(histories)
    read_answers(db, histories)


@pytest.mark.slow
def test_figures_in_whole_manifests_are_told_as_they_were(
    desk: Desk, histories: list[History]
) -> None:
    db = desk.db
    migrate.downgrade(db, "0011")
    _write_whole_manifests(db, histories)
    whole = read_rows(db, MANIFESTS)
    migrate.upgrade(db)
    assert read_rows(db, MANIFESTS) != whole
    read_answers(db, histories)
    for history in histories:
        for number, manifest in list(history.manifests.items())[1:]:
            told = get_version(db, ADMIN, history.model, str(number))["manifest"]
            assert json.dumps(told) == json.dumps(manifest)
    after = [read_rows(db, query) for query in (CELLS, MEASURED)]
    migrate.downgrade(db, "0011")
    assert read_rows(db, MANIFESTS) == whole
    migrate.upgrade(db)
    assert [read_rows(db, query) for query in (CELLS, MEASURED)] == after
    publish_next(histories)  # goes on from what the old versions knew
    read_answers(db, histories)


def _write_whole_manifests(db: Database, histories: list[History]) -> None:
    """Write manifests with the figures of revision 0011."""
    with db.write() as session:
        for history in histories:
            for number, manifest in history.manifests.items():
                for later in ("baseline_ncm", "baseline_lda", "baseline_later", "calibration"):
                    manifest.pop(later, None)
                of = (Version.model_id == history.model, Version.number == number)
                session.execute(
                    update(Version).where(*of).values(manifest=Manifest.from_json(manifest))
                )
