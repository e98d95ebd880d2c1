"""One worker process: what goes on beside its job."""

import threading
import time
from pathlib import Path

import pytest

from core.db.session import Database
from core.settings import Settings
from core.work import sweep
from worker.chores import ALIVE
from worker.loop import Worker


def test_a_sweep_that_takes_long_holds_up_neither_the_ringing_nor_the_health_file(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path, database_url=database.url, chores_s=0.05)
    begun, over = threading.Event(), threading.Event()
    rounds: list[float] = []

    def long(*_: object, **__: object) -> None:
        begun.set()
        over.wait(60)

    def unrung(_db: Database) -> list[str]:
        if begun.is_set():
            rounds.append(time.monotonic())
        return []

    monkeypatch.setattr(sweep, "sweep", long)
    monkeypatch.setattr(sweep, "unrung", unrung)
    worker = Worker(settings, ring=lambda _job: None)
    worker.start_chores()
    try:
        assert begun.wait(30)
        (tmp_path / ALIVE).unlink(missing_ok=True)
        end = time.monotonic() + 30
        while not (len(rounds) > 2 and (tmp_path / ALIVE).exists()) and time.monotonic() < end:
            time.sleep(0.01)
        assert len(rounds) > 2 and (tmp_path / ALIVE).exists()
    finally:
        over.set()
        worker.close()
