"""Work folders of workers that died, and of those that only look dead."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.worker.conftest import wait_within_limit
from worker.attempts.folders import WorkerScratchFolder, read_process_identity

ROOT = Path(__file__).parents[3]
WORKER = """
import subprocess, sys
from pathlib import Path
from worker.attempts.folders import WorkerScratchFolder

folder = WorkerScratchFolder(Path(sys.argv[1]), "other")
folder.create_locked_work_folder()
child = subprocess.Popen(["sleep", "600"], pass_fds=[folder.lock_fd])
print(child.pid, flush=True)
child.wait()
"""


@contextmanager
def run_worker(root: Path) -> Iterator[tuple["subprocess.Popen[str]", psutil.Process]]:
    """Run a process that holds the folder `other`, and a child of it that inherits the lock."""
    command = [sys.executable, "-c", WORKER, str(root)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        child = psutil.Process(int(worker.stdout.readline()))
        try:
            yield worker, child
        finally:
            worker.kill()
            with suppress(psutil.NoSuchProcess):  # a test has ended it
                child.kill()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[WorkerScratchFolder]:
    folder = WorkerScratchFolder(tmp_path, "own")
    folder.create_locked_work_folder()
    yield folder
    folder.remove_work_folder()


def remove_dead_folders(own: WorkerScratchFolder) -> list[str]:
    dead: list[str] = []
    own.return_jobs_and_remove_dead_folders(dead.append)
    return dead


def test_a_worker_is_dead_once_it_and_its_job_process_are_gone(
    own: WorkerScratchFolder, tmp_path: Path
) -> None:
    with run_worker(tmp_path) as (worker, child):
        assert remove_dead_folders(own) == []
        worker.kill()
        worker.wait()
        assert remove_dead_folders(own) == [], "its job process still works in the folder"
        assert (tmp_path / "other").is_dir()
        child.kill()
        assert wait_within_limit(lambda: remove_dead_folders(own) == ["other"])
    assert [folder.name for folder in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize(
    ("change", "dead"),
    [
        ({"boot": "of another host"}, []),
        ({}, []),  # this very process, which lives though the lock is free
        ({"started": "1"}, ["other"]),
        ({"namespace": "pid:[1]"}, ["other"]),
        (None, []),
    ],
)
def test_a_free_lock_alone_is_no_proof(
    own: WorkerScratchFolder, tmp_path: Path, change: dict[str, str] | None, dead: list[str]
) -> None:
    identity = read_process_identity(os.getpid())
    assert identity is not None
    (tmp_path / "other").mkdir()
    text = "" if change is None else json.dumps({**identity, **change})
    (tmp_path / "other" / ".lock").write_text(text)
    assert remove_dead_folders(own) == dead


def test_the_folder_stays_until_its_jobs_are_given_back(
    own: WorkerScratchFolder, tmp_path: Path
) -> None:
    with run_worker(tmp_path) as (worker, child):
        worker.kill()
        child.kill()

    def raise_os_error(_worker: str) -> None:
        raise OSError("the database is out")

    def is_return_refused() -> bool:
        try:
            own.return_jobs_and_remove_dead_folders(raise_os_error)
        except OSError:
            return True
        return False

    assert wait_within_limit(is_return_refused)
    assert remove_dead_folders(own) == ["other"]
