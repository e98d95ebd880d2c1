"""A sweep without any grace, beside those who name blobs: no blob that a row names is ever
missing.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from core.database.tables import Version, VersionPart
from core.publishing import publish, version_rows
from core.scheduling import claim as claims
from core.upkeep import consistency
from core.upkeep.sweep import SweepOptions, run_sweep

CELLS = [("new", 1, 1, 2)]


def sweep_everything(desk: Any) -> None:
    """Sweep as a worker whose grace is over for everything."""
    run_sweep(desk.db, desk.store, desk.blobs, desk.settings, SweepOptions(-1.0, whole=True))


@pytest.mark.parametrize("point", ["part-stored", "publish-stored"])
def test_a_sweep_between_the_upload_of_parts_and_their_publish_loses_nothing(
    desk: Any, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    desk.submit(desk.model())
    deleted: list[int] = []

    def sweep_at_point(name: str) -> None:
        if name == point:
            before = len(desk.keys("blobs/"))
            sweep_everything(desk)
            deleted.append(before - len(desk.keys("blobs/")))

    for module in (publish, version_rows):
        monkeypatch.setattr(module, "hit_failpoint", sweep_at_point)
    desk.publish({"head": "h", "buffer": "b"}, CELLS)
    assert sum(deleted) >= 1  # the sweep did take what was stored and not named
    assert all(desk.blobs.has(part.sha256) for part in desk.all(VersionPart))
    assert (
        consistency.find_store_inconsistencies(desk.db, desk.store, desk.settings, verify=True)
        == []
    )


@pytest.mark.both_databases
def test_a_sweep_waits_for_the_publish_that_is_naming_a_blob(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit(desk.model())
    sweeper = threading.Thread(target=sweep_everything, args=(desk,))

    def start_sweep_before_commit(name: str) -> None:
        if name == "publish-uncommitted":
            sweeper.start()
            sweeper.join(0.3)
            assert sweeper.is_alive()

    monkeypatch.setattr(publish, "hit_failpoint", start_sweep_before_commit)
    desk.publish()
    sweeper.join(60)
    assert not sweeper.is_alive()
    assert all(desk.blobs.has(part.sha256) for part in desk.all(VersionPart)) and desk.all(
        VersionPart
    )


@contextmanager
def keep_sweeping(desk: Any, workers: int) -> Iterator[list[BaseException]]:
    """Sweep again and again in some threads, and yield what the sweeps raise."""
    end, raised = threading.Event(), []

    def sweep_until_end() -> None:
        while not end.is_set():
            try:
                sweep_everything(desk)
            except BaseException as error:  # noqa: BLE001
                raised.append(error)
                return

    threads = [threading.Thread(target=sweep_until_end) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield raised
    finally:
        end.set()
        for thread in threads:
            thread.join(60)


@pytest.mark.slow
@pytest.mark.both_databases
def test_publishes_and_sweeps_at_once_leave_no_named_blob_missing(desk: Any) -> None:
    """Three models publish parts that they share, and delete them again; two sweeps run all the
    time.
    """
    models = [desk.model() for _ in range(3)]
    rounds = 3

    def choose_part_names(n: int) -> dict[str, str]:
        return {"backbone": f"shared {n % 2}", "head": f"own {n}"}

    for model in models:
        for _ in range(rounds):
            desk.submit(model)
    results = [
        desk.result(choose_part_names(n), [("new", 1 + n // len(models), 1, 2)])
        for n in range(len(models) * rounds)
    ]

    def publish_and_check_blobs() -> int:
        while (claim := claims.claim_job(desk.db, "w", 60.0)) is None:
            time.sleep(0.01)  # the jobs that are left are all of a model that has one under way
        number = publish.publish_or_hold_job_result(
            desk.db, desk.store, claim, results.pop()
        ).number
        missing = [
            part.name
            for part in desk.all(VersionPart)
            if not part.deleted_at and not desk.blobs.has(part.sha256)
        ]
        assert not missing
        return number

    with keep_sweeping(desk, 2) as raised, ThreadPoolExecutor(3) as pool:
        numbers = [
            done.result()
            for _ in range(rounds)
            for done in [pool.submit(publish_and_check_blobs) for _ in models]
        ]
    assert not raised
    assert sorted(numbers) == sorted(list(range(1, rounds + 1)) * len(models))
    assert len(desk.all(Version)) == len(models) * (rounds + 1)
    assert (
        consistency.find_store_inconsistencies(desk.db, desk.store, desk.settings, verify=True)
        == []
    )


def test_a_planted_publish_that_does_not_look_again_is_found(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: without the look inside the transaction a named blob is missing."""
    desk.submit(desk.model())
    monkeypatch.setattr(publish.Blobs, "has", lambda self, sha256: True)
    monkeypatch.setattr(
        publish,
        "hit_failpoint",
        lambda name: sweep_everything(desk) if name == "publish-stored" else None,
    )
    desk.publish()
    found = consistency.find_store_inconsistencies(desk.db, desk.store, desk.settings)
    assert [drift.kind for drift in found] == ["missing"]
