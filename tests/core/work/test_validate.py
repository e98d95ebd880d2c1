"""Validation: dataset first, then one transaction, then the raw archive goes. Decoding itself is faked."""

from pathlib import Path
from typing import Any

import pytest

from core.db.jobs import locked, move
from core.db.states import Action, State
from core.db.tables import Model
from core.errors import LabelsInvalid, LeaseLost, Rejected, WrongState
from core.ingest.ingest import Ingested
from core.work import claim as claims
from core.work import validate as validating


def decode(**values: Any) -> Any:
    """A stand-in for `ingest`: what it made of the archive, as two small files."""

    def ingest(archive: Path, media_type: str, folder: Path, *_: Any, **options: Any) -> Ingested:
        assert archive.read_bytes() == b"zip"
        for name in ("train", "held"):
            (folder / name).write_text(f"{name} of {archive.name}")
        classes = values.get("classes", {"cat": 3, "dog": 2})
        allowed = options["allowed_classes"]
        unknown = sorted(set(classes) - set(allowed or classes))
        if unknown:
            raise LabelsInvalid(f"The model does not know {unknown}; its classes are fixed: {allowed}.")
        return Ingested(
            folder / "train", folder / "held", classes, allowed or sorted(classes), 4, 1,
            {"rejected": [], "ignored": 1, "duplicates": 0}, ["one warning"],
        )  # fmt: skip

    return ingest


@pytest.fixture
def run(desk: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(validating, "ingest", decode())

    def validate(claim: Any) -> None:
        folder = desk.folder / f"ingest-{claim.fence}-{claim.job_id}"
        folder.mkdir(exist_ok=True)
        validating.validate(
            desk.db, desk.store, claim, desk.settings, folder, lambda done, total: None, lambda: False
        )

    return validate


def test_a_validated_task_has_its_dataset_and_no_archive(desk: Any, run: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    run(desk.claim())
    task = desk.task(job_id)
    assert desk.state(job_id) is State.RUNNING
    assert (task.classes, task.n_train, task.n_held_out) == ({"cat": 3, "dog": 2}, 4, 1)
    assert (task.report["ignored"], task.warnings) == (1, ["one warning"])
    assert desk.blobs.has(task.train_sha256) and desk.blobs.has(task.held_out_sha256)
    assert task.archive_key is None
    assert not desk.keys("archives/")


def test_task_one_of_a_data_model_fixes_the_classes(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = desk.model("data")
    desk.submit(model, decoded=False, archive=b"zip")
    second = desk.submit(model, decoded=False, archive=b"zip")
    claim = desk.claim()
    run(claim)
    assert desk.all(Model, id=model)[0].classes == ["cat", "dog"]
    claims.fail(desk.db, claim, "code", "x")
    monkeypatch.setattr(validating, "ingest", decode(classes={"cat": 1, "cow": 1}))
    claim = desk.claim()
    assert claim.job_id == second
    with pytest.raises(Rejected, match=r"cow.*cat.*dog"):
        run(claim)
    assert desk.all(Model, id=model)[0].classes == ["cat", "dog"]


def test_a_class_model_keeps_no_list_of_classes(desk: Any, run: Any) -> None:
    model = desk.model("class")
    desk.submit(model, decoded=False, archive=b"zip")
    run(desk.claim())
    assert desk.all(Model, id=model)[0].classes is None


def test_a_crash_before_the_transaction_can_be_repeated(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    claim = desk.claim()
    with monkeypatch.context() as patched:
        patched.setattr(validating, "_fill", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(claim)
    assert desk.state(job_id) is State.VALIDATING
    assert desk.task(job_id).train_sha256 is None
    assert desk.keys("archives/")
    run(claim)
    assert desk.state(job_id) is State.RUNNING


def test_a_crash_after_the_transaction_does_not_decode_again(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    claim = desk.claim()
    with monkeypatch.context() as patched:
        patched.setattr(validating, "forget_archive", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(claim)
    desk.expire(claim)
    claims.reap(desk.db)
    assert desk.claim().state is State.RUNNING
    assert desk.task(job_id).archive_key is not None  # the sweep's


def test_a_zombie_cannot_validate(desk: Any, run: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    zombie = desk.claim("zombie")
    desk.expire(zombie)
    claims.reap(desk.db)
    desk.claim("owner")
    with pytest.raises(LeaseLost):
        run(zombie)
    assert desk.state(job_id) is State.VALIDATING
    assert desk.task(job_id).train_sha256 is None
    assert desk.keys("archives/")


def test_a_stop_during_decoding_wins(desk: Any, run: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    claim = desk.claim()
    with desk.db.write() as session:
        move(session, locked(session, job_id), Action.PAUSE, 1.0)
    with pytest.raises(WrongState):
        run(claim)
    assert claims.stopped(desk.db, claim) is State.PAUSED
    assert desk.keys("archives/")


def test_an_archive_that_two_tasks_share_stays_for_the_other(desk: Any, run: Any) -> None:
    first, second = (desk.submit(desk.model(), decoded=False, archive=b"zip") for _ in range(2))
    key = desk.task(first).archive_key
    with desk.db.write() as session:
        from core.db.tables import Task

        session.get_one(Task, desk.task(second).id).archive_key = key
    run(desk.claim())
    assert key in desk.keys("archives/")
    run(desk.claim())
    assert key not in desk.keys("archives/")


def test_a_blob_that_vanished_before_the_transaction_is_stored_again(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    hold = validating.hold

    def hold_late(session: Any, claim: Any) -> Any:
        for key in desk.keys("blobs/"):
            desk.store.delete(key)
        return hold(session, claim)

    monkeypatch.setattr(validating, "hold", hold_late)
    run(desk.claim())
    assert desk.blobs.has(desk.task(job_id).train_sha256)
