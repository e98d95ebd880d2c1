"""A worker whose device is lost gives its job back, claims no other, and says so where people and
machines look.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from core.database.tables import WorkerReport
from core.failpoints import DEVICE_ERROR
from tests.faults.conftest import ROOT, Backend
from worker.launcher import find_free_port

pytestmark = pytest.mark.slow
ECC = "CUDA error: uncorrectable ECC error encountered"
NO_MEMORY = "CUDA error: out of memory"


def make_broken_device(folder: Path, message: str) -> dict[str, str]:
    """Return the settings of a worker on whose device every job fails with this message."""
    folder.mkdir()
    (folder / DEVICE_ERROR).write_text(message)
    return {"PERENNIAL_KILL_POINTS": str(folder)}


def read_problems(backend: Backend) -> list[str]:
    with backend.db.read() as session:
        return [problem for problem in session.scalars(select(WorkerReport.problem)) if problem]


def check_health(backend: Backend) -> "subprocess.CompletedProcess[str]":
    """Run the health check of a worker's container."""
    command = [sys.executable, str(ROOT / "deploy" / "health.py"), "worker"]
    environment = {"PERENNIAL_DATA_DIR": str(backend.folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.campaign  # tests/worker/devices/test_device.py shows it
def test_jobs_of_a_dead_device_end_on_the_other_worker_without_a_strike(
    backend: Backend, batches: list[bytes], tmp_path: Path
) -> None:
    port = find_free_port("127.0.0.1")
    dead = make_broken_device(tmp_path / "dead", ECC)
    jobs = [backend.submit(backend.create(), batches[0]) for _ in range(2)]
    with backend.worker(**dead, PERENNIAL_METRICS_PORT=str(port)):
        backend.until(lambda: backend.has_logged("device lost: no jobs are claimed"))
        backend.until(lambda: any(ECC in problem for problem in read_problems(backend)))
        page = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        assert "perennial_device_lost 1.0" in page
        assert 'perennial_attempts_total{cause="device",outcome="requeued"} 1.0' in page
        backend.until(lambda: [*backend.folder.glob("device-lost-*")])
        unhealthy = check_health(backend)
        assert unhealthy.returncode == 1 and ECC in unhealthy.stderr
        assert sum(backend.job(job).attempt for job in jobs) == 1, "it claims one job and no other"
        backend.standing_worker()
        ended = [backend.is_run_finished(job) for job in jobs]
    assert [(job.state, job.strikes) for job in ended] == [("succeeded", 0)] * 2
    assert sum(job.attempt for job in ended) == 3


@pytest.mark.campaign
def test_a_worker_whose_gpu_is_missing_fails_no_job(backend: Backend, batches: list[bytes]) -> None:
    with backend.worker(PERENNIAL_DEVICE="cuda"):
        backend.until(lambda: backend.has_logged("device lost: no jobs are claimed"))
        job = backend.submit(backend.create(), batches[0])
        backend.standing_worker()
        assert (backend.is_run_finished(job).state, backend.job(job).attempt) == ("succeeded", 1)


@pytest.mark.campaign
def test_a_cpu_worker_leaves_a_job_alone_that_asks_for_cuda(
    backend: Backend, batches: list[bytes]
) -> None:
    asks = backend.submit(backend.create(), batches[0], {"resources": {"device": "cuda"}})
    other = backend.submit(backend.create(), batches[0])
    backend.standing_worker()
    assert backend.is_run_finished(other).state == "succeeded"
    assert (backend.job(asks).state, backend.job(asks).attempt) == ("queued", 0)


@pytest.mark.campaign
def test_a_job_without_memory_is_tried_twice_and_says_figures(
    backend: Backend, batches: list[bytes], tmp_path: Path
) -> None:
    without = make_broken_device(tmp_path / "small", NO_MEMORY)
    job = backend.submit(backend.create(), batches[0])
    with backend.worker(**without, PERENNIAL_JOB_MEMORY_BYTES="0"):
        failed: Any = backend.is_run_finished(job)
    assert (failed.state, failed.attempt, failed.error["kind"]) == ("failed", 2, "memory")
    assert "ran out of memory twice. It held" in failed.error["detail"]
    assert (
        "GB were free" in failed.error["detail"]
        and "smaller recipe.batch_size" in failed.error["detail"]
    )
