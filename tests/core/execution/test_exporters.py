"""Jobs that export: who may claim them, whose turn it is, and what a bound says."""

import time
from dataclasses import replace
from typing import Any

import pytest

from core.database.tables import ExportCapableWorker, ExportJob, Job, Model, Version
from core.execution import exporters
from core.execution.exporting import read_export_job_inputs
from core.execution.kinds import KINDS
from core.execution.kinds.export import EXPORT
from core.jobs.jobs import build_queued_taskless_job
from core.jobs.postponement import JobPutOffSignal
from core.scheduling import claim as claims
from core.versions.exporters import has_exporting_worker
from worker.attempts import failure_texts


def create_export_job(desk: Any, model: str, format: str = "onnx") -> str:
    """Create a queued job that exports version 0 of a model."""
    time.sleep(0.002)  # ids of jobs carry milliseconds
    with desk.db.write() as session:
        version = session.query(Version).filter_by(model_id=model).first()
        job = build_queued_taskless_job(
            session.get_one(Model, model), "export", {}, {}, desk.db.now(session)
        )
        session.add(job)
        session.flush()
        session.add(ExportJob(version_id=version.id, format=format, job_id=job.id, fence=None))
        return str(job.id)


def test_a_worker_without_the_packages_leaves_exports_to_others(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = create_export_job(desk, desk.model())
    with monkeypatch.context() as lacking:
        lacking.setitem(KINDS, "export", replace(EXPORT, able=lambda: False))
        assert claims.claim_job(desk.db, "w1", 60.0) is None
    assert desk.claim().job_id == job


def test_a_batch_of_the_same_owner_is_learned_first_and_every_second_turn_is_the_older_exports(
    desk: Any,
) -> None:
    model, other = desk.model(), desk.model()
    exports = [create_export_job(desk, model), create_export_job(desk, other)]
    batches = [desk.submit(model), desk.submit(other)]
    turns = [desk.claim().job_id for _ in range(4)]
    assert turns == [batches[0], exports[0], batches[1], exports[1]]


def test_one_job_exports_at_a_time_and_the_next_goes_on_when_it_leaves(desk: Any) -> None:
    first, second = create_export_job(desk, desk.model()), create_export_job(desk, desk.model())
    one, two = desk.claim("w1"), desk.claim("w2")
    assert {one.job_id, two.job_id} == {first, second}
    exporters.begin_export_or_raise_put_off(desk.db, one, 1)
    with pytest.raises(
        JobPutOffSignal, match="1 jobs export, the most at once: PERENNIAL_MAX_EXPORTS"
    ):
        exporters.begin_export_or_raise_put_off(desk.db, two, 1)
    claims.put_off_claimed_job(desk.db, two, "later", 100.0)
    assert claims.claim_job(desk.db, "w2", 60.0) is None
    exporters.end_export_and_release_waiting(desk.db, one)
    again = desk.claim("w2")
    exporters.begin_export_or_raise_put_off(desk.db, again, 1)


def test_a_job_whose_worker_died_keeps_nobody_waiting(desk: Any) -> None:
    create_export_job(desk, desk.model())
    create_export_job(desk, desk.model())
    one, two = desk.claim("w1"), desk.claim("w2")
    exporters.begin_export_or_raise_put_off(desk.db, one, 1)
    desk.set(one.job_id, lease_until=1.0)
    assert claims.take_back_jobs_with_expired_lease(desk.db) == [one.job_id]
    exporters.begin_export_or_raise_put_off(desk.db, two, 1)


def test_a_worker_with_the_packages_says_that_it_is_there(desk: Any) -> None:
    desk.model()
    exporters.record_worker_if_able_to_export(desk.db, "w1")
    exporters.record_worker_if_able_to_export(desk.db, "w1")
    with desk.db.read() as session:
        assert has_exporting_worker(session, desk.db.now(session))
        assert [row.worker for row in session.query(ExportCapableWorker)] == ["w1"]


def test_a_worker_without_them_says_nothing(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.model()
    monkeypatch.setattr(exporters, "has_onnx_export_packages", lambda: False)
    exporters.record_worker_if_able_to_export(desk.db, "w1")
    with desk.db.read() as session:
        assert not has_exporting_worker(session, desk.db.now(session))


def test_a_job_knows_its_version_and_what_it_answers_with(desk: Any) -> None:
    model = desk.model()
    create_export_job(desk, model)
    found = read_export_job_inputs(desk.db, desk.claim())
    assert (found.number, found.format, found.model_id, found.held_out) == (0, "onnx", model, [])


def test_what_a_bound_says_is_about_exports() -> None:
    assert "PERENNIAL_MAX_EXPORT_S" in failure_texts.explain_job_overtime(
        600.0, EXPORT.advice
    ) and "epochs" not in failure_texts.explain_job_overtime(1, EXPORT.advice)
    assert "format=safetensors" in failure_texts.explain_memory_exceeded(10**9, EXPORT.advice)
    assert "fewer epochs" in failure_texts.explain_job_overtime(600.0, KINDS["learn"].advice)
    assert Job.kind.type.length >= len("export")  # type: ignore[attr-defined]
