"""A kind of job is one file and one line: the one of docs/howto/add-a-job-kind.md, taken from that page, and hurt."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core.db.jobs import locked, move
from core.db.states import Action, State
from core.db.tables import Event, Model, Part, Version
from core.requests.jobs import beside_the_line
from core.settings import Settings
from core.work import claim as claims
from core.work.kinds import KINDS
from worker.loop import Worker

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "add-a-job-kind.md"
WORKER = """
import importlib.util, sys, time
from core.settings import Settings
from core.store.folder import FolderStore
from core.work.kinds import KINDS
from worker.loop import Worker

spec = importlib.util.spec_from_file_location("rehash", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
KINDS["rehash"] = module.REHASH
FolderStore.read = lambda *given: time.sleep(600)  # until it is killed
Worker(Settings(), ring=lambda _job: None).work(lambda: False)
"""


@pytest.fixture
def rehash(tmp_path: Path) -> ModuleType:
    """The file of the page."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "rehash.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("rehash", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def added(rehash: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The line of the page."""
    monkeypatch.setitem(KINDS, "rehash", rehash.REHASH)
    return rehash


@pytest.fixture
def worker(desk: Any) -> Iterator[Worker]:
    """One whose learning processes could not even start."""
    found = Worker(settings_of(desk), ring=lambda _job: None, zygote_command=("false",))
    yield found
    found.close()


def settings_of(desk: Any, **values: Any) -> Settings:
    given = {"data_dir": desk.folder / "data", "store_url": f"file://{desk.folder}/store", "threads": 1}
    return Settings(database_url=desk.db.url, **{**given, **values})


def job_of(desk: Any) -> str:
    """A job of the new kind, of a model with two parts."""
    model = desk.model()
    with desk.db.write() as session:
        version = desk.all(Version, model_id=model)[0]
        for position, name in enumerate(("backbone", "head")):
            session.add(
                Part(
                    version_id=version.id,
                    name=name,
                    position=position,
                    type=name,
                    sha256=desk.blob(name),
                    bytes=4,
                )
            )
        job = beside_the_line(session.get_one(Model, model), "rehash", {}, {}, desk.db.now(session))
        session.add(job)
        session.flush()
        return str(job.id)


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "too long"
        time.sleep(0.02)


def act(desk: Any, job_id: str, action: Action) -> None:
    with desk.db.write() as session:
        job = locked(session, job_id)
        assert job is not None
        move(session, job, action, desk.db.now(session))


def test_it_is_claimed_runs_and_reports(desk: Any, added: ModuleType, worker: Worker) -> None:
    job = job_of(desk)
    assert worker.work(lambda: False) == 1
    row = desk.job(job)
    assert (row.state, row.error, row.report) == ("succeeded", None, {"parts": 2, "damaged": []})
    lines = desk.messages(job)
    assert lines == ["Attempt 1 began.", "2 parts were read, 0 are damaged."]
    states = [event.data["state"] for event in desk.all(Event, job_id=job, type="state")]
    assert states == ["running", "succeeded"]


def test_without_its_line_it_waits(desk: Any, worker: Worker) -> None:
    job = job_of(desk)
    assert worker.work(lambda: False) == 0
    assert desk.state(job) is State.QUEUED


@pytest.mark.parametrize(("asked", "ended"), [(Action.CANCEL, State.CANCELLED), (Action.PAUSE, State.PAUSED)])
def test_it_is_stopped_as_asked(
    desk: Any, added: ModuleType, worker: Worker, monkeypatch: pytest.MonkeyPatch, asked: Action, ended: State
) -> None:
    job = job_of(desk)
    read = worker.store.read

    def ask(*given: Any) -> Any:
        if desk.state(job) is State.RUNNING:
            desk.act(job, asked)
            until(lambda: worker._attempt is not None and worker._attempt._beat.asked)
        return read(*given)

    monkeypatch.setattr(worker.store, "read", ask)
    worker.work(lambda: False)
    assert desk.state(job) is ended
    assert desk.job(job).report is None


def test_what_its_code_does_wrong_fails_the_job_and_not_the_worker(
    desk: Any, added: ModuleType, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(desk)
    monkeypatch.setattr(worker.store, "read", lambda *_: 1 / 0)
    assert worker.work(lambda: False) == 1
    assert (desk.state(job), desk.job(job).error["kind"]) == (State.FAILED, "code")


def test_it_fails_when_it_runs_longer_than_its_kind_may(desk: Any, added: ModuleType) -> None:
    job = job_of(desk)
    late = Worker(settings_of(desk, max_job_s=1e-6), ring=lambda _job: None, zygote_command=("false",))
    try:
        late.work(lambda: False)
    finally:
        late.close()
    assert (desk.state(job), desk.job(job).error["kind"]) == (State.FAILED, "time")


def test_an_ending_worker_gives_it_back_without_a_strike(
    desk: Any, added: ModuleType, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(desk)
    stop: list[bool] = []
    read = worker.store.read
    monkeypatch.setattr(worker.store, "read", lambda *given: (stop.append(True), read(*given))[1])
    worker.work(lambda: bool(stop))
    assert (desk.state(job), desk.job(job).strikes) == (State.QUEUED, 0)


def test_it_is_run_again_after_its_worker_was_killed(desk: Any, added: ModuleType, worker: Worker) -> None:
    job = job_of(desk)
    settings = settings_of(desk)
    environment = {
        **os.environ,
        "PERENNIAL_DATA_DIR": str(settings.data_dir),
        "PERENNIAL_DATABASE_URL": settings.resolved_database_url,
        "PERENNIAL_STORE_URL": settings.store_url,
    }
    command = [sys.executable, "-c", WORKER, str(added.__file__)]
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        until(lambda: desk.state(job) is State.RUNNING)
        process.send_signal(signal.SIGKILL)
    desk.set(job, lease_until=1.0)
    assert claims.reap(desk.db) == [job]
    assert (desk.state(job), desk.job(job).strikes) == (State.QUEUED, 1)
    worker.work(lambda: False)
    row = desk.job(job)
    assert (row.state, row.attempt, row.report) == ("succeeded", 2, {"parts": 2, "damaged": []})
