"""Workers that die while they check a whole batch: it is checked again, and nothing of it stays."""

import signal
from pathlib import Path
from typing import Any

import pytest
from archives import archive

BATCH = archive(0)


def armed(folder: Path, point: str) -> str:
    """A folder in which a named point ends the process that comes there."""
    points = folder / "points"
    points.mkdir(exist_ok=True)
    (points / point).touch()
    return str(points)


def test_a_check_whose_worker_was_killed_is_begun_anew_and_starts_no_learning(
    house: Any, tmp_path: Path, all_gone: Any
) -> None:
    job = house.check(BATCH)
    with house.worker(PERENNIAL_KILL_POINTS=armed(tmp_path, "ingest-decoded")) as worker:
        house.until(lambda: worker.poll() is not None)
        assert worker.returncode == -signal.SIGKILL
    with house.worker() as worker:
        done = house.finished(job)
        zygotes = [p for p in worker.children() if "worker.zygote" in " ".join(p.cmdline())]
        assert not [child for zygote in zygotes for child in zygote.children()]
    assert (done.state, done.attempt, done.strikes) == ("succeeded", 2, 1)
    assert done.report["valid"] is True and done.report["checked"] == "images"
    house.until(lambda: house.job(job).archive_key is None)
    house.sweep()
    assert house.left_over() == []


@pytest.mark.campaign
def test_a_check_that_kills_its_worker_three_times_fails_and_its_upload_goes(
    house: Any, tmp_path: Path
) -> None:
    job = house.check(BATCH)
    for _ in range(3):
        with house.worker(PERENNIAL_KILL_POINTS=armed(tmp_path, "ingest-decoded")) as worker:
            house.until(lambda worker=worker: worker.poll() is not None)
    with house.worker():
        done = house.finished(job)
        assert (done.state, done.error["code"]) == ("failed", "job-lost")
        house.sweep()
    assert house.job(job).archive_key is None
    assert [info.key for info in house.store.list("archives/")] == []
    later = house.submit(BATCH)
    with house.worker():
        assert house.finished(later).state == "succeeded"


@pytest.mark.slow
def test_a_check_runs_beside_a_learning_job_of_its_model(house: Any) -> None:
    with house.worker(), house.worker():
        learning = house.submit(BATCH, recipe={"epochs": 10_000})
        house.training(learning)
        job = house.check(BATCH)
        assert house.finished(job).state == "succeeded"
        assert house.job(learning).state == "running"
        house.act(learning, "cancel")
        assert house.finished(learning).state == "cancelled"
    assert house.job(job).worker is None and house.job(job).attempt == 1
