"""Migration 0012 on rows from before it: whole manifests, and cells that know nothing of each other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update

from core.db import migrate
from core.db.session import Database
from core.db.tables import Version
from core.protocol.manifest import Manifest
from core.requests.actor import Actor
from core.requests.metrics import model_metrics
from core.requests.versions import get_version
from core.settings import Settings
from core.store.folder import FolderStore
from tests.core.line.test_metrics_from_all_cells import History, slowly
from tests.core.work.conftest import Desk
from tests.older_data import DIALECTS, empty

ADMIN = Actor("", None, "admin")
SEEDS = range(12)


@pytest.fixture(params=DIALECTS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A database of this schema."""
    with empty(request.param, tmp_path) as db:
        migrate.upgrade(db)
        yield Desk(db, FolderStore(tmp_path / "store"), Settings(data_dir=tmp_path / "data"), tmp_path)


def rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    with db.read() as session:
        return [tuple(row) for row in session.execute(text(query))]


def manifests(db: Database) -> dict[str, str]:
    """Version id → its manifest as text: the order of its keys counts."""
    return dict(rows(db, "SELECT id, CAST(manifest AS TEXT) FROM versions"))  # type: ignore[arg-type]


def written_before(histories: list[History], db: Database) -> None:
    """Rows as 0011 had them: whole manifests with the figures of that time, and cells without what was known before."""
    migrate.downgrade(db, "0011")
    with db.write() as session:
        for history in histories:
            for number, manifest in history.manifests.items():
                for later in ("baseline_ncm", "baseline_lda"):
                    manifest.pop(later, None)
                of = (Version.model_id == history.model, Version.number == number)
                session.execute(update(Version).where(*of).values(manifest=Manifest.from_json(manifest)))


def test_versions_from_before_have_the_same_metrics_and_manifests(desk: Desk) -> None:
    histories = [History(desk, seed) for seed in SEEDS]
    written_before(histories, desk.db)
    before = manifests(desk.db)
    migrate.upgrade(desk.db)
    for history in histories:
        for version, manifest in history.manifests.items():
            expected = slowly(desk.db, history.model, version, history.manifests)
            assert model_metrics(desk.db, ADMIN, history.model, version=str(version)) == expected
            if version:
                told = get_version(desk.db, ADMIN, history.model, str(version))["manifest"]
                assert json.dumps(told) == json.dumps(manifest)
    assert before != manifests(desk.db)


def test_the_next_version_goes_on_from_what_the_old_ones_knew(desk: Desk) -> None:
    history = History(desk, 3)
    written_before([history], desk.db)
    migrate.upgrade(desk.db)
    for _ in range(3):
        history._publish()
    newest = max(history.manifests)
    expected = slowly(desk.db, history.model, newest, history.manifests)
    assert model_metrics(desk.db, ADMIN, history.model, version=str(newest)) == expected


def test_down_and_up_again_is_as_before(desk: Desk) -> None:
    histories = [History(desk, seed) for seed in SEEDS]
    written_before(histories, desk.db)
    before = manifests(desk.db)
    migrate.upgrade(desk.db)
    cells = "SELECT model_id, version, task, best FROM results ORDER BY 1, 2, 3"
    measured = "SELECT model_id, version, name, task, value, CAST(detail AS TEXT) FROM measurements ORDER BY 1, 2, 3, 4"
    after = [rows(desk.db, query) for query in (cells, measured)]
    migrate.downgrade(desk.db, "0011")
    assert manifests(desk.db) == before
    migrate.upgrade(desk.db)
    assert [rows(desk.db, query) for query in (cells, measured)] == after
