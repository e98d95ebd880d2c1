"""Supervision of one job child from its first event to its end.

It reads events and passes them on in batches. It asks for a snapshot at every period, and for the
best state so far if there is a better one. It ends the child: at once on a lost lease or a
cancellation; in order, snapshot first, on a pause or a shutdown; by force if that takes longer than
the grace period, after too long a silence, or when its time is over. It does not use the database:
the recorder decides what to do with events.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import structlog

from core.contract.jobs.job_event import (
    BestStateFolderReadyEvent,
    BestStateFoundEvent,
    DataReportEvent,
    JobEvent,
    LastEvent,
    PhaseEvent,
    ProgressEvent,
    SnapshotEvent,
)
from core.database.states import JobState
from core.errors import LeaseLost
from worker.attempts.child import JobProcess

log = structlog.get_logger(__name__)

RECORD_S = 1.0
"""Seconds between records of events; the beginning of a phase is recorded at once."""
TICK_S = 0.25
SNAPSHOT_SHARE = 0.05
"""Maximum share of a job's time for snapshots, since training waits meanwhile."""

Ending = Literal["done", "stopped", "error", "died", "stalled", "lost", "cancelled", "overtime"]


class JobEventReceiver(Protocol):
    """Protocol of an object that receives a job process's events. Methods raise `LeaseLost`."""

    def write_job_events(self, events: list[JobEvent]) -> None:
        """Record progress, metrics, logs and phases of a job."""

    def register_and_delete_snapshot_folder(self, event: SnapshotEvent) -> None:
        """Register a complete snapshot of a job from a folder, and delete the folder."""

    def register_and_delete_best_state_folder(self, event: BestStateFolderReadyEvent) -> bool:
        """Register a job's best state so far from a folder, and delete the folder.

        Returns:
            False if it could not be stored now, and should be requested again.
        """


class HeartbeatState(Protocol):
    """The part of a lease's heartbeat that the supervisor of a job process reads."""

    @property
    def is_lease_lost(self) -> bool:
        """True if the lease on the job is lost, so another worker may own it."""

    @property
    def requested_state(self) -> JobState | None:
        """CANCELLING or PAUSING if a person requested that the job stops, else None."""


@dataclass(frozen=True)
class SupervisionPeriodsAndLimits:
    """Seconds between the actions of a job process's supervisor, such as requests for snapshots.

    Attributes:
        snapshot_s: between snapshots.
        anytime_s: between best states.
        stall_s: silence after which a child is ended.
        grace_s: for an orderly stop.
        left_s: for the whole job.
    """

    snapshot_s: float
    anytime_s: float
    stall_s: float
    grace_s: float
    left_s: float = float("inf")


@dataclass
class ProcessOutcome:
    """End of a supervised job process: its last event, exit status and reason.

    Attributes:
        event: last event that it sent (done, error or stopped), if any.
        status: exit code, negative for a signal; None if unknown.
    """

    ending: Ending
    event: LastEvent | None = None
    status: int | None = None


def supervise_job_process(
    child: JobProcess,
    beat: HeartbeatState,
    recorder: JobEventReceiver,
    periods: SupervisionPeriodsAndLimits,
    stop: Callable[[], bool],
) -> ProcessOutcome:
    """Supervise a job process until it ends: store its events, request snapshots, stop or kill it.

    Args:
        stop: function that returns True if the worker must shut down.
    """
    return _ProcessSupervision(child, beat, recorder, periods, stop)._supervise_child()


class _ProcessSupervision:
    def __init__(
        self,
        child: JobProcess,
        beat: HeartbeatState,
        recorder: JobEventReceiver,
        periods: SupervisionPeriodsAndLimits,
        stop: Callable[[], bool],
    ) -> None:
        self._child = child
        self._beat = beat
        self._recorder = recorder
        self._periods = periods
        self._stop = stop
        now = time.monotonic()
        self._heard_at = now
        self._end_at = now + periods.left_s
        self._recorded_at = 0.0
        self._snapshot_at = now + periods.snapshot_s
        self._anytime_at = now + periods.anytime_s
        self._better = False  # a better state was reported and not requested yet
        self._stop_by: float | None = None
        self._waiting: list[JobEvent] = []
        self._news = False
        self._phase_new = True
        self._last: LastEvent | None = None
        self._forced: Ending | None = None

    def _supervise_child(self) -> ProcessOutcome:
        try:
            while not self._child.ended and not self._last:
                self._handle_child_events(self._child.read_child_events(TICK_S))
                self._enforce_limits_and_send_requests()
                self._write_collected_events(force=False)
            self._write_collected_events(force=True)
        except LeaseLost:
            self._kill_child("lost")
        finally:
            # Whatever happens here, the child must not outlive the watch.
            if not self._child.ended and self._forced is None and not self._last:
                self._child.kill_process()
            status = self._child.close_and_wait()
        if self._forced is not None:
            return ProcessOutcome(self._forced, self._last, status)
        if not self._last:
            return ProcessOutcome("died", None, status)
        return ProcessOutcome(self._last.event, self._last, status)

    def _handle_child_events(self, events: list[JobEvent]) -> None:
        for event in events:
            if isinstance(event, SnapshotEvent):
                # Progress up to the snapshot is recorded before it, in the child's order.
                self._write_collected_events(force=True)
                if not self._beat.is_lease_lost:
                    self._recorder.register_and_delete_snapshot_folder(event)
                pause_s = max(self._periods.snapshot_s, event.cost_s / SNAPSHOT_SHARE)
                self._snapshot_at = time.monotonic() + pause_s
            elif isinstance(event, BestStateFoundEvent):
                self._better = True
            elif isinstance(event, BestStateFolderReadyEvent):
                # It includes every better state reported before.
                self._better = (
                    not self._beat.is_lease_lost
                    and not self._recorder.register_and_delete_best_state_folder(event)
                )
                self._anytime_at = time.monotonic() + self._periods.anytime_s
            elif isinstance(event, LastEvent):
                self._last = event
            else:
                self._waiting.append(event)
                # A person who watches waits for a new phase and its first progress.
                phase, progress = (
                    isinstance(event, PhaseEvent | DataReportEvent),
                    isinstance(event, ProgressEvent),
                )
                self._news = self._news or phase or (progress and self._phase_new)
                self._phase_new = phase or (self._phase_new and not progress)
        if events:
            # the time is taken now, since storing a state takes time that is not the child's
            self._heard_at = time.monotonic()

    def _enforce_limits_and_send_requests(self) -> None:
        """Kill the job process, or request a stop, a snapshot or a best state from it, if due."""
        now = time.monotonic()
        if self._forced is not None:
            return
        if self._beat.is_lease_lost:
            self._kill_child("lost")
        elif self._beat.requested_state is JobState.CANCELLING:
            self._kill_child("cancelled")  # nothing of it will be stored
        # After a stop request, the grace period replaces the limits on silence and the job's time.
        elif self._stop_by is not None:
            if now > self._stop_by:
                log.warning("job process did not stop in time", pid=self._child.pid)
                self._kill_child("stopped")
        # An orderly stop makes a snapshot, so that the next attempt repeats no step.
        elif self._beat.requested_state is JobState.PAUSING or self._stop():
            self._stop_by = now + self._periods.grace_s
            self._child.request_stop()
            log.info("job process is asked to stop", pid=self._child.pid)
        elif now > self._end_at:
            log.warning("job process has had its time", pid=self._child.pid)
            self._kill_child("overtime")
        # A process that hangs in a driver or a lock never ends by itself.
        elif now - self._heard_at > self._periods.stall_s:
            log.warning(
                "job process is silent", pid=self._child.pid, seconds=round(now - self._heard_at)
            )
            self._kill_child("stalled")
        elif now >= self._snapshot_at:
            self._snapshot_at = float("inf")  # until this snapshot is complete
            self._child.request_snapshot()
        elif self._better and now >= self._anytime_at:
            # One request at a time: the next waits for the answer to this one.
            self._anytime_at = float("inf")
            self._child.request_best_state_now()

    def _kill_child(self, ending: Ending) -> None:
        self._forced = ending
        self._child.kill_process()

    def _write_collected_events(self, *, force: bool) -> None:
        now = time.monotonic()
        # Under a lost lease, every write would be refused.
        if not self._waiting or self._beat.is_lease_lost:
            return
        if force or self._news or now - self._recorded_at >= RECORD_S:
            self._news = False
            events, self._waiting = self._waiting, []
            self._recorded_at = now
            self._recorder.write_job_events(events)
