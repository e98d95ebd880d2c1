"""A kind of job is one file and one line: the one of docs/howto/add-a-job-kind.md, taken from that
page, and hurt.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core.database.states import JobAction, JobState
from core.database.tables import Model, StoredJobEvent, Version
from core.execution.kinds import KINDS
from core.jobs.jobs import build_queued_taskless_job
from core.scheduling import claim as claims
from tests.core.rows import make_part_row
from tests.loading import load_module
from worker.loop import Worker

Make = Callable[..., Worker]
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "add-a-job-kind.md"
WORKER = """
import importlib.util, sys, time
from core.settings import Settings
from core.storage.folder import FolderStore
from core.execution.kinds import KINDS
from worker.loop import Worker

spec = importlib.util.spec_from_file_location("rehash", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
KINDS["rehash"] = module.REHASH
FolderStore.read = lambda *given: time.sleep(600)  # until it is killed
Worker(Settings(), ring=lambda _job: None).run_jobs(lambda: False)
"""


@pytest.fixture
def rehash(tmp_path: Path) -> ModuleType:
    """The file of the page."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "rehash.py"
    path.write_text(code)
    return load_module(path)


@pytest.fixture
def added(rehash: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The line of the page."""
    monkeypatch.setitem(KINDS, "rehash", rehash.REHASH)
    return rehash


def create_rehash_job(desk: Any) -> str:
    """Create a job of the new kind for a model with two parts."""
    model = desk.model()
    with desk.db.write() as session:
        version = desk.all(Version, model_id=model)[0]
        for position, name in enumerate(("backbone", "head")):
            session.add(make_part_row(version.id, name, desk.blob(name), 4, position=position))
        job = build_queued_taskless_job(
            session.get_one(Model, model), "rehash", {}, {}, desk.db.now(session)
        )
        session.add(job)
        session.flush()
        return str(job.id)


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "too long"
        time.sleep(0.02)


def test_it_is_claimed_runs_and_reports(desk: Any, added: ModuleType, worker: Make) -> None:
    job = create_rehash_job(desk)
    assert worker().run_jobs(lambda: False) == 1
    row = desk.job(job)
    assert (row.state, row.error, row.report) == ("succeeded", None, {"parts": 2, "damaged": []})
    lines = desk.messages(job)
    assert lines == ["Attempt 1 began.", "2 parts were read, 0 are damaged."]
    states = [event.data["state"] for event in desk.all(StoredJobEvent, job_id=job, type="state")]
    assert states == ["running", "succeeded"]


@pytest.mark.parametrize(
    ("asked", "ended"), [(JobAction.CANCEL, JobState.CANCELLED), (JobAction.PAUSE, JobState.PAUSED)]
)
def test_it_is_stopped_as_asked(
    desk: Any,
    added: ModuleType,
    worker: Make,
    monkeypatch: pytest.MonkeyPatch,
    asked: JobAction,
    ended: JobState,
) -> None:
    job, one = create_rehash_job(desk), worker()
    read = one.store.read

    def read_after_asking_to_stop(*given: Any) -> Any:
        if desk.state(job) is JobState.RUNNING:
            desk.act(job, asked)
            wait_until(lambda: one._attempt is not None and one._attempt._beat.requested_state)
        return read(*given)

    monkeypatch.setattr(one.store, "read", read_after_asking_to_stop)
    one.run_jobs(lambda: False)
    assert desk.state(job) is ended
    assert desk.job(job).report is None


def test_what_its_code_does_wrong_fails_the_job_and_not_the_worker(
    desk: Any, added: ModuleType, worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, one = create_rehash_job(desk), worker()
    monkeypatch.setattr(one.store, "read", lambda *_: 1 / 0)
    assert one.run_jobs(lambda: False) == 1
    assert (desk.state(job), desk.job(job).error["kind"]) == (JobState.FAILED, "code")


def test_it_fails_when_it_runs_longer_than_its_kind_may(
    desk: Any, added: ModuleType, worker: Make
) -> None:
    job = create_rehash_job(desk)
    worker(max_job_s=1e-6).run_jobs(lambda: False)
    assert (desk.state(job), desk.job(job).error["kind"]) == (JobState.FAILED, "time")


def test_an_ending_worker_gives_it_back_without_a_strike(
    desk: Any, added: ModuleType, worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, one = create_rehash_job(desk), worker()
    stop: list[bool] = []
    read = one.store.read
    monkeypatch.setattr(one.store, "read", lambda *given: (stop.append(True), read(*given))[1])
    one.run_jobs(lambda: bool(stop))
    assert (desk.state(job), desk.job(job).strikes) == (JobState.QUEUED, 0)


@pytest.mark.slow
def test_it_is_run_again_after_its_worker_was_killed(
    desk: Any, added: ModuleType, worker: Make
) -> None:
    job = create_rehash_job(desk)
    environment = {
        **os.environ,
        "PERENNIAL_DATA_DIR": str(desk.settings.data_dir),
        "PERENNIAL_DATABASE_URL": desk.db.url,
        "PERENNIAL_STORE_URL": f"file://{desk.store.root}",
    }
    command = [sys.executable, "-c", WORKER, str(added.__file__)]
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        wait_until(lambda: desk.state(job) is JobState.RUNNING)
        process.send_signal(signal.SIGKILL)
    desk.set(job, lease_until=1.0)
    assert claims.take_back_jobs_with_expired_lease(desk.db) == [job]
    assert (desk.state(job), desk.job(job).strikes) == (JobState.QUEUED, 1)
    worker().run_jobs(lambda: False)
    row = desk.job(job)
    assert (row.state, row.attempt, row.report) == ("succeeded", 2, {"parts": 2, "damaged": []})
