"""Validation: dataset first, then one transaction, then the raw archive goes. Decoding itself is
faked.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.database.states import JobAction, JobState
from core.database.tables import Model, StoredJobEvent, Task
from core.errors import LabelsInvalid, LeaseLost, Rejected, StoredObjectDamaged, WrongState
from core.execution import validate as validating
from core.ingest.findings.batch_data import find_near_duplicates_in_batch
from core.ingest.findings.traces import ImageFingerprints, write_image_fingerprints
from core.ingest.ingest import DecodingCallbacks, IngestedBatch
from core.retention import damage
from core.scheduling import claim as claims


def build_decode_stub(**values: Any) -> Any:
    """Build a stand-in for `decode_archive_to_datasets` that writes an archive as two small files."""

    def decode_stub_archive(
        archive: Path, media_type: str, folder: Path, options: Any, _: Any
    ) -> IngestedBatch:
        assert archive.read_bytes() == b"zip"
        for name in ("train", "held"):
            (folder / name).write_text(f"{name} of {archive.name}")
        nothing = np.zeros((0, 2), np.uint64)
        traces = ImageFingerprints(np.ones((1, 2), np.uint64), nothing, [archive.name])
        write_image_fingerprints(folder / "traces", traces)
        near = find_near_duplicates_in_batch(traces, np.zeros(1, np.bool_))
        classes = values.get("classes", {"cat": 3, "dog": 2})
        allowed = options.allowed_classes
        unknown = sorted(set(classes) - set(allowed or classes))
        if unknown:
            raise LabelsInvalid(
                f"The model does not know {unknown}; its classes are fixed: {allowed}."
            )
        return IngestedBatch(
            folder / "train", folder / "held", folder / "traces", classes, allowed or sorted(classes), 4, 1,
            {"rejected": [], "ignored": 1, "duplicates": 0, "data": {"near_duplicates": near}}, ["one warning"],
        )  # fmt: skip

    return decode_stub_archive


@pytest.fixture
def run(desk: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(validating, "decode_archive_to_datasets", build_decode_stub())

    def validate_claim(claim: Any) -> None:
        folder = desk.folder / f"ingest-{claim.fence}-{claim.job_id}"
        folder.mkdir(exist_ok=True)
        validating.decode_archive_and_start_job(
            desk.db,
            desk.store,
            claim,
            desk.settings,
            folder,
            DecodingCallbacks(),
        )

    return validate_claim


def test_a_damaged_archive_is_not_the_batchs_fault_and_is_marked(desk: Any, run: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    key = desk.task(job_id).archive_key
    desk.store.put_bytes(key, b"ziq")
    with pytest.raises(
        StoredObjectDamaged, match=r"A file of task 1 is damaged.*send the batch again"
    ):
        run(desk.claim())
    with desk.db.read() as session:
        assert [row.key for row in damage.list_damage_marks(session, 9)] == [key]


def test_a_validated_task_has_its_dataset_and_no_archive(desk: Any, run: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    run(desk.claim())
    task = desk.task(job_id)
    assert desk.state(job_id) is JobState.RUNNING
    assert (task.classes, task.n_train, task.n_held_out) == ({"cat": 3, "dog": 2}, 4, 1)
    assert (task.report["ignored"], task.warnings) == (1, ["one warning"])
    assert desk.blobs.has(task.train_sha256) and desk.blobs.has(task.held_out_sha256)
    assert desk.blobs.has(task.traces_sha256) and task.traces_bytes
    assert task.archive_key is None
    assert not desk.keys("archives/")
    assert desk.messages(job_id) == [
        "Attempt 1 began; the archive is decoded first.",
        "Decoded 5 images of 2 classes: 4 to learn from, 1 held out to measure.",
        "1 file ignored: not an image of a class.",
        "one warning",
    ]


NO_CONFLICTS = {
    "conflicts": [],
    "conflicts_count": 0,
    "near_conflicts": [],
    "near_conflicts_count": 0,
    "conflicts_not_compared": [],
}
GIVEN = {"classes": {"new": ["cat"], "known": [], "look_alike": []}, "duplicates_policy": "drop"}


def test_what_the_submit_said_and_was_told_outlives_the_decoding(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    with desk.db.write() as session:
        session.query(Task).one().report = {**GIVEN, "notes": ["before"], "ignored": 9}
    policies: list[str] = []

    def record_policy_and_decode(
        archive: Path, media_type: str, folder: Path, options: Any, monitor: Any
    ) -> IngestedBatch:
        policies.append(options.duplicates)
        made: IngestedBatch = build_decode_stub()(archive, media_type, folder, options, monitor)
        return made

    monkeypatch.setattr(validating, "decode_archive_to_datasets", record_policy_and_decode)
    run(desk.claim())
    assert policies == ["drop"]
    report = desk.task(job_id).report
    assert report.pop("data")["near_duplicates"]["earlier"] == []
    assert report == {"rejected": [], "ignored": 1, "duplicates": 0} | GIVEN | NO_CONFLICTS


def test_what_the_submit_said_is_in_the_report_of_a_rejected_batch_too(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.submit(desk.model(), decoded=False, archive=b"zip")
    with desk.db.write() as session:
        session.query(Task).one().report = GIVEN

    def reject_batch(*_: Any, **__: Any) -> IngestedBatch:
        raise Rejected("Not one.", extra={"report": {"rejected_count": 7}})

    monkeypatch.setattr(validating, "decode_archive_to_datasets", reject_batch)
    with pytest.raises(Rejected) as caught:
        run(desk.claim())
    assert caught.value.extra["report"] == {"rejected_count": 7} | GIVEN


def test_task_one_of_a_data_model_fixes_the_classes(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = desk.model("data")
    desk.submit(model, decoded=False, archive=b"zip")
    second = desk.submit(model, decoded=False, archive=b"zip")
    claim = desk.claim()
    run(claim)
    assert desk.all(Model, id=model)[0].classes == ["cat", "dog"]
    claims.fail_claimed_job_or_trial(desk.db, claim, "code", "x")
    monkeypatch.setattr(
        validating, "decode_archive_to_datasets", build_decode_stub(classes={"cat": 1, "cow": 1})
    )
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
    job_id, claim = desk.begin(decoded=False, archive=b"zip")
    with monkeypatch.context() as patched:
        patched.setattr(validating, "_store_decoding_result_in_task", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(claim)
    assert desk.state(job_id) is JobState.VALIDATING
    assert not [
        e
        for e in desk.all(StoredJobEvent, job_id=job_id, type="log")
        if "Decoded" in e.data["message"]
    ]
    assert desk.task(job_id).train_sha256 is None
    assert desk.keys("archives/")
    run(claim)
    assert desk.state(job_id) is JobState.RUNNING


def test_a_crash_after_the_transaction_does_not_decode_again(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, claim = desk.begin(decoded=False, archive=b"zip")
    with monkeypatch.context() as patched:
        patched.setattr(validating, "delete_task_archive", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(claim)
    desk.lose(claim)
    assert desk.claim().state is JobState.RUNNING
    assert desk.task(job_id).archive_key is not None  # the sweep's


def test_a_zombie_cannot_validate(desk: Any, run: Any) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    zombie = desk.claim("zombie")
    desk.lose(zombie)
    desk.claim("owner")
    with pytest.raises(LeaseLost):
        run(zombie)
    assert desk.state(job_id) is JobState.VALIDATING
    assert desk.task(job_id).train_sha256 is None
    assert desk.keys("archives/")


def test_a_stop_during_decoding_wins(desk: Any, run: Any) -> None:
    job_id, claim = desk.begin(decoded=False, archive=b"zip")
    desk.act(job_id, JobAction.PAUSE)
    with pytest.raises(WrongState):
        run(claim)
    assert claims.complete_pause_or_cancellation(desk.db, claim) is JobState.PAUSED
    assert desk.keys("archives/")


def test_an_archive_that_two_tasks_share_stays_for_the_other(desk: Any, run: Any) -> None:
    first, second = (desk.submit(desk.model(), decoded=False, archive=b"zip") for _ in range(2))
    key = desk.task(first).archive_key
    with desk.db.write() as session:
        session.get_one(Task, desk.task(second).id).archive_key = key
    run(desk.claim())
    assert key in desk.keys("archives/")
    run(desk.claim())
    assert key not in desk.keys("archives/")


def test_a_blob_that_vanished_before_the_transaction_is_stored_again(
    desk: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = desk.submit(desk.model(), decoded=False, archive=b"zip")
    desk.lose_blobs_before_hold(monkeypatch)
    run(desk.claim())
    assert desk.blobs.has(desk.task(job_id).train_sha256)
