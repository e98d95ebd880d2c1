import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from core.database.session import Database
from core.database.tables import DatabaseTable, Job, Owner
from core.jobs import worker_notification
from core.jobs.worker_notification import WorkerNotifier
from core.settings import Settings
from tests.core.rows import make_job_row, make_model_row, make_task_row
from tools.service import find_free_port

JOB = "job_" + "0" * 26


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A SQLite database with one queued job."""
    database = Database(f"sqlite:///{tmp_path / 'd.db'}")
    DatabaseTable.metadata.create_all(database.engine)
    with database.write() as session:
        for row in (
            Owner(id="own_1", name="o", created_at=0.0),
            make_model_row("mdl_1", "own_1"),
            make_task_row("tsk_1", "mdl_1"),
            make_job_row(JOB, "mdl_1", "own_1", "tsk_1"),
        ):
            session.add(row)
            session.flush()
    yield database
    database.close()


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """A listener that accepts every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def accept_connections() -> None:
            while True:
                try:
                    kept.append(listener.accept())
                except OSError:
                    return

        threading.Thread(target=accept_connections, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        for connection, _ in kept:
            connection.close()


def read_ring_time(db: Database) -> float | None:
    with db.read() as session:
        return session.execute(select(Job.rung_at).where(Job.id == JOB)).scalar_one()


def is_true_within_limit(condition: Any) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def make_settings(tmp_path: Path, broker: str = "") -> Settings:
    return Settings(data_dir=tmp_path, broker_url=broker)


def test_a_ring_under_a_broker_leaves_its_time_and_a_message_that_carries_no_work(
    db: Database, tmp_path: Path, redis_url: str
) -> None:
    import redis

    bell = WorkerNotifier(make_settings(tmp_path, redis_url), db)
    client = redis.Redis.from_url(redis_url)
    before = client.llen(worker_notification.QUEUE)
    bell.notify_workers(JOB)
    assert is_true_within_limit(lambda: read_ring_time(db) is not None)
    assert client.llen(worker_notification.QUEUE) == before + 1
    assert bell.get_broker_status() == "up"
    bell.close()
    message = client.lindex(worker_notification.QUEUE, 0)
    assert isinstance(message, bytes) and JOB.encode() not in message
    client.delete(worker_notification.QUEUE)
    client.close()


@pytest.mark.slow
def test_a_silent_broker_does_not_delay_a_ring(
    db: Database, tmp_path: Path, silent_broker: str
) -> None:
    bell = WorkerNotifier(make_settings(tmp_path, silent_broker), db)
    for _ in range(20):
        bell.notify_workers(JOB)
    assert bell._rings.qsize() >= 18  # they wait: the thread has taken one, at most two
    assert bell.get_broker_status() == "down"
    assert read_ring_time(db) is None
    bell.close()


def test_a_refusing_broker_is_down_and_the_job_not_rung(db: Database, tmp_path: Path) -> None:
    port = find_free_port()
    bell = WorkerNotifier(make_settings(tmp_path, f"redis://127.0.0.1:{port}/0"), db)
    bell.notify_workers(JOB)
    assert bell.get_broker_status() == "down"
    assert read_ring_time(db) is None
    bell.close()


def test_the_broker_is_up_again_after_an_outage(
    db: Database, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(worker_notification, "CHECK_S", 0.1)
    port = find_free_port()
    bell = WorkerNotifier(make_settings(tmp_path, f"redis://127.0.0.1:{port}/0"), db)
    assert bell.get_broker_status() == "down"
    server = subprocess.Popen(
        [
            "redis-server",
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(tmp_path),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        assert is_true_within_limit(lambda: bell.get_broker_status() == "up")
        bell.notify_workers(JOB)
        assert is_true_within_limit(lambda: read_ring_time(db) is not None)
    finally:
        bell.close()
        server.terminate()
        server.wait()


def test_without_a_broker_the_status_is_none_and_a_ring_wakes_the_listener(
    db: Database, tmp_path: Path
) -> None:
    bell = WorkerNotifier(make_settings(tmp_path), db)
    with worker_notification.open_wakeup_socket(tmp_path) as listener:
        assert listener is not None
        bell.notify_workers(JOB)
        assert listener.recv(16)
    assert bell.get_broker_status() == "none"


def test_without_a_listener_a_ring_is_silent(db: Database, tmp_path: Path) -> None:
    WorkerNotifier(make_settings(tmp_path), db).notify_workers(JOB)
    assert worker_notification.wake_worker(tmp_path) is False


def test_a_long_data_directory_still_has_a_doorbell(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with worker_notification.open_wakeup_socket(folder) as listener:
        assert listener is not None
        assert worker_notification.wake_worker(folder)
        assert listener.recv(16)


def test_a_worker_that_does_not_listen_does_not_block_a_ring(tmp_path: Path) -> None:
    with worker_notification.open_wakeup_socket(tmp_path) as listener:
        assert listener is not None
        assert all(worker_notification.wake_worker(tmp_path) for _ in range(2000))
        worker_notification.drain_pending_wakeups(listener)
        with pytest.raises(BlockingIOError):
            listener.recv(16)


def test_importing_the_doorbell_does_not_import_celery() -> None:
    program = "import sys, core.jobs.worker_notification; print('celery' in sys.modules or 'redis' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
