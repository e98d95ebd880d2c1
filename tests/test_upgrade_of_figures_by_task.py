"""Migration 0023 on figures from before it: a row for each task becomes a part of one row, and goes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from core.db import migrate
from core.db.measurements import EACH_TASK
from core.requests.metrics import model_metrics
from core.requests.versions import get_version
from core.settings import Settings
from core.store.folder import FolderStore
from tests.core.line.test_metrics_from_all_cells import ADMIN, History, slowly
from tests.core.work.conftest import Desk
from tests.older_data import DIALECTS, empty

SEEDS = range(6)
BY_TASK = (
    "SELECT model_id, version, name, task, value, CAST(detail AS TEXT) FROM measurements"
    " WHERE task <> 0 ORDER BY 1, 2, 3, 4"
)


@pytest.fixture(params=DIALECTS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A database of this schema."""
    with empty(request.param, tmp_path) as db:
        migrate.upgrade(db)
        yield Desk(db, FolderStore(tmp_path / "store"), Settings(data_dir=tmp_path / "data"), tmp_path)


def by_task(desk: Desk) -> list[tuple[object, ...]]:
    with desk.db.read() as session:
        return [tuple(row) for row in session.execute(text(BY_TASK))]


def answers(desk: Desk, histories: list[History]) -> list[object]:
    """Metrics and manifest of every version; the metrics are those of all cells."""
    found: list[object] = []
    for history in histories:
        for number in history.manifests:
            metrics = model_metrics(desk.db, ADMIN, history.model, version=str(number))
            assert metrics == slowly(desk.db, history.model, number, history.manifests)
            found += [metrics, get_version(desk.db, ADMIN, history.model, str(number))]
    return found


def test_figures_by_task_from_before_are_told_as_they_were(desk: Desk) -> None:
    histories = [History(desk, seed) for seed in SEEDS]
    before = answers(desk, histories)
    migrate.downgrade(desk.db, "0022")
    rows = by_task(desk)
    tasks = {task for _, _, name, task, _, _ in rows if name != "adp"}
    assert len(tasks) > 3 and EACH_TASK not in tasks, "a row for each task"
    migrate.upgrade(desk.db)
    assert {task for _, _, name, task, _, _ in by_task(desk) if name != "adp"} == {EACH_TASK}
    assert answers(desk, histories) == before
    migrate.downgrade(desk.db, "0022")
    assert [row[:5] for row in by_task(desk)] == [row[:5] for row in rows]
    migrate.upgrade(desk.db)
    for history in histories:
        history._publish()
    answers(desk, histories)
