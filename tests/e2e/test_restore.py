"""The restore drill: a backup during learning, total loss, and a restore from the backup.

Afterwards every version's download has the digest that it had, and jobs that were open continue and
finish. The check of the database against the store finds nothing. Webhooks of the small size are
signed with the same secrets as before. The large size uses the standard tools: pg_dump and
pg_restore for the database. Our own store classes stand in for a mirror of the bucket.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import large_size
import postgresql
import psutil
import pytest
from operator_command import run_housekeeping
from receiver import Receiver
from sqlalchemy import select
from sqlalchemy.engine import make_url

from core.database.session import Database
from core.database.tables import Job, Model, Version
from core.storage import ObjectStorage, open_object_store
from tests.rest import Rest
from tools import digits, service
from tools.backup import copy_missing_store_objects

MLP: dict[str, Any] = {
    "architecture": {"name": "mlp", "hidden": [64]},
    "image": {"size": 8, "channels": 3},
    "gate": {"checks": "off"},
}
QUICK = {"method": {"name": "er", "buffer": 50}, "epochs": 1}
LONG = {"method": {"name": "er", "buffer": 50}, "epochs": 600}
"""A job of ten seconds and more.

Its process is found while it learns, and is then stopped until there is a backup.
"""
SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_SNAPSHOT_S": "0.5",
    "PERENNIAL_LEASE_S": "5",
    "PERENNIAL_CHORES_S": "1",
    "PERENNIAL_WEBHOOK_ALLOW": "127.0.0.0/8",
}


def prepare_running_work(client: Rest) -> str:
    """Prepare versions of one model, and a second model that learns.

    One job is in progress, and one waits. Return the id of the running job.
    """
    archives = [data for _, data in digits.build_digit_archives()]
    client.models.create("learned", recipe=QUICK, **MLP)
    for archive in archives[:2]:
        assert client.wait(client.submit("learned", archive)).state == "succeeded"
    client.models.create("busy", recipe=LONG, **MLP)
    job = client.submit("busy", archives[0]).id
    client.submit("busy", archives[1])
    while not client.get(f"/v1/jobs/{job}/events?type=snapshot")["items"]:
        assert not client.get(f"/v1/jobs/{job}")["is_terminal"]
        time.sleep(0.05)
    return job


@contextmanager
def suspend_jobs(*workers: int) -> Iterator[None]:
    """Stop every job process below some processes; their jobs continue after the block.

    Args:
        workers: process ids of workers, or of their launcher.
    """
    below = [child for pid in workers for child in psutil.Process(pid).children(recursive=True)]
    zygotes = {process for process in below if "worker.attempts.zygote" in process.cmdline()}
    jobs = [process for process in zygotes if process.parent() in zygotes]
    assert jobs, "no job runs"
    for process in jobs:
        process.suspend()
    try:
        yield
    finally:
        for process in jobs:
            process.resume()


@contextmanager
def keep_submitting(client: Rest) -> Iterator[None]:
    """Submit one batch after the other from a client until the block ends."""
    archives = [data for _, data in digits.build_digit_archives()]
    client.models.create("meanwhile", recipe=QUICK, **MLP)
    end = threading.Event()

    def submit_until_end() -> None:
        other = Rest(str(client.http.base_url), client.http.headers["Authorization"].split()[1])
        while not end.is_set():
            other.wait(other.submit("meanwhile", archives[2]))

    thread = threading.Thread(target=submit_until_end)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def list_learned_versions(url: str) -> list[tuple[str, int]]:
    """Return (model, version) of all versions that have a download.

    They are read from a database that is not in use yet.
    """
    db = Database(url)
    try:
        with db.read() as session:
            query = select(Model.name, Version.number).join(Version, Version.model_id == Model.id)
            return [
                (name, number) for name, number in session.execute(query.where(Version.number > 0))
            ]
    finally:
        db.close()


def read_job_state(url: str, job: str) -> tuple[str, bool]:
    """Return the state of a job, and whether a snapshot of it is registered.

    They are read from a database that is not in use yet.
    """
    db = Database(url)
    try:
        with db.read() as session:
            row = session.get_one(Job, job)
            return row.state, row.snapshot is not None
    finally:
        db.close()


def download_digests(
    client: Rest, wanted: list[tuple[str, int]], folder: Path
) -> dict[tuple[str, int], str]:
    return {
        (model, v): client.download(model, v, folder / "download.zip").sha256 for model, v in wanted
    }


def wait_for_open_jobs(client: Rest) -> int:
    """Wait for the jobs that were open, and return how many there were."""
    jobs = [job for job in client.items("/v1/jobs") if not job["is_terminal"]]
    for job in jobs:
        end = client.wait(job["id"])
        assert end.state == "succeeded", end
    return len(jobs)


def check_digests(
    before: dict[tuple[str, int], str], after: dict[tuple[str, int], str], opened: int
) -> None:
    """Check that the digests are equal.
    `before` was read after the backup, so it may know versions that the backup does not.
    """
    assert {("learned", 1), ("learned", 2)} <= set(after) and opened >= 2
    assert after == {name: before[name] for name in after}
    print(f"\n{len(after)} versions with equal digests; {opened} open jobs went on and succeeded")


@pytest.mark.campaign
def test_a_small_service_comes_back_from_its_backup(tmp_path: Path, receiver: Receiver) -> None:
    data, saved, again = tmp_path / "data", tmp_path / "backup", tmp_path / "again"
    with service.run_temporary_service(data, SETTINGS) as running:
        client = Rest(running.url, running.key)
        hook = client.webhooks.create(f"{receiver.url}/", events=["export.ready"])
        job = prepare_running_work(client)
        with keep_submitting(client), suspend_jobs(running.process.pid):
            told = run_housekeeping({"PERENNIAL_DATA_DIR": str(data)}, "backup", saved)
        before = download_digests(
            client, list_learned_versions(f"sqlite:///{data / 'perennial.db'}"), tmp_path
        )
    shutil.rmtree(data)
    print(told, run_housekeeping({"PERENNIAL_DATA_DIR": str(again)}, "restore", saved))
    copied = f"sqlite:///{again / 'perennial.db'}"
    wanted = list_learned_versions(copied)
    assert read_job_state(copied, job) == ("running", True)
    with service.run_temporary_service(again, SETTINGS) as running:
        client = Rest(running.url, running.key)
        assert running.key == (saved / "admin-key").read_text().strip()
        sent = client.webhooks.test(hook.id)
        (first,) = receiver.wait(1)
        assert (
            first.headers["webhook-id"] == sent.id
            and first.verified(hook.secret)["type"] == "webhook.test"
        )
        check_digests(
            before, download_digests(client, wanted, tmp_path), wait_for_open_jobs(client)
        )
        attempts = client.get(f"/v1/jobs/{job}")["attempt"]
        assert (
            attempts == 2
        )  # it went on from its snapshot, after the lease of a worker that is no more
    assert "0 in all" in run_housekeeping({"PERENNIAL_DATA_DIR": str(again)}, "check", "--verify")


@pytest.mark.campaign
def test_a_large_service_comes_back_from_dump_and_mirror(
    tmp_path: Path, redis_url: str, s3: Any
) -> None:
    def build_store_environment(prefix: str) -> dict[str, str]:
        return {"PERENNIAL_STORE_URL": s3.url(s3.bucket, f"restore/{prefix}")}

    def open_prefixed_store(prefix: str) -> ObjectStorage:
        return open_object_store(s3.settings(tmp_path / prefix, prefix=f"restore/{prefix}"))

    def render_libpq_url(database: str) -> str:
        return make_url(database).set(drivername="postgresql").render_as_string(hide_password=False)

    database, dump = postgresql.create_database(), tmp_path / "perennial.dump"
    live, mirror = open_prefixed_store("live"), open_prefixed_store("mirror")
    (tmp_path / "first").mkdir()
    with large_size.run_large_size(
        tmp_path / "first", database, redis_url, s3, **SETTINGS, **build_store_environment("live")
    ) as (
        site,
        client,
    ):
        job = prepare_running_work(client)
        with suspend_jobs(*(site.processes[name].pid for name in large_size.WORKERS)):
            copy_missing_store_objects(live, mirror)
            subprocess.run(
                ["pg_dump", "--format", "custom", "--file", dump, render_libpq_url(database)],
                check=True,
            )
            copy_missing_store_objects(live, mirror)
        before = download_digests(client, list_learned_versions(database), tmp_path)
        key = client.http.headers["Authorization"].split()[1]
    postgresql.drop_database(database)
    for info in list(live.list("")):
        live.delete(info.key)

    restored = postgresql.create_database()
    try:
        subprocess.run(
            ["pg_restore", "--no-owner", "--dbname", render_libpq_url(restored), dump], check=True
        )
        copy_missing_store_objects(mirror, open_prefixed_store("again"))
        operator = {
            **s3.environment(),
            **build_store_environment("again"),
            "PERENNIAL_DATABASE_URL": restored,
            "PERENNIAL_DATA_DIR": str(tmp_path / "operator"),
        }
        # The job's snapshot was replaced while the bucket was mirrored: it is forgotten, the job
        # starts again.
        subprocess.run(
            [sys.executable, "-m", "tools.housekeeping", "check", "--repair"],
            cwd=service.ROOT, env={**os.environ, **operator}, check=False,
        )  # fmt: skip
        second = tmp_path / "second"
        (second / "api").mkdir(parents=True)
        (second / "api" / "admin-key").write_text(key)
        wanted = list_learned_versions(restored)
        assert read_job_state(restored, job)[0] == "running"
        with large_size.run_large_size(
            second, restored, redis_url, s3, **SETTINGS, **build_store_environment("again")
        ) as (
            large,
            _,
        ):
            client = Rest(large.url, key)
            check_digests(
                before, download_digests(client, wanted, tmp_path), wait_for_open_jobs(client)
            )
            assert "0 in all" in run_housekeeping(operator, "check", "--verify")
    finally:
        postgresql.drop_database(restored)
