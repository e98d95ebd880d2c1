"""The protocol of jobs as a state machine on the real database layer.

Workers and users act in any interleaving. Each rule is one transaction of the product, and the
machine records the expected result in simple terms of its own. `test_lineage` tests what held
versions, rollbacks and retries mean for a model's lineage. Workers never forget a claim, so each of
them may become a zombie that continues where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import update

from core.database.jobs import lock_job
from core.database.states import LEASED, TERMINAL, JobAction, JobState
from core.database.tables import AliasMove, Job, Version
from core.errors import LeaseLost, WrongState
from core.jobs import jobs
from core.publishing import publish, version_rows
from core.requests.actor import Actor
from core.scheduling import claim as claims
from core.scheduling.claim import JobClaim

LONG = 1000.0
INTERLEAVINGS = int(os.environ.get("PERENNIAL_TEST_INTERLEAVINGS", "5"))
"""Number of interleavings, of 40 steps each.

If it is larger than the default, they are drawn differently each time.
"""
SETTINGS = settings(
    max_examples=INTERLEAVINGS,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=INTERLEAVINGS == 5,
    suppress_health_check=list(HealthCheck),
)
OVER = {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}


@dataclass
class Expected:
    """The expected values of a job.

    Attributes:
        owner: the claim that may write, if any.
    """

    model: str
    place: int
    state: JobState = JobState.QUEUED
    strikes: int = 0
    owner: JobClaim | None = None
    version: int | None = None


@dataclass
class Line:
    """The expected values of a model.

    These are its versions' jobs in order, the highest fence, and the versions at which production
    has stood.
    """

    jobs: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    fence: int = 0
    production: list[int] = field(default_factory=lambda: [0])
    places: int = 0


class Protocol(RuleBasedStateMachine):
    """Two models, any number of workers. `desk` is set by the test."""

    desk: Any
    made = Bundle("jobs")
    held = Bundle("claims")

    @initialize()
    def open(self) -> None:
        self.lines: dict[str, Line] = {self.desk.model(): Line() for _ in range(2)}
        self.expected: dict[str, Expected] = {}
        self.actor = Actor(self.desk.owner, None, "write")

    def teardown(self) -> None:
        with self.desk.db.write() as session:  # jobs of one example are not claimed in the next
            session.execute(
                update(Job).values(state="cancelled", fence=None, lease_until=None, worker=None)
            )

    # People.

    @rule(target=made, which=st.integers(0, 1))
    def submit(self, which: int) -> str:
        model = list(self.lines)[which]
        job = self.desk.submit(model)
        line = self.lines[model]
        self.expected[job] = Expected(model, line.places)
        line.places += 1
        line.jobs.append(job)
        return job

    @rule(job=made)
    def cancel(self, job: str) -> None:
        now = self.expected[job]
        if now.state in (JobState.SUCCEEDED, JobState.FAILED):
            self.refused(lambda: self.act(job, JobAction.CANCEL))
            return
        self.act(job, JobAction.CANCEL)
        now.state = JobState.CANCELLING if now.owner else JobState.CANCELLED

    @rule(job=made)
    def pause(self, job: str) -> None:
        now = self.expected[job]
        if now.state in OVER or now.state is JobState.CANCELLING:
            self.refused(lambda: self.act(job, JobAction.PAUSE))
            return
        self.act(job, JobAction.PAUSE)
        now.state = JobState.PAUSING if now.owner else JobState.PAUSED

    @rule(job=made)
    def resume(self, job: str) -> None:
        now = self.expected[job]
        if now.state in (JobState.PAUSED, JobState.QUEUED, JobState.RUNNING):
            self.act(job, JobAction.RESUME)
            now.state = JobState.QUEUED if now.state is JobState.PAUSED else now.state
        else:
            self.refused(lambda: self.act(job, JobAction.RESUME))

    @rule(pick=st.integers(0, 9), cancel=st.booleans())
    def stop_one_that_runs(self, pick: int, cancel: bool) -> None:
        claim = self.owned(pick)
        if claim is not None:
            (self.cancel if cancel else self.pause)(claim.job_id)

    # Workers.

    @rule(target=held, worker=st.sampled_from("ab"))
    def claim(self, worker: str) -> JobClaim | None:
        heads = {job for line in self.lines.values() if (job := self.head(line)) is not None}
        found = claims.claim_job(self.desk.db, worker, LONG)
        if found is None:
            assert not heads, f"{heads} may be claimed"
            return None
        assert found.job_id in heads, "claimed out of turn, or while another worker has it"
        line, now = self.lines[found.model_id], self.expected[found.job_id]
        assert found.fence > line.fence, "a fence comes once"
        line.fence = found.fence
        now.state, now.owner = JobState.RUNNING, found
        return found

    @rule(claim=held)
    def beat(self, claim: JobClaim | None) -> None:
        if claim is None:
            return
        now = self.expected[claim.job_id]
        answer = claims.renew_job_lease(self.desk.db, claim.job_id, claim.fence, LONG)
        assert answer == (now.state if now.owner == claim else None)

    @rule(claim=held)
    def publish(self, claim: JobClaim | None) -> None:
        if claim is None:
            return
        now, line = self.expected[claim.job_id], self.lines[claim.model_id]

        def publish_result() -> int:
            result = self.desk.result({"head": claim.job_id}, [("new", claim.task_number, 9, 10)])
            return publish.publish_or_hold_job_result(
                self.desk.db, self.desk.store, claim, result
            ).number

        if now.version is not None:
            assert publish_result() == now.version, "published twice is published once"
        elif now.owner != claim:
            self.is_lease_lost(publish_result)
        elif now.state is not JobState.RUNNING:
            self.refused(publish_result)
        else:
            line.versions.append(claim.job_id)
            now.version = len(line.versions)
            assert publish_result() == now.version, "numbers have no gaps"
            line.production.append(now.version)
            now.state, now.owner = JobState.SUCCEEDED, None

    @rule(claim=held, how=st.sampled_from(["stopped", "requeue", "outage", "fail"]))
    def give_back(self, claim: JobClaim | None, how: str) -> None:
        if claim is None:
            return
        db, now = self.desk.db, self.expected[claim.job_id]
        ways: dict[str, Callable[[], object]] = {
            "stopped": lambda: claims.complete_pause_or_cancellation(db, claim),
            "requeue": lambda: claims.requeue_or_fail_job(db, claim, "died"),
            "outage": lambda: claims.requeue_or_fail_job(db, claim, "away", counts=False),
            "fail": lambda: claims.fail_claimed_job_or_trial(db, claim, "code", "no"),
        }
        if now.owner != claim:
            self.is_lease_lost(ways[how])
            return
        ways[how]()
        self.ended(claim.job_id, strike=how == "requeue", failed=how == "fail")
        if how == "outage":  # put off a little: not in this machine, which has no clock
            self.desk.set(claim.job_id, not_before=None)

    @rule(pick=st.integers(0, 9))
    def lease_runs_out(self, pick: int) -> None:
        """Let the lease of a job run out, so that a worker takes the job back."""
        claim = self.owned(pick)
        if claim is None:
            return
        self.desk.expire(claim)
        assert claims.take_back_jobs_with_expired_lease(self.desk.db) == [claim.job_id]
        self.ended(claim.job_id, strike=True)
        assert claims.take_back_jobs_with_expired_lease(self.desk.db) == []

    @rule(
        pick=st.integers(0, 9),
        cancelled=st.booleans(),
        how=st.sampled_from(["stopped", "requeue", "outage", "fail"]),
    )
    def zombie_goes_on(self, pick: int, cancelled: bool, how: str) -> None:
        """Let a worker that has lost its job return at once and try to end it.

        The job may have been about to be cancelled.
        """
        claim = self.owned(pick)
        if claim is None:
            return
        if cancelled:
            self.cancel(claim.job_id)
        self.lease_runs_out(pick)
        self.give_back(claim, how)

    # What must be so after every step.

    @invariant()
    def rows_are_as_expected(self) -> None:
        for job, now in self.expected.items():
            row = self.desk.job(job)
            assert JobState(row.state) is now.state, f"{row.state} and not {now.state}"
            assert row.fence == (now.owner.fence if now.owner else None), "only its owner may write"
            assert (JobState(row.state) in LEASED) == (row.lease_until is not None)
            assert (JobState(row.state) in TERMINAL) == (row.finished_at is not None)
            assert row.version == now.version

    @invariant()
    def versions_have_no_gaps_and_a_job_each(self) -> None:
        for model, line in self.lines.items():
            versions = self.desk.all(Version, model_id=model)
            assert [v.number for v in versions] == list(range(len(line.versions) + 1))
            assert [v.job_id for v in versions[1:]] == line.versions
            assert sum(self.expected[job].owner is not None for job in line.jobs) <= 1
            assert self.desk.aliases(model)["production"] == line.production[-1]
            moves = [m for m in self.desk.all(AliasMove, model_id=model) if m.alias == "production"]
            assert len(moves) >= len(line.production) - 1

    # Helpers.

    def head(self, line: Line) -> str | None:
        """Return the job of a model that may be claimed: its first unfinished one, if queued."""
        first = next((job for job in line.jobs if self.expected[job].state not in OVER), None)
        return (
            first if first is not None and self.expected[first].state is JobState.QUEUED else None
        )

    def owned(self, pick: int) -> JobClaim | None:
        """Return one of the claims that may write now."""
        found = [now.owner for now in self.expected.values() if now.owner is not None]
        return found[pick % len(found)] if found else None

    def ended(self, job: str, *, strike: bool, failed: bool = False) -> None:
        """Record the end of an attempt.

        The job ends as requested. Otherwise it is queued again, or fails at the third strike.
        """
        now = self.expected[job]
        now.strikes += strike
        now.owner = None
        asked = {
            JobState.CANCELLING: JobState.CANCELLED,
            JobState.PAUSING: JobState.FAILED if failed else JobState.PAUSED,
        }
        over = failed or (strike and now.strikes >= claims.MAX_STRIKES)
        now.state = asked.get(now.state, JobState.FAILED if over else JobState.QUEUED)

    def act(self, job: str, action: JobAction) -> None:
        jobs.apply_job_action(self.desk.db, self.actor, job, action)

    def refused(self, call: Callable[[], object]) -> None:
        with pytest.raises(WrongState):
            call()

    def is_lease_lost(self, call: Callable[[], object]) -> None:
        with pytest.raises(LeaseLost):
            call()


@pytest.fixture
def machine(desk: Any) -> Iterator[Callable[[], Protocol]]:
    def make_protocol() -> Protocol:
        made = Protocol()
        made.desk = desk
        return made

    yield make_protocol


@pytest.mark.slow
def test_any_interleaving_of_workers_and_people_keeps_the_protocol(
    machine: Callable[[], Protocol],
) -> None:
    run_state_machine_as_test(machine, settings=SETTINGS)


def lock_job_without_fence(session: Any, claim: JobClaim) -> Job:
    """Lock a job with a planted bug: every claim may write."""
    job = lock_job(session, claim.job_id)
    assert job is not None
    return job


def requeue_any_job(session: Any, job: Job, now: float, error: str) -> JobState:
    """Queue a job again with a planted bug: its state is ignored."""
    job.state, job.fence, job.worker, job.lease_until, job.strikes = (
        "queued",
        None,
        None,
        None,
        job.strikes + 1,
    )
    return JobState.QUEUED


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "a claim without the fence": (claims, "lock_claimed_job", lock_job_without_fence),
    "a publish without the check": (version_rows, "lock_claimed_job", lock_job_without_fence),
    "a reaper that revives what was cancelled": (
        claims,
        "_end_attempt_after_process_death",
        requeue_any_job,
    ),
}


@pytest.mark.campaign
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # the bugs are in no SQL
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(
    machine: Callable[[], Protocol], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bug: str
) -> None:
    monkeypatch.setattr(*PLANTED[bug])
    # Far more than are needed: which are drawn depends on the modules that are loaded (Hypothesis
    # takes their constants).
    enough = settings(SETTINGS, max_examples=max(1000, INTERLEAVINGS), phases=[Phase.generate])
    with pytest.raises(
        (AssertionError, pytest.fail.Exception, ExceptionGroup, KeyError, WrongState)
    ):
        run_state_machine_as_test(machine, settings=enough)
