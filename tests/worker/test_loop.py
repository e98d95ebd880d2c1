"""One worker process: what goes on beside its job."""

import threading
from pathlib import Path

import psutil
import pytest

from core.database.session import Database
from core.jobs import worker_notification
from core.settings import Settings
from core.upkeep import sweep
from core.upkeep.scrub import Scrubber
from tests.worker.conftest import LIMIT_S, wait_within_limit
from worker.loop import Worker, _WakeupReceiver
from worker.recurring_tasks import ALIVE

ON_ONE_DATABASE = pytest.mark.parametrize(
    "database", ["sqlite"], indirect=True
)  # nothing here depends on SQL


@ON_ONE_DATABASE
def test_a_sweep_that_takes_long_holds_up_neither_the_ringing_nor_the_health_file(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path, database_url=database.url, chores_s=0.05)
    begun, over = threading.Event(), threading.Event()
    rounds: list[int] = []

    def wait_until_over(*_: object, **__: object) -> None:
        begun.set()
        over.wait(LIMIT_S)

    def record_round(_db: Database) -> list[str]:
        if begun.is_set():
            rounds.append(1)
        return []

    monkeypatch.setattr(sweep, "run_sweep", wait_until_over)
    monkeypatch.setattr(sweep, "find_long_waiting_claimable_jobs", record_round)
    worker = Worker(settings, ring=lambda _job: None)
    worker.start_chores()
    try:
        assert begun.wait(LIMIT_S)
        (tmp_path / ALIVE).unlink(missing_ok=True)
        assert wait_within_limit(lambda: len(rounds) > 2 and (tmp_path / ALIVE).exists())
    finally:
        over.set()
        worker.close_worker()


@ON_ONE_DATABASE
def test_a_scrub_that_takes_long_holds_up_neither_chores_nor_sweeps_nor_the_end_of_the_worker(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path, database_url=database.url, chores_s=0.05)
    begun = threading.Event()
    swept: list[int] = []

    def scrub_until_closed(self: Scrubber) -> None:
        begun.set()
        while not self._pause(0.05):
            pass

    monkeypatch.setattr(Scrubber, "run_scrub_if_due", scrub_until_closed)
    monkeypatch.setattr("worker.loop.SWEEP_S", 0.05)
    monkeypatch.setattr(sweep, "run_sweep", lambda *_: swept.append(1) if begun.is_set() else None)
    worker = Worker(settings, ring=lambda _job: None)
    worker.start_chores()
    try:
        assert begun.wait(LIMIT_S)
        (tmp_path / ALIVE).unlink(missing_ok=True)
        assert wait_within_limit(lambda: len(swept) > 2 and (tmp_path / ALIVE).exists())
    finally:
        worker.close_worker()
    assert not any(thread.name == "scrub" for thread in threading.enumerate())


def test_a_notification_of_the_api_reaches_the_worker_of_its_data_directory(tmp_path: Path) -> None:
    heard = threading.Event()
    with worker_notification.open_wakeup_socket(tmp_path) as listener:
        assert listener is not None
        _WakeupReceiver(listener, heard.set)
        assert not heard.is_set()
        assert worker_notification.wake_worker(tmp_path)
        assert heard.wait(LIMIT_S)


@ON_ONE_DATABASE
def test_a_closed_worker_leaves_no_fork_server(database: Database, tmp_path: Path) -> None:
    worker = Worker(Settings(data_dir=tmp_path, database_url=database.url), ring=lambda _job: None)
    fork_server = psutil.Process(worker.ensure_fork_server_running().pid)
    worker.close_worker()
    assert wait_within_limit(lambda: not fork_server.is_running())
