"""The table of what is kept until when, row by row."""

from typing import Any

import pytest

from core.database.tables import Job, Model, Task
from core.retention.retention import DAY_S, DeletableTaskFiles, find_deletable_task_files

NOW = 100 * DAY_S
RECENT, OLD = NOW - DAY_S, NOW - 8 * DAY_S


def find_deletable_files(
    states: list[str],
    *,
    ended: float = RECENT,
    published: bool = False,
    until: float | None = None,
    stops: bool = False,
    **model: Any,
) -> DeletableTaskFiles:
    jobs = [Job(state=state, finished_at=ended, created_at=0.0) for state in states]
    values = {"keep_training_data": False, "held_out": "keep", "deleted_at": None, **model}
    task = Task(train_sha256="x", created_at=0.0, train_until=until, stops=stops)
    return find_deletable_task_files(Model(**values), task, jobs, published, NOW, 7.0)


@pytest.mark.parametrize(
    ("states", "ended", "published", "model", "expected"),
    [
        (["succeeded"], RECENT, True, {}, DeletableTaskFiles(archive=True)),
        (["succeeded"], OLD, True, {}, DeletableTaskFiles(archive=True, train=True)),
        (["succeeded"], OLD, True, {"keep_training_data": True}, DeletableTaskFiles(archive=True)),
        (
            ["succeeded"],
            RECENT,
            True,
            {"held_out": "counts"},
            DeletableTaskFiles(archive=True, held_out=True),
        ),
        (["succeeded"], RECENT, False, {}, DeletableTaskFiles(archive=True)),
        (["succeeded"], OLD, False, {}, DeletableTaskFiles(archive=True, train=True)),
        (["succeeded"], OLD, False, {"held_out": "counts"}, DeletableTaskFiles(True, True, True)),
        (["succeeded"], OLD, False, {"keep_training_data": True}, DeletableTaskFiles(archive=True)),
        (["succeeded", "cancelled"], RECENT, False, {}, DeletableTaskFiles(archive=True)),
        (["succeeded", "succeeded"], RECENT, True, {}, DeletableTaskFiles(archive=True)),
        (["succeeded", "queued"], OLD, False, {}, DeletableTaskFiles(archive=True)),
        (["failed"], RECENT, False, {}, DeletableTaskFiles(archive=True)),
        (["failed"], OLD, False, {}, DeletableTaskFiles(True, True, True)),
        (["failed"], OLD, False, {"keep_training_data": True}, DeletableTaskFiles(archive=True)),
        (["rejected"], RECENT, False, {}, DeletableTaskFiles(True, True, True)),
        (["cancelled"], RECENT, False, {}, DeletableTaskFiles(archive=True)),
        (["cancelled"], OLD, False, {}, DeletableTaskFiles(True, True, True)),
        (["paused"], OLD, False, {}, DeletableTaskFiles(archive=True)),
        (["running"], OLD, False, {"deleted_at": OLD}, DeletableTaskFiles(archive=True)),
        (
            ["cancelled"],
            RECENT,
            False,
            {"deleted_at": OLD, "keep_training_data": True},
            DeletableTaskFiles(True, True, True),
        ),
    ],
)
def test_what_may_go(
    states: list[str],
    ended: float,
    published: bool,
    model: dict[str, Any],
    expected: DeletableTaskFiles,
) -> None:
    assert find_deletable_files(states, ended=ended, published=published, **model) == expected


def test_an_archive_that_is_not_decoded_stays_while_its_job_may_run() -> None:
    jobs = [Job(state="paused", finished_at=None, created_at=0.0)]
    model = Model(keep_training_data=False, held_out="keep", deleted_at=None)
    assert (
        find_deletable_task_files(
            model, Task(train_sha256=None, created_at=0.0), jobs, False, NOW, 7.0
        )
        == DeletableTaskFiles()
    )


@pytest.mark.parametrize(("until", "expected"), [(NOW + 1, False), (NOW, True), (NOW - 1, True)])
@pytest.mark.parametrize("ended", [RECENT, OLD])
def test_the_training_part_waits_for_the_day_that_its_task_names(
    until: float, ended: float, expected: bool
) -> None:
    assert (
        find_deletable_files(["succeeded"], ended=ended, published=True, until=until).train
        is expected
    )


@pytest.mark.parametrize("states", [["succeeded"], ["failed"], ["rejected"]])
def test_nothing_that_could_be_learned_again_goes_while_its_task_stops_the_line(
    states: list[str],
) -> None:
    found = find_deletable_files(states, ended=OLD, until=OLD, stops=True)
    assert not found.train and not found.held_out


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_an_archive_that_is_not_decoded_waits_for_a_retry(state: str) -> None:
    for ended, gone in ((RECENT, False), (OLD, True)):
        jobs = [Job(state=state, finished_at=ended, created_at=0.0)]
        model = Model(keep_training_data=False, held_out="keep", deleted_at=None)
        task = Task(train_sha256=None, created_at=0.0, stops=False)
        assert find_deletable_task_files(model, task, jobs, False, NOW, 7.0).archive is gone
