"""A worker, which claims jobs until none is eligible; and the main program of the embedded service.

`Worker` is the same in both sizes. Embedded (`python -m worker.loop`), it looks for jobs every poll
period and whenever the doorbell's datagram arrives; at scale, a Celery message makes it look
(`worker.celery_app`). It never imports torch; its zygote does.
"""

import contextlib
import os
import secrets
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core import telemetry
from core.database.migrate import require_current_schema
from core.database.session import STATEMENT_S, Database, is_database_outage
from core.errors import LeaseLost, PerennialError
from core.execution import exporters
from core.failpoints import hit_failpoint
from core.files import disk_reserve
from core.jobs import worker_notification, workers
from core.logging import configure_logging
from core.processes.garbage import exclude_existing_objects_from_gc
from core.processes.start_requirements import prepare_data_directory_and_check_startup
from core.scheduling import claim as claims
from core.settings import Settings
from core.storage import Blobs, open_object_store
from core.trials.trial_selection import choose_best_of_overdue_trials
from core.upkeep import scrub, sweep
from core.upkeep.scrub import Scrubber
from core.usage import usage_sums
from core.webhooks.deliver import WebhookDeliverer
from worker.attempts.attempt import AttemptResources, JobAttempt
from worker.attempts.child import COMMAND, ForkServer
from worker.attempts.folders import WorkerScratchFolder
from worker.clock_watch import DatabaseClockWatch
from worker.devices.device import DeviceWatch
from worker.reaper import ExpiredJobRequeuer
from worker.recurring_tasks import ALIVE, SWEEP_S, PeriodicChores, get_lost_device_report_file

log = structlog.get_logger(__name__)

OUTAGE_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between claims after attempts that an outage ended."""
ABANDONED_S = 1.0
"""Seconds between looks for work folders that no living worker locks."""
REAPS_PER_LEASE = 12
"""Looks for expired leases in the time of a lease.

With fewer than three, a pause between two would look like an outage.
"""


class Worker:
    """A worker process: claims jobs, runs them in child processes, and does maintenance.

    Args:
        settings: lease, periods and URLs.
        ring: function that makes (other) workers look for jobs, for the chores.
        zygote_command: command that starts the zygote.
    """

    def __init__(
        self,
        settings: Settings,
        ring: Callable[[str], object],
        zygote_command: tuple[str, ...] = COMMAND,
    ) -> None:
        self.settings = settings
        # In containers, host and process number may repeat; the name of a claim's holder must not.
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"[:120]
        # A hanging heartbeat must end before the lease does.
        statement_s = max(5.0, min(STATEMENT_S, settings.lease_s / 3))
        self.db = Database(settings.resolved_database_url, statement_s=statement_s)
        self.store = open_object_store(settings)
        self.blobs = Blobs(self.store, settings.make_folder("cache"))
        self._folder = WorkerScratchFolder(settings.make_folder("work"), self.name)
        self._command = zygote_command
        self._zygote: ForkServer | None = None
        self._attempt: JobAttempt | None = None
        self._reaper = ExpiredJobRequeuer(self.db, settings.lease_s)
        self._clock = DatabaseClockWatch(self.db, settings.lease_s)
        self._device = DeviceWatch(settings)
        self._reported: tuple[float, workers.WorkerDevice] | None = None
        self._outages = 0  # attempts in a row that an outage ended
        self._claims_from = 0.0
        self._chores = PeriodicChores(
            "chores",
            settings.chores_s,
            {
                # A notification may be lost with the broker, and nothing else would repeat it.
                "ring": lambda: [
                    ring(job_id) for job_id in sweep.find_long_waiting_claimable_jobs(self.db)
                ],
                "touch the health file": self._write_health_or_lost_device_file,
                "report the device": self._report_device_if_due,
                "compare the clocks": self._clock.detect_and_correct_clock_jump,
            },
        )
        self._reaping = PeriodicChores(
            "reaper",
            min(settings.chores_s, settings.lease_s / REAPS_PER_LEASE),
            {
                "reap": lambda: [
                    ring(job_id)
                    for job_id in self._record_requeued_jobs_in_metrics(
                        self._reaper.requeue_expired_jobs()
                    )
                ]
            },
        )
        # On its own host, a dead worker's jobs need not wait for the end of their lease.
        self._abandoned = PeriodicChores(
            "abandoned folders",
            min(ABANDONED_S, settings.chores_s),
            {
                "give back jobs of dead workers": lambda: self._requeue_jobs_of_dead_local_workers(
                    ring
                )
            },
        )
        # A thread of its own: a sweep of a large store would hold up reaping and the health check.
        self._sweeps = PeriodicChores(
            "sweeps",
            max(SWEEP_S, settings.chores_s),
            {
                "tell what it can export": lambda: exporters.record_worker_if_able_to_export(
                    self.db, self.name
                ),
                "sweep": self._delete_unneeded_data_if_clock_steady,
                "choose": lambda: [
                    ring(job_id) for job_id in choose_best_of_overdue_trials(self.db)
                ],
                "usage": lambda: usage_sums.measure_and_store_usage_of_outdated_owners(self.db),
                "reserve on the disk": lambda: disk_reserve.make_disk_reserve_file(
                    settings.data_dir, settings.reserve_bytes
                ),
            },
        )
        self._deliverer = WebhookDeliverer(self.db, settings)
        self._scrub = PeriodicChores("scrub", scrub.LOOK_AGAIN_S, {"scrub": self._run_object_scrub})

    def prepare_worker(self) -> None:
        """Check the database schema, lock the scratch folder, and start the fork server.

        Raises:
            SchemaOutdated: `perennial migrate` is missing.
        """
        # Jobs under an outdated schema would fail half-way.
        require_current_schema(self.db)
        # Before the first claim, since a folder without a lock counts as a dead worker's.
        self._folder.create_locked_work_folder()
        self._serve_worker_metrics()
        self.ensure_fork_server_running()

    def start_chores(self) -> None:
        """Start the threads for maintenance, sweeps, the scrub and webhook deliveries."""
        self._abandoned.start_chores_thread()
        self._reaping.start_chores_thread()
        self._chores.start_chores_thread()
        self._sweeps.start_chores_thread()
        self._scrub.start_chores_thread()
        self._deliverer.start_delivery_thread()

    def _serve_worker_metrics(self) -> None:
        """Serve the worker's Prometheus metrics over HTTP, if a port is set."""
        host, port = self.settings.host, self.settings.metrics_port
        if not port:
            return
        try:
            telemetry.start_metrics_server(host, port)
        except OSError as error:  # learning continues without metrics
            log.error(
                "no figures for Prometheus: give each worker a PERENNIAL_METRICS_PORT of its own",
                host=host,
                port=port,
                error=str(error),
            )

    def ensure_fork_server_running(self) -> ForkServer:
        """Return the running fork server, starting a new one if it has died."""
        if self._zygote is not None and not self._zygote.is_alive():
            log.warning("zygote died; starting another", pid=self._zygote.pid)
            self._zygote.end_fork_server()
            self._zygote = None
        if self._zygote is None:
            # Its processes hold the folder's lock too: while one runs, the worker's jobs are not
            # given to others.
            lock_fd = self._folder.lock_fd
            self._zygote = ForkServer(self._command, () if lock_fd is None else (lock_fd,))
        return self._zygote

    def run_jobs(self, stop: Callable[[], bool]) -> int:
        """Claim and run jobs, one after another, until none is eligible or `stop()` is true.

        Return the number of claimed jobs. An outage of database or store is logged and ends the
        round; a later notification or poll tries again. After an outage that ended an attempt, the
        next claim waits, longer each time, and until the store responds.
        """
        claimed = 0
        while not stop():
            # With a broken device, a worker would fail one job after the other within seconds.
            if time.monotonic() < self._claims_from or not self._device.update_readiness_to_claim():
                return claimed
            try:
                # While the store is out, each claim would end like the last one.
                if self._outages:
                    self.store.check_store_usable()
                claim = claims.claim_job(
                    self.db, self.name, self.settings.lease_s, self._device.claimable_resources
                )
            except (SQLAlchemyError, PerennialError) as error:
                log.warning("cannot claim", error=str(error).partition("\n")[0])
                return claimed
            if claim is None:
                return claimed
            claimed += 1
            hit_failpoint("claim-committed")
            if claim.waited_s is not None:
                telemetry.WAIT_SECONDS.observe(claim.waited_s)
            structlog.contextvars.bind_contextvars(job=claim.job_id, model=claim.model_id)
            try:
                tools = AttemptResources(
                    self.settings,
                    self.db,
                    self.store,
                    self.ensure_fork_server_running,
                    self._folder.path,
                    is_device_lost=self._device.is_device_lost,
                    device_warning=self._device.warning,
                )
                self._attempt = JobAttempt(tools, claim, stop)
                self._attempt.run_attempt()
                self._record_attempt_end_and_delay_claims(self._attempt)
            except LeaseLost:
                telemetry.ATTEMPTS.labels("left", "lease").inc()
                log.warning("lease lost; the job is another worker's", fence=claim.fence)
            except Exception as error:
                # The claim stays as it is: its lease runs out, and the chores of any worker take
                # the job back.
                telemetry.ATTEMPTS.labels(
                    "left", "outage" if is_database_outage(error) else "error"
                ).inc()
                log.exception("attempt failed")
            finally:
                self._attempt = None
                structlog.contextvars.unbind_contextvars("job", "model")
        return claimed

    def _write_health_or_lost_device_file(self) -> None:
        """Touch the worker's health file; while its device is lost, write the reason into a file
        instead.
        """
        lost_path, problem = (
            get_lost_device_report_file(self.settings.data_dir, self.name),
            self._device.device.problem,
        )
        if problem is not None:
            lost_path.write_text(f"{self.name}: {problem}\n")
            return
        # The file alone makes `deploy/health.py` report a lost device.
        lost_path.unlink(missing_ok=True)
        (self.settings.data_dir / ALIVE).touch()

    def _report_device_if_due(self) -> None:
        """Store the state of this worker's device, if it has changed or the last report is old."""
        now, device = time.monotonic(), self._device.device
        if self._reported is not None:
            at, last_device = self._reported
            if last_device == device and now - at < workers.REPORT_S:
                return
        with self.db.write() as session:
            now_there = self.db.now(session)
            workers.record_worker_presence(
                session, self.name, device, now_there, self._reaper.answers_since
            )
        self._reported = now, device

    def _record_attempt_end_and_delay_claims(self, attempt: JobAttempt) -> None:
        """Count outages and device successes of attempts; after an outage, delay the next claim."""
        self._outages = self._outages + 1 if attempt.outage else 0
        if not attempt.outage:
            self._device.record_device_success()
        if attempt.outage:
            pause_s = OUTAGE_PAUSES_S[min(self._outages, len(OUTAGE_PAUSES_S)) - 1]
            self._claims_from = time.monotonic() + pause_s
            log.warning("an outage ended the attempt; claiming waits", seconds=pause_s)

    def _record_requeued_jobs_in_metrics(self, jobs: list[str]) -> list[str]:
        """Count jobs taken back from dead workers in the metrics, and return them."""
        if jobs:
            telemetry.ATTEMPTS.labels("reaped", "worker").inc(len(jobs))
            hit_failpoint("reap-committed")
        return jobs

    def _requeue_jobs_of_dead_local_workers(self, ring: Callable[[str], object]) -> None:
        """Take back the jobs of dead workers on this host, and remove their folders."""
        job_ids: list[str] = []
        self._folder.return_jobs_and_remove_dead_folders(
            lambda worker: job_ids.extend(claims.take_back_jobs_of_dead_worker(self.db, worker))
        )
        for job_id in self._record_requeued_jobs_in_metrics(job_ids):
            ring(job_id)

    def _delete_unneeded_data_if_clock_steady(self) -> None:
        """Remove data that is no longer needed, unless the clock has just jumped."""
        if self._clock.detect_jump_and_report_steadiness():
            sweep.run_sweep(self.db, self.store, self.blobs, self.settings)

    def _run_object_scrub(self) -> None:
        Scrubber(
            self.db, self.store, self.settings, self.name, self._scrub.wait_within_chore
        ).run_scrub_if_due()

    def request_job_state_check_now(self) -> None:
        """Have the running job attempt read its job's state now, because of a notification."""
        attempt = self._attempt
        if attempt is not None:
            attempt.wake_heartbeat_to_read_job_state()

    def close_worker(self) -> None:
        """End the worker's threads, fork server and connections."""
        self._sweeps.stop_starting_chores()  # lets it stop while the other chores end
        self._abandoned.stop_starting_chores()
        self._reaping.stop_starting_chores()
        self._scrub.stop_starting_chores()
        self._deliverer.stop_delivering()
        self._chores.end_chores_thread()
        self._abandoned.end_chores_thread()
        self._reaping.end_chores_thread()
        self._sweeps.end_chores_thread()
        self._scrub.end_chores_thread()
        self._deliverer.close()
        if self._zygote is not None:
            self._zygote.end_fork_server()
            self._zygote = None
        # Left behind, it would fail the host's health check for another minute.
        get_lost_device_report_file(self.settings.data_dir, self.name).unlink(missing_ok=True)
        self._folder.remove_work_folder()
        self.db.close()


class _WakeupReceiver:
    """Receives notifications from the API in a worker without a message broker."""

    def __init__(self, listener: socket.socket | None, heard: Callable[[], None]) -> None:
        self._listener = listener
        self._heard = heard
        self._wake = threading.Event()
        self._thread = threading.Thread(
            target=self._listen_on_wakeup_socket, name="bell", daemon=True
        )
        if listener is not None:
            self._thread.start()

    def wait_for_notification(self, seconds: float) -> None:
        """Wait at most `seconds` for a notification of a job."""
        self._wake.wait(seconds)
        self._wake.clear()

    def _listen_on_wakeup_socket(self) -> None:
        assert self._listener is not None
        while True:
            try:
                select.select([self._listener], [], [])
                worker_notification.drain_pending_wakeups(self._listener)
            except (OSError, ValueError):
                return  # closed
            self._wake.set()
            self._heard()


def main() -> int:
    """Run a worker without a message broker until TERM or INT; return 0 after an orderly end."""
    configure_logging("worker")
    settings = Settings()
    try:
        advice = prepare_data_directory_and_check_startup(settings)
    except PerennialError as error:
        log.error("cannot start", reason=error.detail)
        return 1
    if advice is not None:
        log.warning("data directory open to others", advice=advice)
    stop = threading.Event()

    def request_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    worker = Worker(
        settings, ring=lambda _job_id: worker_notification.wake_worker(settings.data_dir)
    )
    try:
        worker.prepare_worker()
    except (PerennialError, SQLAlchemyError) as error:
        log.error("cannot start", reason=str(error).partition("\n")[0])
        worker.close_worker()
        return 1
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close_worker)
        listener = stack.enter_context(worker_notification.open_wakeup_socket(settings.data_dir))
        bell = _WakeupReceiver(listener, worker.request_job_state_check_now)
        # After all imports and before any job: what exists now is never collected.
        exclude_existing_objects_from_gc()
        worker.start_chores()
        log.info("worker ready", worker=worker.name)
        while not stop.is_set():
            worker.run_jobs(stop.is_set)
            if not stop.is_set():
                bell.wait_for_notification(settings.poll_s)
    log.info("worker stopped", worker=worker.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
