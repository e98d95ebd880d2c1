"""Answers about jobs that are encoded once for as long as nothing in them changes."""

from dataclasses import replace

from core.database.polling import PolledJobRow
from core.jobs.job_response import (
    EncodedJobCache,
    JobResponseContext,
    build_job_etag,
    encode_job_response,
)

ROW = PolledJobRow(
    id="job_1", owner_id="own_1", model_id="mdl_1", task_id="tsk_1", task_number=1, state="running", revision=1,
    attempt=1, progress={"phase": "train"}, error=None, version=None, recipe={}, retry_of=None, warnings=[],
    created_at=1.0, started_at=2.0, finished_at=None, kind="learn", report=None, outcome=None, stop_task=None,
    base=None, base_job=None, base_revision=None, base_progress=None, base_error=None,
    wants_gpus=None, resume_on=None, device_seen=None,
)  # fmt: skip


def test_an_answer_is_encoded_again_when_the_job_or_what_is_beside_it_changes() -> None:
    answers = EncodedJobCache()
    again = replace(ROW, revision=2, state="succeeded", version=1)
    for row, aside in (
        (ROW, JobResponseContext()),
        (ROW, JobResponseContext()),
        (again, JobResponseContext()),
        (again, JobResponseContext(outcome="rejected")),
    ):
        assert answers.encode_job_response_cached(
            row, aside, build_job_etag(row, aside)
        ) == encode_job_response(row, aside)


def test_an_answer_that_has_not_changed_is_not_encoded_again() -> None:
    answers = EncodedJobCache()
    tag = build_job_etag(ROW, JobResponseContext())
    assert answers.encode_job_response_cached(
        ROW, JobResponseContext(), tag
    ) is answers.encode_job_response_cached(ROW, JobResponseContext(), tag)


def test_answers_about_many_or_large_jobs_are_not_all_remembered() -> None:
    answers = EncodedJobCache()
    large = replace(ROW, warnings=["w" * EncodedJobCache.MOST_BYTES])
    first, second = (
        answers.encode_job_response_cached(
            large, JobResponseContext(), build_job_etag(large, JobResponseContext())
        )
        for _ in range(2)
    )
    assert first == second and first is not second
    for number in range(EncodedJobCache.MOST + 1):
        row = replace(ROW, id=f"job_{number}")
        answers.encode_job_response_cached(
            row, JobResponseContext(), build_job_etag(row, JobResponseContext())
        )
    assert len(answers._known) <= EncodedJobCache.MOST and "job_0" not in answers._known
