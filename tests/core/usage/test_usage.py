"""Usage by model and by owner, compared with a slow, simple count."""

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from bench.service.fill import fill_database_with_generated_rows
from bench.service.series import GeneratedRowCounts, make_generated_row_id
from core.database.session import Database
from core.database.tables import (
    ExportedDownload,
    Job,
    Model,
    Owner,
    Task,
    UploadedBase,
    Version,
    VersionPart,
    VersionTaskResult,
)
from core.requests.actor import Actor
from core.usage import usage_sums
from core.usage.usage_lists import list_usage_by_model, list_usage_by_owner

ADMIN = Actor(make_generated_row_id("own", 0), None, "admin")


@pytest.fixture
def filled(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(
        usage_sums, "BUDGET_S", 3600.0
    )  # a round measures all owners, on a slow machine too
    fill_database_with_generated_rows(
        database, GeneratedRowCounts(6, 4, owners=2, measured=2, keys=2), quiet=True
    )
    with database.write() as session:
        # Blobs that two versions share, that are deleted, and files that wait or are gone.
        parts = list(
            session.execute(
                select(VersionPart).order_by(VersionPart.version_id, VersionPart.name)
            ).scalars()
        )
        parts[0].sha256 = parts[2].sha256 = "a" * 64
        parts[4].deleted_at = 1.0
        tasks = list(session.execute(select(Task).order_by(Task.id)).scalars())
        results = list(
            session.scalars(
                select(VersionTaskResult).order_by(
                    VersionTaskResult.model_id, VersionTaskResult.version, VersionTaskResult.task
                )
            )
        )
        results[0].answers = results[1].answers = "f" * 64
        results[2].answers = results[2].answers_bytes = None
        model = session.get_one(Model, tasks[0].model_id)
        model.totals_sha256, model.totals_bytes = "7" * 64, 333
        tasks[0].archive_key = "archives/x"
        tasks[0].features_sha256, tasks[0].features_bytes = "9" * 64, 777
        tasks[2].features_sha256, tasks[2].features_bytes = "8" * 64, 555
        tasks[1].train_sha256, tasks[1].n_train, tasks[1].train_deleted_at = "b" * 64, 7, None
        tasks[2].held_out_sha256, tasks[2].n_held_out, tasks[2].held_out_deleted_at = (
            "c" * 64,
            3,
            2.0,
        )
        for number, sha256 in enumerate(("d" * 64, "d" * 64, "e" * 64)):
            session.add(
                UploadedBase(
                    id=f"bas_{number}",
                    owner_id=ADMIN.owner_id,
                    architecture={},
                    sha256=sha256,
                    bytes=1000,
                    created_at=1.0,
                )
            )
    return database


def count_usage_slowly(db: Database, model: Model) -> dict[str, Any]:
    """Count one model's figures, row by row."""
    with db.read() as session:
        tasks = list(session.execute(select(Task).where(Task.model_id == model.id)).scalars())
        versions = list(
            session.execute(select(Version).where(Version.model_id == model.id)).scalars()
        )
        ids = [version.id for version in versions]
        parts = list(
            session.execute(select(VersionPart).where(VersionPart.version_id.in_(ids))).scalars()
        )
        exports = list(
            session.execute(
                select(ExportedDownload).where(ExportedDownload.version_id.in_(ids))
            ).scalars()
        )
        jobs = list(session.execute(select(Job.state).where(Job.model_id == model.id)).scalars())
        results = list(
            session.execute(
                select(VersionTaskResult).where(VersionTaskResult.model_id == model.id)
            ).scalars()
        )
    images = beside = 0
    for task in tasks:
        if task.traces_sha256 and task.held_out_deleted_at is None:
            beside += task.traces_bytes or 0
        if task.features_sha256 and task.held_out_deleted_at is None:
            beside += task.features_bytes or 0
        if task.train_sha256 and task.train_deleted_at is None:
            images += task.n_train or 0
        if task.held_out_sha256 and task.held_out_deleted_at is None:
            images += task.n_held_out or 0
    beside += sum({one.answers: one.answers_bytes or 0 for one in results if one.answers}.values())
    return {
        "tasks": len(tasks),
        "versions": len(versions),
        "jobs": {state: jobs.count(state) for state in jobs},
        "bytes": {
            "versions": sum(
                {part.sha256: part.bytes for part in parts if part.deleted_at is None}.values()
            )
            + (model.totals_bytes or 0),
            "archives": sum(task.bytes for task in tasks if task.archive_key is not None),
            "datasets": images * model.image["size"] ** 2 * model.image["channels"] + beside,
            "exports": sum(export.bytes for export in exports),
        },
    }


@pytest.mark.both_databases
def test_the_figures_of_models_and_of_an_owner_are_those_of_a_count_row_by_row(
    filled: Database,
) -> None:
    with filled.read() as session:
        models = {model.id: model for model in session.execute(select(Model)).scalars()}
    items = list_usage_by_model(filled, ADMIN, limit=50, cursor=None)["items"]
    assert len(items) == len(models) == 6
    expected = {model_id: count_usage_slowly(filled, model) for model_id, model in models.items()}
    kinds = ("tasks", "versions", "jobs", "bytes")
    assert {item["model"]: {kind: item[kind] for kind in kinds} for item in items} == expected
    assert all(
        any(one["bytes"][kind] for one in expected.values()) for kind in ("archives", "datasets")
    )
    owners = {
        item.pop("owner"): item
        for item in list_usage_by_owner(filled, ADMIN, limit=50, cursor=None)["items"]
    }
    with filled.read() as session:
        names = {owner.id: owner.name for owner in session.execute(select(Owner)).scalars()}
    assert owners.keys() == set(names.values())
    for owner_id, name in names.items():
        mine = [expected[model.id] for model in models.values() if model.owner_id == owner_id]
        got = owners[name]
        assert got["models"] == len(mine)
        assert got["tasks"] == sum(one["tasks"] for one in mine)
        assert got["versions"] == sum(one["versions"] for one in mine)
        assert sum(got["jobs"].values()) == got["tasks"]
        bases = 2000 if owner_id == ADMIN.owner_id else 0
        own = {"bases": bases, "uploads": 0}
        sums = {
            kind: sum(one["bytes"][kind] for one in mine)
            for kind in got["bytes"]
            if kind not in own
        }
        assert got["bytes"] == {**sums, **own}


def test_an_owners_figures_are_kept_until_a_worker_measures_them_again(filled: Database) -> None:
    def count_tasks() -> int:
        with_figures = list_usage_by_owner(filled, ADMIN, limit=50, cursor=None)["items"]
        return sum(item["tasks"] for item in with_figures)

    def age_usage_figures(seconds: float) -> None:
        with filled.write() as session:
            session.execute(update(Owner).values(usage_at=Owner.usage_at - seconds))

    usage_sums.measure_and_store_usage_of_outdated_owners(filled)
    before = count_tasks()
    with filled.write() as session:
        some = session.execute(select(Task).limit(1)).scalar_one()
        session.add(
            Task(
                id="tsk_new", model_id=some.model_id, number=1000, sha256="f" * 64, bytes=1, media_type="zip",
                classes={}, report={}, warnings=[], created_at=1.0,
            )
        )  # fmt: skip
    usage_sums.measure_and_store_usage_of_outdated_owners(filled)
    assert count_tasks() == before
    age_usage_figures(usage_sums.FRESH_S + 1)
    usage_sums.measure_and_store_usage_of_outdated_owners(filled)
    assert count_tasks() == before + 1


def test_a_round_of_measuring_ends_in_time_and_the_next_goes_on_with_the_oldest(
    filled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)

    def record_slow_measure(_db: Database, owner_id: str, _begun: float) -> None:
        measured.append(owner_id)
        clock.now += 2 * usage_sums.BUDGET_S

    monkeypatch.setattr(usage_sums, "measure_and_store_owner_usage", record_slow_measure)
    monkeypatch.setattr(usage_sums, "time", clock)
    owners = [make_generated_row_id("own", number) for number in range(2)]
    with filled.write() as session:
        for owner_id, at in zip(owners, (200.0, 100.0), strict=True):
            session.execute(update(Owner).where(Owner.id == owner_id).values(usage_at=at))
    usage_sums.measure_and_store_usage_of_outdated_owners(filled)
    assert measured == [owners[1]]
    usage_sums.measure_and_store_usage_of_outdated_owners(filled)
    assert measured == [owners[1], owners[0]]


def test_a_measure_that_was_overtaken_changes_nothing(
    filled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner_id = make_generated_row_id("own", 0)
    real = usage_sums.sum_owner_usage
    nested: list[int] = []

    def measure_after_nested_measure(session: Session, owner: str) -> dict[str, Any]:
        found = real(session, owner)
        if not nested:
            nested.append(1)
            with filled.write() as other:
                other.execute(update(Owner).where(Owner.id == owner_id).values(usage_at=7.0))
            usage_sums.measure_and_store_owner_usage(filled, owner_id, 7.0)
            return {**found, "tasks": -1}
        return found

    monkeypatch.setattr(usage_sums, "sum_owner_usage", measure_after_nested_measure)
    with filled.write() as session:
        session.execute(update(Owner).where(Owner.id == owner_id).values(usage_at=5.0))
    usage_sums.measure_and_store_owner_usage(filled, owner_id, 5.0)
    with filled.read() as session:
        kept = session.execute(select(Owner.usage).where(Owner.id == owner_id)).scalar_one()
    assert nested and kept is not None and kept["tasks"] > -1


@pytest.mark.both_databases
def test_of_two_workers_one_measures(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def record_and_nest_measure(db: Database, owner_id: str, _begun: float) -> None:
        measured.append(owner_id)
        if len(measured) == 1:
            usage_sums.measure_and_store_usage_of_outdated_owners(db)  # the other worker, meanwhile

    monkeypatch.setattr(usage_sums, "measure_and_store_owner_usage", record_and_nest_measure)
    usage_sums.measure_and_store_usage_of_outdated_owners(filled)
    assert len(measured) == len(set(measured)) == 2
