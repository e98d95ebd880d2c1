"""One attempt at one job: run its kind, train in a child process if it asks, or give the job back.

However an attempt ends, exactly one outcome is recorded under the fence: published, finished,
rejected, failed, stopped, requeued or released. After the loss of the lease nothing is recorded. An
outage of database or store is never the job's fault: it does not count as a strike.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from core import machine, telemetry
from core.contract.jobs.job_event import (
    DoneEvent,
    JobEvent,
    JobFailedEvent,
    LogEvent,
    PhaseEvent,
    ProgressEvent,
)
from core.database.session import Database, is_database_outage
from core.database.states import LEASED, JobState
from core.database.tables import Job
from core.errors import (
    BatchHeldForFindings,
    LeaseLost,
    PerennialError,
    PretrainedWeightsUnavailable,
    Rejected,
    StoredObjectDamaged,
    Unavailable,
    WrongState,
)
from core.execution import progress
from core.execution.kinds import KINDS, ClaimedJobContext
from core.execution.kinds.kind import JobOutcome
from core.failpoints import hit_failpoint
from core.files import disk
from core.ingest.ingest import IngestStopped
from core.jobs.postponement import JobPutOffSignal
from core.publishing.publish import publish_or_hold_job_result
from core.publishing.trials import judge_trial_version_without_publishing
from core.scheduling import claim as claims
from core.scheduling.claim import JobClaim
from core.settings import Settings
from core.storage import ObjectStorage
from core.uploads import upload_removal
from perennial.steps import ApiRequestForAdvice
from worker.attempts import failure_texts
from worker.attempts.child import ForkServer, ForkServerDied
from worker.attempts.heartbeat import LeaseHeartbeat
from worker.attempts.memory import JobMemoryLimitEnforcer
from worker.attempts.recorder import JobEventRecorder
from worker.attempts.supervisor import (
    ProcessOutcome,
    SupervisionPeriodsAndLimits,
    supervise_job_process,
)

log = structlog.get_logger(__name__)

PUBLISH_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0, 60.0, 60.0)
"""Pauses between attempts to publish in an outage: the training is done and worth waiting for."""
REPORT_FIRST_S, REPORT_LONGEST_S = 0.25, 4.0
"""First and longest pause between attempts to record the outcome in an outage of the database."""
PROGRESS_S = 1.0
SLACK_BYTES = 512 << 20
"""Bytes of address space that a job process reserves and does not use; measured: 100 to 300 MB."""
HELD = "data-held"
"""Kind of error of a job process whose recipe holds the batch because of findings."""
FATAL = frozenset({"data", "code", "non-finite", "export"})
"""Kinds of error that another attempt would only repeat."""


@dataclass(frozen=True)
class AttemptResources:
    """Resources of a worker that all its job attempts share, such as database, store and fork
    server.

    Attributes:
        is_device_lost: returns True if the device, not the job, caused an error with a given
            message.
        device_warning: problem of the device that jobs run on, for their logs; None: there is none.
    """

    settings: Settings
    db: Database
    store: ObjectStorage
    zygote: Callable[[], ForkServer]
    folder: Path
    is_device_lost: Callable[[str], bool] = lambda _message: True
    device_warning: str | None = None


class JobAttempt:
    """One attempt of a worker to run a claimed job, until it has finished, failed or been given
    back.

    Args:
        stop: returns True if the worker must shut down.
    """

    def __init__(self, tools: AttemptResources, claim: JobClaim, stop: Callable[[], bool]) -> None:
        self._tools = tools
        self._claim = claim
        self._stop = stop
        # The fence is in the name: the files of two attempts at one job never mix.
        self._folder = tools.folder / f"{claim.job_id}-{claim.fence}"
        self._kind = KINDS[claim.kind]
        self._cache = tools.settings.make_folder("cache")
        self._ends_at = float("inf")
        self._reported_at = 0.0
        self.outage = False
        """True if database, store or disk, not the job, ended the attempt."""
        lease_s = tools.settings.lease_s
        self._beat = LeaseHeartbeat(
            beat=lambda: claims.renew_job_lease(tools.db, claim.job_id, claim.fence, lease_s),
            look=self._read_leased_job_state,
            lease_s=lease_s,
        )

    def wake_heartbeat_to_read_job_state(self) -> None:
        """Read the job's state now instead of at the next heartbeat, because a notification
        arrived.
        """
        self._beat.wake_to_read_job_state()

    def run_attempt(self) -> None:
        """Run the claimed job, and record how the attempt ended.

        Raises:
            LeaseLost: another worker owns the job; nothing was written.
            sqlalchemy.exc.SQLAlchemyError: the database is out; the lease will run out.
        """
        claim = self._claim
        log.info(
            "attempt",
            kind=claim.kind,
            number=claim.attempt,
            fence=claim.fence,
            state=str(claim.state),
        )
        try:
            with self._beat:
                try:
                    self._folder.mkdir(parents=True)
                    self._run_job_of_kind()
                except IngestStopped:
                    self._handle_stop_or_timeout()
                except WrongState as error:
                    self._handle_late_control_request(error)
                except Rejected as rejected:
                    log.info("rejected", reason=rejected.detail)
                    self._reject_batch(rejected)
                except JobPutOffSignal as later:
                    self._postpone_job(later)
                except Unavailable as error:
                    self._give_back_job("outage", str(error))
                # The zygote is the worker's own, so its death is no strike of the job.
                except ForkServerDied as error:
                    self._give_back_job("zygote", str(error))
                # This counts: damage stays, and the job would be claimed again and again.
                except StoredObjectDamaged as error:
                    self._requeue_or_fail_attempt(error.code, error.detail, counts=True)
                # With the lease gone, nothing may be recorded about the job any more.
                except LeaseLost:
                    raise
                except PretrainedWeightsUnavailable as error:
                    self._fail_attempt("weights", error.detail)
                except PerennialError as error:
                    self._fail_attempt("data", error.detail)
                except OSError as error:
                    # A full disk is not the job's fault, and another worker may have room.
                    if disk.is_disk_full_error(error):
                        self._give_back_job("disk", f"The worker's disk is full: {error}")
                        return
                    log.exception("attempt failed")
                    self._requeue_or_fail_attempt(
                        "disk", f"{type(error).__name__}: {error}", counts=True
                    )
                except Exception as error:
                    if is_database_outage(error):
                        self._give_back_job("outage", "The database did not answer.")
                        return
                    log.exception("attempt failed")
                    detail = f"{type(error).__name__}: {error}"
                    self._fail_attempt("code", detail[:2000])
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        # A task's archive is retained for a retry; such a job's own upload has no other use.
        if claim.task_id is None:
            self._delete_uploaded_archive()

    def _run_job_of_kind(self) -> None:
        tools = self._tools
        # The database's clock may be set; the limit of this attempt must not move with it.
        self._ends_at = time.monotonic() + self._compute_seconds_left()
        work = ClaimedJobContext(
            tools.db,
            tools.store,
            tools.settings,
            self._claim,
            self._folder,
            must_stop=lambda: self._should_stop_attempt() or self._is_time_exceeded(),
            progress=self._write_job_progress,
            begin=self._store_phase_start,
            train=self._train_and_publish,
            process=self._run_process_or_end_attempt,
            publish=self._start_phase_and_publish_version,
            judge=lambda made: judge_trial_version_without_publishing(
                tools.db, tools.store, self._claim, made, self._cache
            ),
        )
        done = self._kind.run(work)
        if done is not None:
            self._finish_job_without_version(done)

    def _train_and_publish(self, spec: Path) -> None:
        """Run the training process to its end, then publish the version that it made."""
        result_folder = self._run_process_or_end_attempt(spec)
        if result_folder is not None:
            self._start_phase_and_publish_version(result_folder)

    def _start_phase_and_publish_version(self, result_folder: Path) -> None:
        self._store_phase_start("publish")
        self._publish_version(result_folder)

    def _run_process_or_end_attempt(self, spec: Path) -> Path | None:
        """Run the job's child process; return the folder with its result, or None if it gave none."""
        tools, claim = self._tools, self._claim
        settings = tools.settings
        left_s = self._compute_seconds_left()
        bound = settings.usable_job_memory_bytes
        on_cpu = _does_job_run_on_cpu(settings, claim)
        recorder = JobEventRecorder(tools.db, tools.store, claim)
        if tools.device_warning is not None:
            recorder.write_job_events([LogEvent(level="warning", message=tools.device_warning)])
        # A limit of addresses does not fit CUDA, which reserves far more of them than it uses.
        child = tools.zygote().fork_child(spec, bound + SLACK_BYTES if bound and on_cpu else 0)
        log.info("job process", pid=child.pid)
        periods = SupervisionPeriodsAndLimits(
            settings.snapshot_s, settings.anytime_s, settings.stall_s, settings.grace_s, left_s
        )
        with JobMemoryLimitEnforcer(child, bound) as memory:
            outcome = supervise_job_process(child, self._beat, recorder, periods, self._stop)
        error = outcome.event if isinstance(outcome.event, JobFailedEvent) else None
        refused = error is not None and error.kind == "memory" and on_cpu
        # The kernel may refuse the allocation, or the watch end the process: one message for both.
        if bound and (refused or (memory.is_memory_exceeded and outcome.ending == "died")):
            log.warning("job process outgrew its memory", pid=child.pid, bound=bound)
            self._fail_attempt(
                "memory", failure_texts.explain_memory_exceeded(bound, self._kind.advice)
            )
            return None
        return self._get_result_or_end_attempt(outcome)

    def _compute_seconds_left(self) -> float:
        """Return the seconds that the job may still run before its time limit."""
        max_seconds, db = self._kind.longest_s(self._tools.settings), self._tools.db
        if not max_seconds:
            return float("inf")
        with db.read() as session:
            return max_seconds - progress.count_seconds_job_was_claimed(
                session, self._claim.job_id, db.now(session), max_seconds
            )

    def _write_job_progress(self, phase: str, done: int, total: int) -> None:
        """Store the job's progress, at most once a second; a database outage is ignored."""
        now = time.monotonic()
        if now - self._reported_at < PROGRESS_S or self._beat.is_lease_lost:
            return
        self._reported_at = now
        self._store_event(ProgressEvent(phase=phase, step=done, total_steps=total, images=done))

    def _store_phase_start(self, phase: str) -> None:
        """Store that a phase of the job begins; a database outage is ignored."""
        if not self._beat.is_lease_lost:
            self._store_event(PhaseEvent(phase=phase))

    def _store_event(self, event: JobEvent) -> None:
        try:
            progress.store_job_process_events(self._tools.db, self._claim, [event])
        except SQLAlchemyError as error:
            if not is_database_outage(error):
                raise

    def _should_stop_attempt(self) -> bool:
        return self._beat.is_lease_lost or self._beat.requested_state is not None or self._stop()

    def _is_time_exceeded(self) -> bool:
        return time.monotonic() > self._ends_at

    def _get_result_or_end_attempt(self, outcome: ProcessOutcome) -> Path | None:
        log.info("job process ended", ending=outcome.ending, status=outcome.status)
        match outcome.event:
            # A child may report a result and still be ended by force: the ending decides.
            case DoneEvent() if outcome.ending == "done":
                return outcome.event.path
            case JobFailedEvent() if outcome.ending == "error":
                self._end_attempt_by_process_error(outcome.event)
                return None
        match outcome.ending:
            case "stopped" | "cancelled":
                self._record_stop()
            case "lost":
                raise LeaseLost(
                    f"The lease on {self._claim.job_id} (fence {self._claim.fence}) is lost."
                )
            case "stalled":
                seconds = self._tools.settings.stall_s
                self._requeue_or_fail_attempt(
                    "stalled", f"The job process made no progress for {seconds:g} s.", counts=True
                )
            case "overtime":
                self._fail_for_overtime()
            case _:
                self._requeue_or_fail_attempt(
                    "died", failure_texts.explain_process_death(outcome.status), counts=True
                )
        return None

    def _end_attempt_by_process_error(self, error: JobFailedEvent) -> None:
        log.warning(
            "job process failed", kind=error.kind, message=error.message, trace=error.traceback
        )
        if error.kind == HELD:
            self._reject_for_findings(error.message)
        elif error.kind in FATAL:
            self._fail_attempt(error.kind, error.message)
        elif error.kind == "disk":
            self._give_back_job("disk", f"The worker's disk is full: {error.message}")
        elif error.kind == "device":
            self._requeue_or_fail_after_device_error(error)
        else:
            self._requeue_or_fail_after_out_of_memory(error)

    def _requeue_or_fail_after_device_error(self, error: JobFailedEvent) -> None:
        """Record a device error: give the job back if the device is lost, else count it against the
        job.
        """
        if self._tools.is_device_lost(error.message):
            self._give_back_job("device", f"The worker's device cannot be used: {error.message}")
            return
        reason = f"The job made an error on the device, which works for others: {error.message}"
        self._requeue_or_fail_attempt("device", reason, counts=True)

    def _requeue_or_fail_after_out_of_memory(self, error: JobFailedEvent) -> None:
        detail = failure_texts.explain_repeated_out_of_memory(
            error, self._claim.device, self._kind.advice
        )
        short = f"Out of memory: {error.message}"
        state = self._report_outcome_with_retries(
            lambda: claims.count_out_of_memory_and_requeue_or_fail_job(
                self._tools.db, self._claim, short, detail
            )
        )
        log.warning("out of memory", reason=detail, state=str(state))
        _count_ended_attempt_in_metrics(
            "failed" if state is JobState.FAILED else "requeued", "memory"
        )

    def _publish_version(self, result: Path) -> None:
        """Publish the trained version, retrying during an outage while the lease is valid."""
        pauses = iter(PUBLISH_PAUSES_S)
        while True:
            try:
                tools = self._tools
                version_status = publish_or_hold_job_result(
                    tools.db, tools.store, self._claim, result, self._cache
                )
            except (SQLAlchemyError, Unavailable) as error:
                if isinstance(error, SQLAlchemyError) and not is_database_outage(error):
                    raise
                pause = next(pauses, None)
                # The job is given back without a strike, and resumes from its last snapshot.
                if pause is None:
                    raise
                log.warning("cannot publish yet", error=type(error).__name__)
                until = time.monotonic() + pause
                while time.monotonic() < until:
                    if self._should_stop_attempt():
                        raise
                    # Short steps, so that a cancellation is noticed within a pause of a minute.
                    time.sleep(0.1)
            else:
                log.info(version_status.status, version=version_status.number)
                _count_ended_attempt_in_metrics(version_status.status)
                return

    def _record_stop(self) -> None:
        """Record that the job stopped, because a person asked for it or the worker shuts down."""
        if self._beat.is_lease_lost:
            raise LeaseLost(
                f"The lease on {self._claim.job_id} (fence {self._claim.fence}) is lost."
            )
        hit_failpoint("release-asked")
        state = self._report_outcome_with_retries(
            lambda: claims.complete_pause_or_cancellation(self._tools.db, self._claim)
        )
        log.info("stopped", state=str(state))
        _count_ended_attempt_in_metrics("stopped", str(state))

    def _handle_stop_or_timeout(self) -> None:
        # A person who stops the job at its last moment must not see it fail.
        if self._is_time_exceeded() and not self._should_stop_attempt():
            self._fail_for_overtime()
        else:
            self._record_stop()

    def _fail_for_overtime(self) -> None:
        self._fail_attempt(
            "time",
            failure_texts.explain_job_overtime(
                self._kind.longest_s(self._tools.settings), self._kind.advice
            ),
        )

    def _finish_job_without_version(self, done: JobOutcome) -> None:
        self._report_outcome_with_retries(
            lambda: claims.finish_job_without_version(self._tools.db, self._claim, done)
        )
        log.info("finished")
        _count_ended_attempt_in_metrics("finished")

    def _delete_uploaded_archive(self) -> None:
        """Delete the uploaded archive of a finished job; the sweep does it if this attempt cannot."""
        try:
            upload_removal.delete_archive_of_finished_job(
                self._tools.db, self._tools.store, self._claim.job_id
            )
        except (SQLAlchemyError, PerennialError, OSError) as error:
            # The job has ended already: an error here must not change how.
            log.warning("upload not deleted yet", error=type(error).__name__)

    def _handle_late_control_request(self, error: WrongState) -> None:
        """Handle a pause or cancel request that arrived between two checks of the job's state."""
        # In any other state, this attempt is wrong about its own job, which is a fault to be seen.
        if error.extra.get("state") not in (str(JobState.PAUSING), str(JobState.CANCELLING)):
            raise error
        self._record_stop()

    def _requeue_or_fail_attempt(self, cause: str, error: str, *, counts: bool) -> None:
        state = self._report_outcome_with_retries(
            lambda: claims.requeue_or_fail_job(self._tools.db, self._claim, error, counts=counts)
        )
        log.warning("attempt lost", cause=cause, reason=error, state=str(state), counts=counts)
        _count_ended_attempt_in_metrics("failed" if state is JobState.FAILED else "requeued", cause)

    def _postpone_job(self, later: JobPutOffSignal) -> None:
        state = self._report_outcome_with_retries(
            lambda: claims.put_off_claimed_job(
                self._tools.db, self._claim, str(later), later.seconds
            )
        )
        log.info("put off", reason=str(later), state=str(state))
        _count_ended_attempt_in_metrics("put off")

    def _give_back_job(self, cause: str, error: str) -> None:
        """Put the job back in the queue after an outage, without counting a failed attempt."""
        self.outage = True
        self._requeue_or_fail_attempt(cause, error, counts=False)

    def _fail_attempt(self, kind: str, error: str) -> None:
        self._report_outcome_with_retries(
            lambda: claims.fail_claimed_job_or_trial(self._tools.db, self._claim, kind, error)
        )
        _count_ended_attempt_in_metrics("failed", kind)

    def _reject_batch(self, reason: Rejected) -> None:
        self._report_outcome_with_retries(
            lambda: claims.reject_job(self._tools.db, self._claim, reason)
        )
        _count_ended_attempt_in_metrics("rejected", reason.code)

    def _reject_for_findings(self, findings: str) -> None:
        """Reject the batch because of findings in its images, and name the request that learns it
        anyway.

        The request contains the recipe that the batch came with.
        """
        with self._tools.db.read() as session:
            override = session.get_one(Job, self._claim.job_id).recipe_override
        body = {"recipe": {**override, "data_report": "warn"}}
        as_it_is = ApiRequestForAdvice("POST", f"/v1/jobs/{self._claim.job_id}/retry", body=body)
        self._reject_batch(
            BatchHeldForFindings(
                f'{findings} Nothing was learned, since the recipe says "data_report": "hold". '
                f"Correct the batch and send it again; or learn it as it is: {as_it_is}."
            )
        )

    def _report_outcome_with_retries(self, report: Callable[[], JobState]) -> JobState:
        """Record how the attempt ended, retrying while the database is out."""
        pause = REPORT_FIRST_S
        while True:
            try:
                return report()
            except SQLAlchemyError as error:
                # A worker that shuts down cannot wait; its lease runs out instead.
                if not is_database_outage(error) or self._stop():
                    raise
                log.warning("cannot report the outcome yet", error=type(error).__name__)
            time.sleep(pause)
            pause = min(2 * pause, REPORT_LONGEST_S)

    def _read_leased_job_state(self) -> JobState | None:
        with self._tools.db.read() as session:
            row = session.execute(
                # Under another fence, the row belongs to another claim.
                select(Job.state).where(
                    Job.id == self._claim.job_id, Job.fence == self._claim.fence
                )
            ).scalar_one_or_none()
        state = None if row is None else JobState(row)
        # A job that is not leased any more has been taken back, so this lease is lost.
        return state if state in LEASED else None


def _count_ended_attempt_in_metrics(outcome: str, cause: str = "") -> None:
    telemetry.ATTEMPTS.labels(outcome, cause).inc()


def _does_job_run_on_cpu(settings: Settings, claim: JobClaim) -> bool:
    device = settings.device if claim.device == "auto" else claim.device
    return device == "cpu" or (device == "auto" and not machine.can_open_cuda())
